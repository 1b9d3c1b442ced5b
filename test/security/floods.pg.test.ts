/** More than anybody should ask: of requests, of events, of frames, of connections. */
import { connect, type Socket as TcpSocket } from 'node:net';
import type { Socket } from 'socket.io-client';
import { describe, expect, test, vi } from 'vitest';
import { createCallerLimiter } from '../../src/rate-limit.ts';
import { openRegion, OPS, rideBody, SERVICE, startTestApi } from '../api/harness.ts';
import { CITY, openCity, startTestService } from '../support/service.ts';
import { connectDriver } from './driver-socket.ts';
import { rowsOf } from './rows.ts';

const DEADLINE = { timeout: 15_000, interval: 50 };

test('who asks too often is told so before the request is read, others go on, and nothing was done', async () => {
  let nowMs = 0;
  const mayAsk = createCallerLimiter({ devicePerS: 5, servicePerS: 50 }, () => nowMs);
  await using api = await startTestApi({ mayAsk });
  await openRegion(api);
  const ask = (rider: string) => api.call('POST', '/v1/rides', { as: `rider:${rider}`, body: rideBody(rider) });
  for (let i = 0; i < 5; i += 1) expect((await ask('greedy')).status).toBe(201);
  const before = await rowsOf(api.database.cold);
  const refused = await api.call('POST', '/v1/rides', { as: 'rider:greedy', body: '{' });
  expect(refused).toMatchObject({ status: 429, body: { code: 'too_many_requests' } });
  expect(refused.headers['retry-after']).toBe('1');
  expect(await rowsOf(api.database.cold)).toEqual(before);
  expect((await ask('modest')).status).toBe(201);
  for (let i = 0; i < 20; i += 1) {
    expect((await api.call('GET', '/v1/rides?regionId=city', SERVICE)).status).toBe(200);
    expect((await api.call('GET', '/v1/regions/city', OPS)).status).toBe(200);
  }
  // As long as it was told to wait.
  nowMs += 1_000;
  expect((await ask('greedy')).status).toBe(201);
});

const report = (socket: Socket): Promise<{ ok: boolean; error?: { code: string } }> =>
  socket.emitWithAck('location', CITY.center) as Promise<{ ok: boolean; error?: { code: string } }>;

/** A frame of engine.io's own, without socket.io around it. */
const rawSend = (socket: Socket, data: string | Buffer): void => void socket.io.engine.write(data as string);

describe('a driver’s socket', () => {
  test('is answered `too_many_requests` beyond the rate, others go on, and it is heard again afterwards', async () => {
    await using service = await startTestService({
      processes: [['api', 'gateway']],
      rateLimits: { devicePerS: 2, servicePerS: 5_000 },
    });
    await openCity(service, ['greedy', 'modest']);
    const greedy = await connectDriver(service, 'greedy');
    const modest = await connectDriver(service, 'modest');
    const answers = await Promise.all(Array.from({ length: 200 }, () => report(greedy)));
    const refused = answers.filter(({ ok }) => !ok);
    expect(refused.length).toBeGreaterThan(100);
    for (const { error } of refused) expect(error).toEqual({ code: 'too_many_requests' });
    // The socket's events and the REST requests of a driver are counted together.
    const headers = { authorization: `Bearer ${await service.token('driver', 'greedy')}` };
    const asked = Array.from({ length: 20 }, () => fetch(`${service.urlOf('api')}/v1/drivers/greedy`, { headers }));
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(5);
    expect(await report(modest)).toMatchObject({ ok: true });
    await vi.waitFor(async () => expect(await report(greedy)).toMatchObject({ ok: true }), DEADLINE);
    greedy.disconnect();
    modest.disconnect();
  });

  test('is cut off by a flood of frames, a binary one, and one that is too long; not by what is only odd', async () => {
    await using service = await startTestService({ processes: [['api', 'gateway']] });
    await openCity(service, ['d1']);
    const floods: Record<string, (socket: Socket) => void> = {
      flood: (socket) => {
        for (let i = 0; i < 3_000; i += 1) socket.emit('nonsense');
      },
      binary: (socket) => rawSend(socket, Buffer.from('x')),
      'attachments without end': (socket) => socket.emit('location', Buffer.alloc(100)),
      'too long': (socket) => socket.emit('location', { lat: 'y'.repeat(20_000), lng: 0 }),
      'not socket.io': (socket) => rawSend(socket, 'hello'),
      'deeper than JSON is read': (socket) => rawSend(socket, `2/drivers,["location",${'['.repeat(7_000)}`),
    };
    for (const [what, attack] of Object.entries(floods)) {
      const socket = await connectDriver(service, 'd1');
      const closed = new Promise((resolve) => socket.once('disconnect', resolve));
      attack(socket);
      expect(await closed, what).toMatch(/transport (close|error)/);
    }
    const socket = await connectDriver(service, 'd1');
    rawSend(socket, `2/drivers,1["location",${'['.repeat(7_000)}${']'.repeat(7_000)}]`);
    rawSend(socket, '2/drivers,["nonsense",{"__proto__":{"role":"ops"}}]');
    expect(await report(socket)).toEqual({ ok: true, data: {} });
    socket.disconnect();
  });
});

describe('connections without a word', () => {
  const STRANGERS = 300;

  const closings = (sockets: readonly TcpSocket[]): Promise<unknown> =>
    Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve))));

  test('are closed when their time is over, and hold up nobody meanwhile', async () => {
    await using service = await startTestService({ processes: [['api', 'gateway']] });
    await openCity(service, ['d1']);
    const { port } = new URL(service.urlOf('gateway'));
    const upgrade = [
      'GET /socket.io/?EIO=4&transport=websocket HTTP/1.1',
      `Host: 127.0.0.1:${port}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
      '\r\n',
    ].join('\r\n');
    const opened = Array.from({ length: STRANGERS }, (_, i) => {
      const socket = connect(Number(port), '127.0.0.1');
      socket.on('error', () => {});
      socket.resume();
      // A third says nothing, a third becomes a websocket and shows no token, a third never ends its request.
      if (i % 3 === 1) socket.write(upgrade);
      if (i % 3 === 2) socket.write('GET /healthz HTTP/1.1\r\n');
      return socket;
    });
    const allClosed = closings(opened);
    const driver = await connectDriver(service, 'd1');
    expect(await report(driver)).toMatchObject({ ok: true });
    expect((await fetch(`${service.urlOf('api')}/healthz`)).status).toBe(200);
    await allClosed;
    expect(driver.connected).toBe(true);
    driver.disconnect();
  });
});
