/** Servers of others, started for the benchmark where the machine has them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { stopChild } from '../member.ts';

export interface Server extends AsyncDisposable {
  readonly url: string;
}

const START_DEADLINE_MS = 15_000;

/** Redis with an append-only file that is written to disk at every answer, or with nothing on disk at all. */
export async function startRedis(isDurable: boolean): Promise<Server | null> {
  const port = await freePort();
  const keep = isDurable ? ['--appendonly', 'yes', '--appendfsync', 'always'] : ['--appendonly', 'no'];
  const options = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', ...keep];
  return start(port, `redis://127.0.0.1:${port}`, 'redis-server', (folder) => [...options, '--dir', folder]);
}

export async function startEtcd(): Promise<Server | null> {
  const port = await freePort();
  const peer = `http://127.0.0.1:${await freePort()}`;
  const url = `http://127.0.0.1:${port}`;
  const clients = ['--listen-client-urls', url, '--advertise-client-urls', url, '--log-level', 'error'];
  const peers = ['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer];
  const options = [...clients, ...peers, '--initial-cluster', `default=${peer}`];
  return start(port, url, 'etcd', (folder) => [...options, '--data-dir', folder]);
}

/** Null when the machine has no such command. */
async function start(
  port: number,
  url: string,
  command: string,
  argumentsIn: (folder: string) => string[],
): Promise<Server | null> {
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-bench-'));
  const child = spawn(command, argumentsIn(folder), { stdio: 'ignore', detached: true });
  const failed = once(child, 'error').then(() => false);
  const isUp = await Promise.race([failed, answers(port)]);
  const close = async (): Promise<void> => {
    if (child.pid !== undefined) await stopChild(child as ChildProcess);
    await rm(folder, { recursive: true, force: true });
  };
  if (isUp) return { url, [Symbol.asyncDispose]: close };
  await close();
  return null;
}

async function answers(port: number): Promise<boolean> {
  for (const endMs = performance.now() + START_DEADLINE_MS; performance.now() < endMs; await pause(50)) {
    const socket = connect(port, '127.0.0.1');
    const isOpen = await Promise.race([
      once(socket, 'connect').then(() => true),
      once(socket, 'error').then(() => false),
    ]).catch(() => false);
    socket.destroy();
    if (isOpen) return true;
  }
  return false;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}
