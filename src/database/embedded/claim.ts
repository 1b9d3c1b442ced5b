/** One owner at a time: how a process claims a home, and tells whether another one that did is alive. */
import { createHash, randomBytes, randomInt } from 'node:crypto';
import * as fs from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { EmbeddedDatabaseError } from './errors.ts';
import type { Home } from './home.ts';
import { run } from './programs.ts';

const CLAIM_ATTEMPTS = 3;

/**
 * Claims the home for this process and returns the release.
 *
 * Announce, then look: each process puts down a file whose name says who it is (process id, a hash of its start time,
 * a random part) and then looks for others. A file of a dead process is removed by anybody at any time: names are never
 * reused, so that can't hit a live one, which is what goes wrong when a single lock file is broken. Of two that look at
 * the same moment both may step back, but never both go on; they try again after unequal pauses. PostgreSQL's own lock
 * on its data stands behind this; the claim is there to tell a live owner from a server that a killed one left.
 */
export async function claimHome(home: Home): Promise<() => Promise<void>> {
  const start = await startOf(process.pid);
  if (start === undefined)
    throw new EmbeddedDatabaseError('data_dir_unusable', "can't look at processes: is /proc there?");
  const mine = `holder-${process.pid}-${start}-${randomBytes(4).toString('hex')}`;
  const file = join(home.path, mine);
  const release = (): Promise<void> => fs.rm(file, { force: true });
  let holder: number | undefined;
  for (let attempt = 1; attempt <= CLAIM_ATTEMPTS; attempt++) {
    await fs.writeFile(file, '', { flag: 'wx', mode: 0o600 });
    holder = await findOtherHolder(home.path, mine);
    if (holder === undefined) return release;
    await release();
    if (attempt < CLAIM_ATTEMPTS) await delay(randomInt(50, 250));
  }
  const message = `process ${holder} already runs a database on the data folder ${home.dataDir}`;
  throw new EmbeddedDatabaseError('data_dir_in_use', message);
}

async function findOtherHolder(path: string, mine: string): Promise<number | undefined> {
  for (const name of await fs.readdir(path)) {
    const match = /^holder-(\d+)-(\w+)-\w+$/.exec(name);
    if (match === null || name === mine) continue;
    const pid = Number(match[1]);
    if ((await startOf(pid)) === match[2]) return pid;
    await fs.rm(join(path, name), { force: true });
  }
  return undefined;
}

/** A mark of when a process started, so that a reused process id isn't mistaken for it; `undefined` if it's dead. */
async function startOf(pid: number): Promise<string | undefined> {
  try {
    const start =
      process.platform === 'linux' ? await readLinuxStart(pid) : await run('ps', ['-o', 'lstart=', '-p', `${pid}`]);
    return start && createHash('sha256').update(start).digest('hex').slice(0, 16);
  } catch {
    return undefined;
  }
}

/** From proc(5). A zombie is dead: a container whose first process doesn't reap keeps them for ever. */
async function readLinuxStart(pid: number): Promise<string | undefined> {
  const stat = await fs.readFile(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [state, ticksSinceBoot] = [fields[0], fields[19]];
  if (state === 'Z' || state === 'X') return undefined;
  const boot = await fs.readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '');
  return `${boot}${ticksSinceBoot}`;
}
