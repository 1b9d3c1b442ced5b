/** Programs that are run: as which user, with which environment, and for how long. */
import { execFile } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { Socket } from 'node:net';
import { promisify } from 'node:util';
import { EmbeddedDatabaseError, ignore } from './errors.ts';
import type { EmbeddedDatabaseErrorCode } from './errors.ts';

const PROBE_DEADLINE_MS = 10_000;

export interface OsUser {
  readonly uid: number;
  readonly gid: number;
}

const execFileAsync = promisify(execFile);

/** Its standard output. Rejects when it fails or overruns the deadline; the message ends with what it printed. */
export async function run(file: string, args: string[], user?: OsUser, timeoutMs = PROBE_DEADLINE_MS): Promise<string> {
  const env = serverEnv();
  const { stdout } = await execFileAsync(file, args, {
    ...user,
    cwd: '/',
    env,
    timeout: timeoutMs,
    killSignal: 'SIGKILL',
  });
  return stdout;
}

/** Only what finding programs and libraries takes (and faking clocks): our secrets are none of the server's business. */
export function serverEnv(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => /^(PATH$|LD_|DYLD_|FAKETIME|DONT_FAKE)/.test(name));
  return { ...Object.fromEntries(kept), LC_ALL: 'C' };
}

export async function spawned(child: ChildProcess, code: EmbeddedDatabaseErrorCode): Promise<void> {
  try {
    await once(child, 'spawn');
  } catch (cause) {
    throw new EmbeddedDatabaseError(code, `can't run ${child.spawnfile}: ${(cause as Error).message}`, { cause });
  }
}

/** An open pipe to a child would keep us alive for as long as the server runs. */
export function unrefPipe(pipe: unknown): void {
  if (pipe instanceof Socket) pipe.unref();
}

export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    ignore('ESRCH')(error);
  }
}
