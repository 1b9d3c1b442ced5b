/** The proxy is what the faults are made of: one that let bytes through, or lost them unasked, would prove nothing. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { Proxy, type ProxyOptions } from '../../chaos/proxy.ts';
import { createRandom } from '../../domain/random.ts';

const open: AsyncDisposableStack[] = [];
afterEach(async () => {
  for (const stack of open.splice(0)) await stack.disposeAsync();
});

interface Line {
  readonly proxy: Proxy;
  /** What the server was told, over all its connections. */
  readonly heard: () => string;
  readonly dial: () => Socket;
  /** A server's `echo:` and whatever it heard. */
  readonly ask: (socket: Socket, text: string) => Promise<string>;
}

async function openLine(targets?: ProxyOptions['targets']): Promise<Line> {
  const stack = new AsyncDisposableStack();
  open.push(stack);
  let heard = '';
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      heard += chunk.toString();
      socket.write(`echo:${chunk.toString()}`);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  stack.defer(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await once(server, 'close');
  });
  const random = createRandom('proxy');
  const proxy = stack.use(await Proxy.listen({ targets: targets ?? (() => [{ host: '127.0.0.1', port }]), random }));
  const dial = (): Socket => {
    const socket = connect(proxy.port, '127.0.0.1');
    socket.on('error', () => {});
    stack.defer(() => void socket.destroy());
    return socket;
  };
  const ask = (socket: Socket, text: string): Promise<string> =>
    new Promise((resolve) => {
      socket.once('data', (chunk: Buffer) => resolve(chunk.toString()));
      void closed(socket).then(() => resolve('closed'));
      socket.write(text);
    });
  return { proxy, heard: () => heard, dial, ask };
}

/** Also by a reset, which `once` would take for a failure. */
const closed = (socket: Socket): Promise<void> => new Promise((resolve) => void socket.once('close', () => resolve()));

/** The next turns of the event loop, and what the kernel brings in them; whatever should be here by then is. */
const aWhile = (): Promise<void> => new Promise((resolve) => void setTimeout(resolve, 60));

describe('without a rule', () => {
  test('everything passes, both ways, in order and whole', async () => {
    const { dial } = await openLine();
    const socket = dial();
    const sent = Buffer.alloc(3_000_000, 'abcdefghijk');
    let received = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => (received = Buffer.concat([received, chunk])));
    socket.write(sent);
    while (received.toString().replaceAll('echo:', '').length < sent.byteLength) await aWhile();
    expect(received.toString().replaceAll('echo:', '')).toBe(sent.toString());
  });

  test('a target that refuses is passed over for the next', async () => {
    const gone = createServer().listen(0, '127.0.0.1');
    await once(gone, 'listening');
    const { port: nobody } = gone.address() as AddressInfo;
    gone.close();
    const other = await openLine();
    const { dial, ask } = await openLine(() => [
      { host: '127.0.0.1', port: nobody },
      { host: '127.0.0.1', port: other.proxy.port },
    ]);
    expect(await ask(dial(), 'hello')).toBe('echo:hello');
  });
});

describe('cut', () => {
  test('ends what is open, resets what comes, and is over when healed', async () => {
    const { proxy, dial, ask, heard } = await openLine();
    const socket = dial();
    await ask(socket, 'before');
    const heal = proxy.inject({ kind: 'cut' });
    await closed(socket);
    expect(await ask(dial(), 'during')).toBe('closed');
    heal();
    expect(await ask(dial(), 'after')).toBe('echo:after');
    expect(heard()).toBe('beforeafter');
  });
});

describe('stall', () => {
  test('to the server: nothing arrives there until it is healed, and then all of it', async () => {
    const { proxy, dial, ask, heard } = await openLine();
    const socket = dial();
    await ask(socket, '1');
    const heal = proxy.inject({ kind: 'stall', way: 'to-server' });
    const answer = ask(socket, '2');
    await aWhile();
    expect(heard()).toBe('1');
    heal();
    expect(await answer).toBe('echo:2');
  });

  test('to the client: what is asked arrives, and its answer only when it is healed', async () => {
    const { proxy, dial, ask, heard } = await openLine();
    const socket = dial();
    await ask(socket, '1');
    const heal = proxy.inject({ kind: 'stall', way: 'to-client' });
    let answer: string | null = null;
    const answered = ask(socket, '2').then((text) => (answer = text));
    await aWhile();
    expect([heard(), answer]).toEqual(['12', null]);
    heal();
    expect(await answered).toBe('echo:2');
  });
});

describe('swallow', () => {
  test('accepts and never answers, and what lost a byte ends when it is healed', async () => {
    const { proxy, dial, ask, heard } = await openLine();
    const idle = dial();
    await ask(idle, '1');
    const busy = dial();
    await ask(busy, '2');
    const heal = proxy.inject({ kind: 'swallow' });
    const late = dial();
    await once(late, 'connect');
    const answers = [ask(busy, 'lost'), ask(late, 'lost')];
    await aWhile();
    expect(heard()).toBe('12');
    heal();
    expect(await Promise.all(answers)).toEqual(['closed', 'closed']);
    expect(await ask(idle, '3')).toBe('echo:3');
  });
});

describe('lose-replies', () => {
  test('the server has heard all of it, and its answer is lost with the connection', async () => {
    const { proxy, dial, ask, heard } = await openLine();
    const heal = proxy.inject({ kind: 'lose-replies', share: 1, of: /confirm/ });
    const socket = dial();
    expect(await ask(socket, 'decline;')).toBe('echo:decline;');
    expect(await ask(socket, 'confirm;')).toBe('closed');
    expect(heard()).toBe('decline;confirm;');
    expect(proxy.counts.repliesLost).toBe(1);
    heal();
    expect(await ask(dial(), 'confirm;')).toBe('echo:confirm;');
  });
});

describe('duplicate', () => {
  const request = 'POST /v1/rides HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}';

  test('a whole request arrives twice, and is answered once', async () => {
    const { proxy, dial, ask, heard } = await openLine();
    proxy.inject({ kind: 'duplicate', share: 1, afterMs: 1 });
    const socket = dial();
    expect(await ask(socket, request)).toBe(`echo:${request}`);
    let more = '';
    socket.on('data', (chunk: Buffer) => (more += chunk.toString()));
    while (heard().length < 2 * request.length) await aWhile();
    expect(heard()).toBe(request + request);
    expect(more).toBe('');
  });

  test.each([
    ['half a request', request.slice(0, -1)],
    ['a stream that takes over the connection', request.replace('Host', 'Upgrade: websocket\r\nHost')],
    ['what isn’t HTTP', 'Q\0\0\0\x0dselect 1\0'],
  ])('%s doesn’t', async (_what, text) => {
    const { proxy, dial, ask } = await openLine();
    proxy.inject({ kind: 'duplicate', share: 1, afterMs: 1 });
    await ask(dial(), text);
    expect(proxy.counts.duplicated).toBe(0);
  });
});

describe('delay and slow', () => {
  test('a delay holds for each way', async () => {
    const { proxy, dial, ask } = await openLine();
    const socket = dial();
    await ask(socket, '1');
    proxy.inject({ kind: 'delay', ms: 40, jitterMs: 0 });
    const startedAtMs = performance.now();
    expect(await ask(socket, '2')).toBe('echo:2');
    expect(performance.now() - startedAtMs).toBeGreaterThanOrEqual(78);
  });

  test('a slow line takes as long as its bytes', async () => {
    const { proxy, dial, ask } = await openLine();
    const socket = dial();
    await ask(socket, '1');
    proxy.inject({ kind: 'slow', bytesPerS: 10_000 });
    const startedAtMs = performance.now();
    await ask(socket, 'x'.repeat(1_000));
    expect(performance.now() - startedAtMs).toBeGreaterThanOrEqual(195);
  });
});

test('rules hold side by side, each until it is healed', async () => {
  const { proxy, dial, ask } = await openLine();
  const healStall = proxy.inject({ kind: 'stall', way: 'both' });
  const healLoss = proxy.inject({ kind: 'lose-replies', share: 1 });
  const answer = ask(dial(), '1');
  healStall();
  expect(await answer).toBe('closed');
  healLoss();
  expect(await ask(dial(), '2')).toBe('echo:2');
});
