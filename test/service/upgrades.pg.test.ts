/** Clients that would rather speak another protocol: whoever doesn't, answers in the one that it was asked in. */
import { request } from 'node:http';
import { expect, test } from 'vitest';
import { CITY, openCity, startTestService, type TestService } from '../support/service.ts';

interface Asked {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  readonly upgrade: string;
  readonly token?: string;
  readonly body?: string;
}

/** The status of the answer; rejects when the connection ends without one. */
function statusOf(service: TestService, { method, path, upgrade, token, body }: Asked): Promise<number> {
  const headers = {
    connection: 'Upgrade, HTTP2-Settings',
    upgrade,
    'http2-settings': 'AAMAAABkAAQAoAAAAAIAAAAA',
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
    ...(body !== undefined && { 'content-type': 'application/json' }),
  };
  return new Promise((resolve, reject) => {
    request(service.urlOf('api') + path, { method, headers }, (answer) => resolve(answer.resume().statusCode!))
      .on('upgrade', (answer, socket) => resolve((socket.destroy(), answer.statusCode!)))
      .on('error', reject)
      .end(body);
  });
}

test('a request that offers HTTP/2 is answered in HTTP/1.1, with a body as well, where drivers’ sockets are listened for', async () => {
  await using service = await startTestService({ processes: [['api', 'gateway']] });
  await openCity(service, []);
  const token = await service.token('rider', 'r1');
  const ride = { regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center };
  for (const upgrade of ['h2c', 'TLS/1.3', 'websockets', 'h2c, websocket']) {
    expect(await statusOf(service, { method: 'GET', path: '/healthz', upgrade })).toBe(200);
    expect(await statusOf(service, { method: 'GET', path: '/nowhere', upgrade })).toBe(404);
    const asked = { method: 'POST', path: '/v1/rides', upgrade, token, body: JSON.stringify(ride) } as const;
    expect(await statusOf(service, asked)).toBe(201);
  }
});

test('a request for a websocket is answered as any other in a process that has none', async () => {
  await using service = await startTestService({ processes: [['gateway'], ['api']] });
  const asked = { method: 'GET', path: '/healthz', upgrade: 'WebSocket' } as const;
  expect(await statusOf(service, asked)).toBe(200);
});
