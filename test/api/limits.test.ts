import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { mintToken } from '../../src/auth.ts';
import { SECRET, startApiWithoutDatabase } from './harness.ts';

const DRIP_MS = 5;

/**
 * What comes back until the service ends the connection. What is still on its way to it then is answered with a
 * reset, which comes behind the answer: not an error here.
 */
async function allOf(socket: Socket): Promise<string> {
  let answer = '';
  socket.setEncoding('utf8').on('data', (part: string) => (answer += part));
  await new Promise((resolve) => socket.on('error', () => {}).on('close', resolve));
  return answer;
}

/** Sends this and nothing more. */
function answerTo(port: number, sent: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write(sent);
  return allOf(socket);
}

/** Sends a byte more every so often, for as long as the service listens. */
async function dripping(port: number, begin: string, drop: string): Promise<{ answer: string; ms: number }> {
  const startedAtMs = performance.now();
  const socket = connect(port, '127.0.0.1');
  socket.write(begin);
  const drip = setInterval(() => socket.write(drop), DRIP_MS);
  const answer = await allOf(socket);
  clearInterval(drip);
  return { answer, ms: performance.now() - startedAtMs };
}

describe.concurrent('what isn’t a good request', () => {
  test.each([
    ['isn’t HTTP', 'hello\r\n\r\n', 'HTTP/1.1 400 ', 'bad_request'],
    [
      'has headers without end',
      `GET / HTTP/1.1\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`,
      'HTTP/1.1 431 ',
      'headers_too_large',
    ],
    ['never ends its headers', 'GET /healthz HTTP/1.1\r\nHost: x\r\n', 'HTTP/1.1 408 ', 'request_timeout'],
  ])('because it %s is answered and cut off', async (_why, sent, statusLine, code) => {
    await using api = await startApiWithoutDatabase();
    const answer = await answerTo(await api.listen(), sent);
    expect(answer).toContain(statusLine);
    expect(answer).toContain('Content-Type: application/problem+json');
    const body = answer.slice(answer.indexOf('\r\n\r\n') + 4);
    expect(JSON.parse(body)).toMatchObject({ code, type: `urn:cabrank:problem:${code}` });
  });

  test('because it never ends is cut off, however steadily it drips', async () => {
    await using api = await startApiWithoutDatabase();
    const port = await api.listen();
    const head = 'POST /v1/rides HTTP/1.1\r\nHost: x\r\n';
    const rider = await mintToken(SECRET, { sub: 'r', role: 'rider', ttlS: 60 });
    const body = `Authorization: Bearer ${rider}\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{`;
    const [inHeaders, inBody] = await Promise.all([dripping(port, head, 'x'), dripping(port, head + body, ' ')]);
    for (const { answer, ms } of [inHeaders, inBody]) {
      expect(answer).toContain('HTTP/1.1 408 ');
      expect(answer).toContain('"code":"request_timeout"');
      expect(ms).toBeLessThan(15_000);
    }
    expect(inHeaders.ms).toBeLessThan(inBody.ms);
  });

  test('because its body stalls is cut off as one that took too long, whenever it began', async () => {
    await using api = await startApiWithoutDatabase();
    // What looks for late requests, and what looks for late answers, look once a second, from when each was started.
    await setTimeout(500);
    const port = await api.listen();
    const rider = await mintToken(SECRET, { sub: 'r', role: 'rider', ttlS: 60 });
    const head = `POST /v1/rides HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${rider}\r\n`;
    const begun = `${head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{`;
    // Spread over the second after which the service looks again.
    const stalled = Array.from({ length: 10 }, async (_, i) => {
      await setTimeout(100 * i);
      return answerTo(port, begun);
    });
    for (const answer of await Promise.all(stalled)) expect(answer).toMatch(/^HTTP\/1.1 408 /);
  });

  test('because it is too long is answered before it has been sent', async () => {
    await using api = await startApiWithoutDatabase();
    const head = 'POST /v1/rides HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99999\r\n';
    const socket = connect(await api.listen(), '127.0.0.1');
    socket.setEncoding('utf8').write(`${head}\r\n{`);
    // Who it is comes first.
    const [answer] = (await once(socket, 'data')) as [string];
    expect(answer).toContain('HTTP/1.1 401 ');
    socket.destroy();
  });
});

/** Until nobody new is let in. */
async function refusesNewOnes(port: number): Promise<void> {
  for (;;) {
    const socket = connect(port, '127.0.0.1');
    const isRefused = await once(socket, 'connect').then(
      () => false,
      () => true,
    );
    socket.destroy();
    if (isRefused) return;
  }
}

test('a request that is in hand when the service closes is answered, and its connection isn’t kept alive', async () => {
  const api = await startApiWithoutDatabase();
  const port = await api.listen();
  const token = await mintToken(SECRET, { sub: 'r', role: 'rider', ttlS: 60 });
  const head = `POST /v1/rides HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\n`;
  const socket = connect(port, '127.0.0.1').setEncoding('utf8');
  let heard = '';
  socket.on('data', (part: string) => (heard += part));
  socket.write(`${head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{`);
  while (!heard.includes('100 Continue')) await once(socket, 'data');
  const closing = api[Symbol.asyncDispose]();
  await refusesNewOnes(port);
  socket.write('}');
  await once(socket, 'close');
  expect(heard).toContain('HTTP/1.1 400 ');
  expect(heard.toLowerCase()).toContain('connection: close');
  await closing;
});

test('thousands of requests one after the other leave nothing behind', async () => {
  await using api = await startApiWithoutDatabase();
  for (let i = 0; i < 5_100; i += 1) await api.call('GET', '/v1/rides');
  expect((await api.call('GET', '/v1/rides')).status).toBe(401);
});
