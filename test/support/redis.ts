/** A Redis server of a test's own, from the `redis-server` on the PATH. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';

const START_ATTEMPTS = 5;
const READY_DEADLINE_MS = 10_000;
const STOP_DEADLINE_MS = 5_000;

export interface TestRedis extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
  /** Ends the server, also one that was killed or stopped before. Repeated calls wait for the same end. */
  stop(): Promise<void>;
}

export const isRedisInstalled = (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
  try {
    accessSync(join(folder, 'redis-server'), constants.X_OK);
    return true;
  } catch {
    return false;
  }
});

/**
 * Starts a Redis server on a free port of 127.0.0.1, in memory alone. It ends with this process, however that ends:
 *
 *     await using redis = await startRedis();
 */
export async function startRedis(): Promise<TestRedis> {
  if (!isRedisInstalled) throw new Error('redis-server is not on the PATH (Debian: apt-get install redis-server)');
  const problems: string[] = [];
  for (let attempt = 1; attempt <= START_ATTEMPTS; attempt += 1) {
    const port = await findFreePort();
    const server = await launch(port);
    if (typeof server !== 'string') return running(server, port);
    problems.push(server);
  }
  throw new Error(`redis-server didn't start:\n${problems.join('\n')}`);
}

/** The server once it accepts connections, or what it said before it ended: the port may have been snatched away. */
async function launch(port: number): Promise<ChildProcess | string> {
  // hz: at its default of 10, delayed jobs come up to 90 ms late. save: nothing is written to the disk.
  const settings = ['--bind', '127.0.0.1', '--port', `${port}`, '--hz', '100', '--save', '', '--dir', tmpdir()];
  const child = spawn('redis-server', settings, { stdio: ['ignore', 'pipe', 'ignore'] });
  const said: string[] = [];
  const ready = new Promise<boolean>((resolve) => {
    createInterface({ input: child.stdout })
      .on('line', (line) => {
        said.push(line);
        if (line.includes('Ready to accept connections')) resolve(true);
      })
      .once('close', () => resolve(false));
    child.once('error', (error) => {
      said.push(error.message);
      resolve(false);
    });
  });
  if (await Promise.race([ready, delay(READY_DEADLINE_MS, false, { ref: false })])) return child;
  child.kill('SIGKILL');
  return said.slice(-3).join('\n');
}

function running(child: ChildProcess, port: number): TestRedis {
  const pid = child.pid!;
  const exited = hasExited(child) ? Promise.resolve() : once(child, 'exit').then(() => {});
  const guard = startGuard(pid);
  let stopping: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopping ??= end(child, exited).finally(() => guard.kill('SIGKILL')));
  return { url: `redis://127.0.0.1:${port}`, pid, stop, [Symbol.asyncDispose]: stop };
}

async function end(child: ChildProcess, exited: Promise<void>): Promise<void> {
  if (hasExited(child)) return;
  child.kill('SIGTERM');
  // Nothing in it is worth a clean shutdown, and a server under SIGSTOP wouldn't come to one.
  const overdue = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
  await exited;
  clearTimeout(overdue);
}

const hasExited = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode !== null || signalCode !== null;

/** A shell that waits for the end of a pipe, which comes when this process is gone, and then ends the server. */
function startGuard(pid: number): ChildProcess {
  const script = 'read -r _; kill -9 "$1" 2>/dev/null';
  const guard = spawn('/bin/sh', ['-c', script, 'redis-guard', `${pid}`], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  guard.unref();
  return guard;
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
