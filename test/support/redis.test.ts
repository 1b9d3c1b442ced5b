import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createConnection } from 'node:net';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { expect, it, vi } from 'vitest';
import { describeWithRedis } from './describe-with-redis.ts';
import { startRedis } from './redis.ts';

const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

async function ping(url: string): Promise<string> {
  const socket = createConnection(Number(new URL(url).port), '127.0.0.1');
  socket.end('PING\r\n');
  const [answer] = await once(socket, 'data');
  return String(answer);
}

async function firstNumber(output: Readable): Promise<number> {
  for await (const line of createInterface({ input: output })) return Number(line);
  throw new Error('the process ended without a word');
}

describeWithRedis('a Redis server of a test', () => {
  it('answers at its address, and is gone when it is stopped, also twice', async () => {
    const redis = await startRedis();
    expect(await ping(redis.url)).toBe('+PONG\r\n');
    await Promise.all([redis.stop(), redis.stop()]);
    expect(isAlive(redis.pid)).toBe(false);
  });

  it('can be started many times at once', async () => {
    await using stack = new AsyncDisposableStack();
    const servers = await Promise.all(Array.from({ length: 4 }, startRedis));
    for (const server of servers) stack.use(server);
    expect(new Set(servers.map(({ url }) => url)).size).toBe(4);
  });

  it('can be stopped after it was killed', async () => {
    await using redis = await startRedis();
    process.kill(redis.pid, 'SIGKILL');
    await redis.stop();
    expect(isAlive(redis.pid)).toBe(false);
  });

  it('ends with its process, even if that is killed', async () => {
    const redis = import.meta.resolve('./redis.ts');
    const script = `const { startRedis } = await import(${JSON.stringify(redis)}); console.log((await startRedis()).pid); await new Promise(() => setInterval(() => {}, 1000));`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const pid = await firstNumber(child.stdout);
    expect(isAlive(pid)).toBe(true);
    child.kill('SIGKILL');
    await vi.waitFor(() => expect(isAlive(pid)).toBe(false), 5_000);
  });
});
