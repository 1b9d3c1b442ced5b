/** A process of Cabrank, started through the command line as anybody would, and ended with the benchmark. */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { connectDatabase } from '../src/database/connection.ts';

const CABRANK = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const START_DEADLINE_MS = 120_000;
const STOP_DEADLINE_MS = 15_000;
const VERIFY_DEADLINE_MS = 600_000;

export interface Member extends AsyncDisposable {
  readonly pid: number;
  readonly url: string;
  readonly databaseUrl: string;
  readonly authSecret: string;
}

/** `cabrank ARGS…` until it says that it is ready. Rejects when it ends before. */
export async function startMember(
  args: readonly string[],
  settings: Readonly<Record<string, string>> = {},
): Promise<Member> {
  const env = { ...process.env, LOG_LEVEL: 'error', PORT: '0', ...settings };
  // Of its own process group: a Ctrl-C at the terminal is ours to pass on, in order.
  const child = fork(CABRANK, args, { env, stdio: ['ignore', 'ignore', 'inherit', 'ipc'], detached: true });
  const failed = once(child, 'exit').then(([code]) => {
    throw new Error(`cabrank ${args.join(' ')} ended at its start (${code})`);
  });
  failed.catch(() => {});
  const started = once(child, 'message', { signal: AbortSignal.timeout(START_DEADLINE_MS) });
  try {
    const [message] = (await Promise.race([started, failed])) as [unknown];
    const { ready } = message as { ready: Omit<Member, 'pid'> };
    return { ...ready, pid: child.pid!, [Symbol.asyncDispose]: () => stopChild(child) };
  } catch (error) {
    await stopChild(child);
    throw error;
  }
}

/** Of 16 MB each: as much as `min_wal_size` keeps. */
const WAL_FILES = 30;

/**
 * Makes the WAL files that a server writes over once it has run for a while. A new one makes each when it comes to it, and
 * everybody who commits waits for that.
 */
export async function fillWal(databaseUrl: string): Promise<void> {
  await using database = connectDatabase(databaseUrl, { coldConnections: 1 });
  for (let file = 0; file < WAL_FILES; file++)
    await database.cold`select pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()`;
  await database.cold`checkpoint`;
}

/** Services on one database that none of them owns, so that they tell each other what drivers shall hear. */
export async function startTogether(
  open: AsyncDisposableStack,
  roles: readonly string[],
): Promise<{ readonly database: Member; readonly services: readonly Member[] }> {
  const database = open.use(await startMember(['database', '--temporary']));
  await fillWal(database.databaseUrl);
  const settings = { DATABASE_URL: database.databaseUrl, AUTH_SECRET: randomBytes(32).toString('hex') };
  const services: Member[] = [];
  for (const role of roles) {
    const args = role === '' ? ['serve'] : ['serve', '--roles', role];
    const service = open.use(await startMember(args, settings));
    services.push({ ...service, authSecret: settings.AUTH_SECRET, databaseUrl: database.databaseUrl });
  }
  return { database, services };
}

/** SIGTERM, and SIGKILL when that isn't heard. */
export async function stopChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGTERM');
  const overdue = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
  await gone;
  clearTimeout(overdue);
}

export interface Verified {
  readonly checked: number;
  readonly violations: number;
}

/** `cabrank verify`, in a process of its own; over as many connections as it takes by itself unless it is told. */
export async function verifyRecords(databaseUrl: string, connections?: number): Promise<Verified> {
  const over = connections === undefined ? [] : ['--connections', String(connections)];
  const child = spawn(process.execPath, [CABRANK, 'verify', '--json', ...over], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
    signal: AbortSignal.timeout(VERIFY_DEADLINE_MS),
  });
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(child, 'close');
  const { checked, violations } = JSON.parse(Buffer.concat(chunks).toString()) as Verified;
  return { checked, violations };
}
