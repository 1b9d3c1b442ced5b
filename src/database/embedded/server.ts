/** The server as a child of ours: started, watched until it is ready, and stopped. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EmbeddedDatabaseError } from './errors.ts';
import type { Guard } from './guard.ts';
import type { Home } from './home.ts';
import { canListen, findFreePort } from './ports.ts';
import { POLL_MS, readPostmaster, SHUTDOWN_STEPS } from './postmaster.ts';
import { sendSignal, serverEnv, spawned, unrefPipe } from './programs.ts';

/** Replaying the log after a crash takes its time, but reports at least every 10 s: silence is what ends a start. */
const START_SILENCE_MS = 30_000;
const START_DEADLINE_MS = 600_000;
/** 30 s of `RETRY_AFTER_CRASH_MS`: a backend finishes the statement it is at before it notices the crash. */
const START_ATTEMPTS = 60;
const RETRY_AFTER_CRASH_MS = 500;
const LOG_TAIL_CHARS = 16_384;

interface Server {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly port: number;
  readonly exited: Promise<void>;
  readonly log: LogTail;
}

interface StartPlan {
  readonly home: Home;
  readonly bin: string;
  readonly guard: Guard;
  readonly wantedPort: number | undefined;
  /** The process in the postmaster.pid of a server that crashed. */
  readonly left: number | undefined;
}

/** Tries again when a free port was snatched away, and while the last backends of a crashed server still end. */
export async function startServer(plan: StartPlan): Promise<Server> {
  for (let attempt = 1; ; attempt++) {
    const port = plan.wantedPort ?? (await findFreePort());
    if (!(await canListen(port))) throw portTaken(port);
    const server = await launch(plan, port);
    try {
      await untilReady(server, plan.home.pgdata);
      return server;
    } catch (error) {
      const snatched = !(await canListen(port));
      if (snatched && plan.wantedPort !== undefined) throw portTaken(port);
      // PostgreSQL ends with 1 when it refuses to start; whatever else happened won't go away by itself.
      const refused = server.process.exitCode === 1 && (snatched || plan.left !== undefined);
      if (attempt === START_ATTEMPTS || !refused) throw error;
      if (!snatched) await delay(RETRY_AFTER_CRASH_MS);
    }
  }
}

const portTaken = (port: number): EmbeddedDatabaseError =>
  new EmbeddedDatabaseError('port_taken', `somebody else listens on port ${port} of 127.0.0.1`);

async function launch({ home, bin, guard, left }: StartPlan, port: number): Promise<Server> {
  const options = [
    ['-D', home.pgdata],
    ['-p', `${port}`],
    ['-c', 'listen_addresses=127.0.0.1'],
    ['-c', 'unix_socket_directories='], // nothing outside the data folder to clean up, or to clash with another server
  ].flat();
  const child = spawn(join(bin, 'postgres'), options, {
    ...home.user,
    cwd: '/',
    // A session of its own: Ctrl-C at a terminal must reach us, so that we can drain, and not the server.
    detached: true,
    // A stale postmaster.pid may name a process that has nothing to do with PostgreSQL, which would refuse to start.
    // This makes it pass over that one process id, and still check that no backend of the old server is left.
    env: { ...serverEnv(), ...(left === undefined ? {} : { PG_GRANDPARENT_PID: `${left}` }) },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const log = tailLog(child);
  await spawned(child, 'start_failed');
  const pid = child.pid as number;
  guard.watch(pid);
  void exited.then(() => guard.forget(pid));
  child.unref();
  return { process: child, pid, port, exited, log };
}

async function untilReady(server: Server, pgdata: string): Promise<void> {
  const endMs = performance.now() + START_DEADLINE_MS;
  while (hasNotExited(server)) {
    const postmaster = await readPostmaster(pgdata);
    if (postmaster?.pid === server.pid && postmaster.ready) return;
    const nowMs = performance.now();
    if (nowMs > endMs || nowMs - server.log.lastMs() > START_SILENCE_MS) {
      await stopServer(server);
      throw new EmbeddedDatabaseError(
        'start_failed',
        `the database wasn't ready in time. Its log:\n${server.log.text()}`,
      );
    }
    await delay(POLL_MS);
  }
  await within(server.log.ended, 1_000);
  throw new EmbeddedDatabaseError('start_failed', `the database didn't start. Its log:\n${server.log.text()}`);
}

const hasNotExited = ({ process: child }: Server): boolean => child.exitCode === null && child.signalCode === null;

export async function stopServer(server: Server): Promise<void> {
  for (const { signal, waitMs } of SHUTDOWN_STEPS) {
    if (!hasNotExited(server)) return;
    sendSignal(server.pid, signal);
    if (await within(server.exited, waitMs)) return;
  }
  throw new EmbeddedDatabaseError('stop_failed', `the database (process ${server.pid}) doesn't end`);
}

interface LogTail {
  readonly ended: Promise<void>;
  text(): string;
  /** When the server last said anything, on the clock of `performance.now()`. */
  lastMs(): number;
}

function tailLog(child: ChildProcess): LogTail {
  let text = '';
  let lastMs = performance.now();
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => {
    text = (text + chunk).slice(-LOG_TAIL_CHARS);
    lastMs = performance.now();
  });
  unrefPipe(child.stderr);
  return { ended, text: () => text, lastMs: () => lastMs };
}

/** Whether the event came within the time. Keeps the process alive meanwhile. */
async function within(event: Promise<void>, waitMs: number): Promise<boolean> {
  const timer = new AbortController();
  const timeout = delay(waitMs, false, { signal: timer.signal }).catch(() => false);
  try {
    return await Promise.race([event.then(() => true), timeout]);
  } finally {
    timer.abort();
  }
}
