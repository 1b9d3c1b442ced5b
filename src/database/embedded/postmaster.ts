/** The postmaster as its cluster's files tell of it, also one that a killed process left; and the steps that end one. */
import * as fs from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EmbeddedDatabaseError, ignore } from './errors.ts';
import { run, sendSignal } from './programs.ts';

export const POLL_MS = 20;

/** PostgreSQL's fast shutdown, then its immediate one (which loses nothing: the log is replayed), then force. */
export const SHUTDOWN_STEPS: readonly { signal: NodeJS.Signals; waitMs: number }[] = [
  { signal: 'SIGINT', waitMs: 30_000 },
  { signal: 'SIGQUIT', waitMs: 10_000 },
  { signal: 'SIGKILL', waitMs: 5_000 },
];

interface Postmaster {
  readonly pid: number;
  readonly port: number;
  readonly ready: boolean;
}

/** postmaster.pid: the process on line 1, the port on line 4, the state on line 8. */
export async function readPostmaster(pgdata: string): Promise<Postmaster | undefined> {
  const text = await fs.readFile(join(pgdata, 'postmaster.pid'), 'utf8').catch(ignore('ENOENT'));
  const lines = (text ?? '').split('\n');
  const pid = Number(lines[0]);
  if (!(pid > 0)) return undefined;
  return { pid, port: Number(lines[3]), ready: lines[7]?.trim() === 'ready' };
}

/** Whether a process is the server of this cluster: process ids in stale files get reused. */
export async function serves(pid: number, pgdata: string): Promise<boolean> {
  try {
    const command =
      process.platform === 'linux'
        ? (await fs.readFile(`/proc/${pid}/cmdline`, 'utf8')).replaceAll('\0', ' ')
        : await run('ps', ['-ww', '-o', 'command=', '-p', `${pid}`]);
    return command.includes(`postgres -D ${pgdata} `);
  } catch {
    return false;
  }
}

/** Ends the server that a killed process left on the cluster. Returns the process id in a stale postmaster.pid. */
export async function shutDownOrphan(pgdata: string): Promise<number | undefined> {
  const left = await readPostmaster(pgdata);
  if (left === undefined || !(await serves(left.pid, pgdata))) return left?.pid;
  for (const { signal, waitMs } of SHUTDOWN_STEPS) {
    sendSignal(left.pid, signal);
    const endMs = performance.now() + waitMs;
    while (performance.now() < endMs) {
      if (!(await serves(left.pid, pgdata))) return (await readPostmaster(pgdata))?.pid;
      await delay(POLL_MS);
    }
  }
  const message = `a server left by a killed process (${left.pid}) holds ${pgdata} and doesn't end`;
  throw new EmbeddedDatabaseError('orphan_not_stopped', message);
}
