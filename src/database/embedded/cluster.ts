/** The cluster: how it is made, and the URL of its superuser. */
import { randomBytes } from 'node:crypto';
import * as fs from 'node:fs/promises';
import { join } from 'node:path';
import { EmbeddedDatabaseError } from './errors.ts';
import { removeAsOwner, syncFolder, writeOwned } from './files.ts';
import type { Home } from './home.ts';
import { run } from './programs.ts';
import { SETTINGS_FILE } from './settings.ts';

const SUPERUSER = 'cabrank';
const INITDB_DEADLINE_MS = 120_000;

/** Made aside and renamed when whole, so that a start that was killed half-way leaves nothing to trip over. */
export async function initialise(home: Home, bin: string): Promise<void> {
  const draft = `${home.pgdata}.new`;
  const passwordFile = join(home.path, 'password');
  await removeAsOwner(draft, home.user);
  await writeOwned(passwordFile, randomBytes(24).toString('base64url'), home.user);
  const flags = [
    `--pgdata=${draft}`,
    `--username=${SUPERUSER}`,
    `--pwfile=${passwordFile}`,
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    '--locale=C', // messages and sort order don't depend on the machine
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8', // yet upper() and the like know more than ASCII
    ...(home.temporary ? ['--no-sync'] : []),
  ];
  try {
    await run(join(bin, 'initdb'), flags, home.user, INITDB_DEADLINE_MS);
  } catch (cause) {
    throw new EmbeddedDatabaseError('init_failed', `can't make a database: ${(cause as Error).message}`, { cause });
  }
  const main = join(draft, 'postgresql.conf');
  await writeOwned(main, `${await fs.readFile(main, 'utf8')}\ninclude_if_exists '${SETTINGS_FILE}'\n`, home.user);
  await fs.rename(draft, home.pgdata);
  await syncFolder(home.path);
}

export async function urlOf(homePath: string, port: number): Promise<string> {
  try {
    const password = await fs.readFile(join(homePath, 'password'), 'utf8');
    return `postgres://${SUPERUSER}:${password.trim()}@127.0.0.1:${port}/postgres`;
  } catch (cause) {
    const message = `can't read the database's password: ${(cause as Error).message}`;
    throw new EmbeddedDatabaseError('data_dir_unusable', message, { cause });
  }
}
