/** The home of the server: whose, and where. */
import * as fs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { EmbeddedDatabaseError, ignore } from './errors.ts';
import { exists, giveTo, syncFolder } from './files.ts';
import { run } from './programs.ts';
import type { OsUser } from './programs.ts';

/** Where root puts what the server's user can't reach. */
export const OUTSIDE = '/var/lib/cabrank';

export interface Home {
  readonly dataDir: string;
  readonly path: string;
  readonly pgdata: string;
  readonly temporary: boolean;
  /** Whom the server runs as, if not as ourselves. */
  readonly user: OsUser | undefined;
}

const isRoot = (): boolean => process.getuid?.() === 0;

export async function makeTemporaryHome(): Promise<Home> {
  const user = isRoot() ? await chooseUser() : undefined;
  for (const base of temporaryFolders()) {
    if (!(await canEnter(base, user))) continue;
    const dataDir = await fs.mkdtemp(join(await fs.realpath(base), 'cabrank-'));
    const path = join(dataDir, 'postgres');
    await fs.mkdir(path, { mode: 0o700 });
    for (const folder of [path, dataDir]) await giveTo(folder, user);
    return { dataDir, path, pgdata: join(path, 'pgdata'), temporary: true, user };
  }
  throw new EmbeddedDatabaseError('data_dir_unusable', `the database's user can't enter the folder ${tmpdir()}`);
}

/** Root's TMPDIR may be private to root (pam_tmpdir, macOS). */
const temporaryFolders = (): string[] => [...new Set([tmpdir(), '/tmp', '/var/tmp'])];

export async function openLastingHome(wanted: string): Promise<Home> {
  try {
    const made = await fs.mkdir(wanted, { recursive: true, mode: 0o700 });
    // Root's own umask may have hidden it; passing through is all that the server's user needs.
    if (made !== undefined && isRoot()) await fs.chmod(wanted, 0o711);
    const dataDir = await fs.realpath(wanted);
    const link = join(dataDir, 'postgres');
    if (!(await exists(link))) await makeLastingHome(dataDir, link);
    const path = await fs.realpath(link);
    const user = isRoot() ? await adopt(path) : undefined;
    if (!(await canEnter(path, user))) {
      throw new EmbeddedDatabaseError('data_dir_unusable', `the database's user can't enter its folder ${path}`);
    }
    return { dataDir, path, pgdata: join(path, 'pgdata'), temporary: false, user };
  } catch (error) {
    if (error instanceof EmbeddedDatabaseError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new EmbeddedDatabaseError('data_dir_unusable', `can't use the data folder ${wanted}: ${why}`, {
      cause: error,
    });
  }
}

/** Two processes may do this at once: whoever comes second finds the first one's home and uses it. */
async function makeLastingHome(dataDir: string, link: string): Promise<void> {
  const user = isRoot() ? await chooseUser(dataDir) : undefined;
  if (await canEnter(dataDir, user)) {
    await fs.mkdir(link, { mode: 0o700 }).catch(ignore('EEXIST'));
    return syncFolder(dataDir);
  }
  await makeOutside();
  const outside = await fs.mkdtemp(join(OUTSIDE, `${basename(dataDir)}-`));
  await giveTo(outside, user);
  await syncFolder(OUTSIDE);
  try {
    await fs.symlink(outside, link);
    await syncFolder(dataDir);
  } catch (error) {
    await fs.rm(outside, { recursive: true });
    ignore('EEXIST')(error);
  }
}

/** Open to pass through, whatever root's umask. */
export async function makeOutside(): Promise<void> {
  const made = await fs.mkdir(OUTSIDE, { recursive: true });
  if (made !== undefined) await fs.chmod(OUTSIDE, 0o711);
}

/** The user that a home belongs to; one still root's own (new, or left so by a crash) is given to a user first. */
async function adopt(path: string): Promise<OsUser> {
  const { uid, gid } = await fs.stat(path);
  if (uid !== 0) return { uid, gid };
  const user = await chooseUser(dirname(path));
  await giveTo(path, user);
  return user;
}

/** Only users of the system's user database qualify: initdb looks its user up. */
async function chooseUser(folder?: string): Promise<OsUser> {
  const owner = folder === undefined ? 0 : (await fs.stat(folder)).uid;
  for (const name of [owner === 0 ? [] : [String(owner)], 'postgres', 'nobody'].flat()) {
    const user = await lookUpUser(name);
    if (user !== undefined) return user;
  }
  const message = 'PostgreSQL refuses to run as root, and there is no user "postgres" or "nobody" to run it as';
  throw new EmbeddedDatabaseError('no_os_user', message);
}

async function lookUpUser(nameOrUid: string): Promise<OsUser | undefined> {
  try {
    const uid = Number((await run('id', ['-u', nameOrUid])).trim());
    const gid = Number((await run('id', ['-g', nameOrUid])).trim());
    return { uid, gid };
  } catch {
    return undefined;
  }
}

/** Tried, not computed from the modes on the way, which know nothing of access lists and mounts. */
async function canEnter(folder: string, user: OsUser | undefined): Promise<boolean> {
  try {
    await run('/bin/sh', ['-c', 'cd -- "$1"', 'sh', folder], user);
    return true;
  } catch (error) {
    // The shell's own refusal has a numeric code; anything else isn't about the folder.
    if (error instanceof Error && 'code' in error && typeof error.code === 'number') return false;
    const message = `can't run anything as the database's user: ${(error as Error).message}`;
    throw new EmbeddedDatabaseError('no_os_user', message, { cause: error });
  }
}
