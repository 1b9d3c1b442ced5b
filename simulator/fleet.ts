/** The service's processes, as `demo` starts and ends them: through the command line, as anybody would. */
import { fork, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { KILLABLE, type Killable } from './options.ts';
import type { Verification } from './report.ts';

const CABRANK = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const START_DEADLINE_MS = 120_000;
const STOP_DEADLINE_MS = 15_000;
const VERIFY_DEADLINE_MS = 600_000;

export interface Member {
  readonly role: Killable | 'service' | 'database';
  readonly process: ChildProcess;
  readonly url: string | null;
}

export interface Fleet extends AsyncDisposable {
  /** Where riders and operators connect. */
  readonly urls: readonly string[];
  /** Where drivers connect. */
  readonly socketUrls: readonly string[];
  readonly databaseUrl: string;
  readonly authSecret: string;
  readonly members: readonly Member[];
}

interface Ready {
  readonly ready: { readonly url?: string; readonly databaseUrl: string; readonly authSecret?: string };
}

export async function startFleet(options: {
  readonly split: boolean;
  readonly matcherFaultRate: number;
}): Promise<Fleet> {
  const members: Member[] = [];
  const stop = async (): Promise<void> => {
    // The database last, so that everything else can finish what it has in hand.
    await Promise.all(members.filter(({ role }) => role !== 'database').map(stopMember));
    await Promise.all(members.filter(({ role }) => role === 'database').map(stopMember));
  };
  try {
    const env = { LOG_LEVEL: 'error', PORT: '0', MATCHER_FAULT_RATE: String(options.matcherFaultRate), ...process.env };
    const home = options.split ? await startSplit(members, env) : await startWhole(members, env);
    const urlsOf = (wanted: Member['role']): string[] =>
      members.flatMap(({ role, url }) => (url !== null && (role === wanted || role === 'service') ? [url] : []));
    return { ...home, urls: urlsOf('api'), socketUrls: urlsOf('gateway'), members, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

type Home = Pick<Fleet, 'databaseUrl' | 'authSecret'>;

async function startWhole(members: Member[], env: NodeJS.ProcessEnv): Promise<Home> {
  const args = env['DATABASE_URL'] ? [] : ['--temporary'];
  const ready = await startMember(members, 'service', ['serve', ...args], env);
  return { databaseUrl: ready.databaseUrl, authSecret: ready.authSecret! };
}

/** Two processes of each role. */
async function startSplit(members: Member[], env: NodeJS.ProcessEnv): Promise<Home> {
  const authSecret = env['AUTH_SECRET'] ?? randomBytes(32).toString('base64url');
  const databaseUrl =
    env['DATABASE_URL'] ?? (await startMember(members, 'database', ['database', '--temporary'], env)).databaseUrl;
  const shared = { ...env, DATABASE_URL: databaseUrl, AUTH_SECRET: authSecret };
  const roles = KILLABLE.flatMap((role) => [role, role]);
  // The first migrates the queue's tables; the others find them there.
  for (const role of roles) await startMember(members, role, ['serve', '--roles', role], shared);
  return { databaseUrl, authSecret };
}

async function startMember(
  members: Member[],
  role: Member['role'],
  args: string[],
  env: NodeJS.ProcessEnv,
): Promise<Ready['ready']> {
  const child = fork(CABRANK, args, { env, stdio: ['ignore', 'pipe', 'pipe', 'ipc'], detached: true });
  // Logs go where the report doesn't.
  for (const output of [child.stdout, child.stderr]) output?.on('data', (chunk: Buffer) => process.stderr.write(chunk));
  const failed = once(child, 'exit').then(([code]) => {
    throw new Error(`the ${role} ended at its start (${code}): what it said is above`);
  });
  const timeout = AbortSignal.timeout(START_DEADLINE_MS);
  const started = once(child, 'message', { signal: timeout }).then(([message]) => (message as Ready).ready);
  const ready = await Promise.race([started, failed]).catch((error: unknown) => {
    child.kill('SIGKILL');
    throw error;
  });
  failed.catch(() => {});
  child.once('exit', (code, signal) => {
    if (signal !== null || code !== 0) console.error(`a ${role} is gone: ${signal ?? `exit code ${code}`}`);
  });
  members.push({ role, process: child, url: ready.url ?? null });
  return ready;
}

async function stopMember({ process: child }: Member): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGTERM');
  const overdue = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
  await gone;
  clearTimeout(overdue);
}

/** Kills -9 one living process of the role; returns its pid, or null when none is left. */
export function killOneOf(members: readonly Member[], role: Killable): number | null {
  const victim = members.find(
    (member) => member.role === role && member.process.exitCode === null && member.process.signalCode === null,
  );
  victim?.process.kill('SIGKILL');
  return victim?.process.pid ?? null;
}

/** `cabrank verify --json`: its own process, so that the checks share nothing with what they check. */
export async function runVerify(databaseUrl: string | null, dataDir: string): Promise<Verification> {
  const where = databaseUrl === null ? ['--data-dir', dataDir] : [];
  const child = spawn(process.execPath, [CABRANK, 'verify', '--json', ...where], {
    env: { ...process.env, ...(databaseUrl === null ? {} : { DATABASE_URL: databaseUrl }) },
    stdio: ['ignore', 'pipe', 'inherit'],
    signal: AbortSignal.timeout(VERIFY_DEADLINE_MS),
  });
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(child, 'close');
  const text = Buffer.concat(chunks).toString();
  if (text === '') throw new Error('verify said nothing');
  return JSON.parse(text) as Verification;
}
