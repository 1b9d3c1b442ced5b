import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { Problem, Unreachable } from '../../src/client/problem.ts';
import { Connections, Rest } from '../../src/client/rest.ts';
import { RiderClient } from '../../src/client/rider-client.ts';
import { inTurn, RestServer, sendJson } from './rest-server.ts';

const wish = { regionId: 'r', riderId: 'rider-1', pickup: { lat: 1, lng: 2 }, dropoff: { lat: 3, lng: 4 } };
const ride = { id: 'ride-1', status: 'searching', ...wish };
const problem = (code: string, status: number) => ({ type: 'about:blank', title: code, status, detail: 'why', code });

/** A client that closes with its test. */
function riderOf(url: string | string[], deadlineMs = 5_000) {
  const client = new RiderClient({ url, token: 'a-token', deadlineMs });
  return Object.assign(client, { [Symbol.dispose]: () => client.close() });
}

describe('a ride request', () => {
  it('carries token and key, and answers with the ride', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url);
    server.answer = (_request, response) => sendJson(response, 201, ride);
    await expect(rider.request(wish)).resolves.toEqual(ride);
    const [heard] = server.heard;
    expect(heard).toMatchObject({ method: 'POST', path: '/v1/rides', body: wish });
    expect(heard?.headers).toMatchObject({ authorization: 'Bearer a-token', 'content-type': 'application/json' });
    expect(heard?.headers['idempotency-key']).toMatch(/^[0-9a-f-]{36}$/);
  });

  it('is sent again under the same key when its answer gets lost, and under another key when it is another request', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url);
    server.answer = inTurn(
      (_request, response) => response.destroy(),
      (_request, response) => sendJson(response, 201, ride),
    );
    await rider.request(wish);
    await rider.request(wish);
    const [first, second, third] = server.heard.map(({ headers }) => headers['idempotency-key']);
    expect(second).toBe(first);
    expect(third).not.toBe(first);
  });

  it('goes to the next address when one is gone', async () => {
    await using server = await RestServer.listen();
    const gone = await RestServer.listen();
    await gone[Symbol.asyncDispose]();
    using rider = riderOf([gone.url, server.url]);
    server.answer = (_request, response) => sendJson(response, 201, ride);
    await expect(rider.request(wish)).resolves.toEqual(ride);
  });
});

describe('a refusal', () => {
  it('is a Problem with the service’s code, and is final', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url);
    server.answer = (_request, response) => sendJson(response, 409, problem('ride_over', 409));
    const refusal = await rider.cancel('ride-1', 'changed_mind').catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(Problem);
    expect(refusal).toMatchObject({ code: 'ride_over', status: 409, message: 'ride_over: why' });
    expect(server.heard).toHaveLength(1);
  });

  it('that isn’t the service’s own is named by its status', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url);
    server.answer = (_request, response) => response.writeHead(404).end('<html>not here</html>');
    await expect(rider.get('ride-1')).rejects.toMatchObject({ code: 'http_404', status: 404 });
  });

  it('for now is asked again, not before the time it named', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url);
    server.answer = inTurn(
      (_request, response) => sendJson(response, 503, problem('database_unavailable', 503), { 'retry-after': '1' }),
      (_request, response) => sendJson(response, 200, ride),
    );
    const beforeMs = performance.now();
    await expect(rider.get('ride-1')).resolves.toEqual(ride);
    expect(performance.now() - beforeMs).toBeGreaterThan(990);
  });
});

it('a request that can’t be sent isn’t tried again', async () => {
  await using server = await RestServer.listen();
  using rider = riderOf(server.url);
  await expect(rider.request(wish, 'a key\n')).rejects.not.toBeInstanceOf(Unreachable);
  const circular: object[] = [];
  circular.push(circular);
  await expect(rider.request({ ...wish, attributes: circular as never })).rejects.toBeInstanceOf(TypeError);
  expect(server.heard).toEqual([]);
});

describe('no answer', () => {
  it('is Unreachable once the deadline has passed', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url, 200);
    server.answer = () => {};
    await expect(rider.get('ride-1')).rejects.toBeInstanceOf(Unreachable);
  });

  it('is an answer that is cut off in the middle', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url, 200);
    server.answer = (_request, response) => {
      response.writeHead(200, { 'content-length': '100' });
      response.write('{"id":', () => response.destroy());
    };
    await expect(rider.get('ride-1')).rejects.toBeInstanceOf(Unreachable);
  });

  it('is one that is longer than any answer of the service', async () => {
    await using server = await RestServer.listen();
    using rider = riderOf(server.url, 1_000);
    server.answer = (_request, response) => sendJson(response, 200, { id: 'x'.repeat(9 * 1024 * 1024) });
    await expect(rider.get('ride-1')).rejects.toBeInstanceOf(Unreachable);
  });

  it('is what a call gets in time that waits for a connection all the while', async () => {
    await using server = await RestServer.listen();
    const connections = new Connections({ maxPerHost: 1 });
    const options = { url: server.url, token: 't', connections, deadlineMs: 200 };
    const asked = Promise.withResolvers<void>();
    server.answer = () => asked.resolve();
    const patient = new Rest(options).call({ method: 'GET', path: '/wait', repeatable: false, waitMs: 60_000 });
    await asked.promise;
    await expect(new RiderClient(options).get('ride-1')).rejects.toBeInstanceOf(Unreachable);
    connections.close();
    await expect(patient).rejects.toBeInstanceOf(Unreachable);
    expect(server.heard.map(({ path }) => path)).toEqual(['/wait']);
  });

  it('is what calls under way get when the connections are closed', async () => {
    await using server = await RestServer.listen();
    const connections = new Connections();
    const rider = new RiderClient({ url: server.url, token: 't', connections });
    const asked = Promise.withResolvers<void>();
    server.answer = () => asked.resolve();
    const waiting = rider.get('ride-1');
    await asked.promise;
    connections.close();
    await expect(waiting).rejects.toThrow('the connections are closed');
  });

  it('is at once what a call gets whose connection was still being made, and nothing is left of that', async () => {
    // Takes the connection and never answers the TLS handshake.
    const silent = createServer().listen(0, '127.0.0.1');
    const connected = once(silent, 'connection') as Promise<[Socket]>;
    await once(silent, 'listening');
    const connections = new Connections();
    const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const waiting = new RiderClient({ url, token: 't', connections }).get('ride-1').catch((error: unknown) => error);
    const [socket] = await connected;
    connections.close();
    expect(await waiting).toMatchObject({ message: expect.stringContaining('the connections are closed') as unknown });
    await once(socket.resume(), 'close');
    silent.close();
  }, 3_000);
});

it('lists come page by page to their end', async () => {
  await using server = await RestServer.listen();
  server.answer = ({ path }, response) =>
    path.includes('cursor=2')
      ? sendJson(response, 200, { items: [{ id: 'c' }], nextCursor: null })
      : sendJson(response, 200, { items: [{ id: 'a' }, { id: 'b' }], nextCursor: '2' });
  const operator = new OperatorClient({ url: server.url, token: 't' });
  const ids: string[] = [];
  for await (const { id } of operator.rides('region-1', 'completed')) ids.push(id);
  operator.close();
  expect(ids).toEqual(['a', 'b', 'c']);
  expect(server.heard.map(({ path }) => new URL(path, server.url).searchParams.get('status'))).toEqual([
    'completed',
    'completed',
  ]);
});
