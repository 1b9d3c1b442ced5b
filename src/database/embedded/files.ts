/** Files and folders that belong to the server's user, who isn't trusted when we are root. */
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs/promises';
import { ignore } from './errors.ts';
import { run } from './programs.ts';
import type { OsUser } from './programs.ts';

const REMOVE_DEADLINE_MS = 60_000;

/** Replaces a file in a folder that belongs to another user: never writes through a link planted there. */
export async function writeOwned(path: string, text: string, user: OsUser | undefined): Promise<void> {
  const draft = `${path}.${randomBytes(4).toString('hex')}`;
  const file = await fs.open(draft, 'wx', 0o600);
  try {
    await file.writeFile(text);
    if (user !== undefined) await file.chown(user.uid, user.gid);
    await file.sync();
  } finally {
    await file.close();
  }
  await fs.rename(draft, path);
}

/** Root removing a folder of somebody else's could be led astray by links put there meanwhile. */
export async function removeAsOwner(folder: string, user: OsUser | undefined): Promise<void> {
  try {
    await run('rm', ['-rf', '--', folder], user, REMOVE_DEADLINE_MS);
  } catch (error) {
    // Emptied, but above it the owner may not write.
    await fs.rmdir(folder).catch(() => Promise.reject(error));
  }
}

export async function giveTo(folder: string, user: OsUser | undefined): Promise<void> {
  if (user !== undefined) await fs.lchown(folder, user.uid, user.gid);
}

export async function syncFolder(folder: string): Promise<void> {
  const handle = await fs.open(folder);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function exists(path: string): Promise<boolean> {
  const stat = await fs.lstat(path).catch(ignore('ENOENT'));
  return stat !== undefined;
}
