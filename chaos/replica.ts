/** A replica of a primary that this process started, made as PostgreSQL's manual makes one without `pg_basebackup`. */
import { execFile } from 'node:child_process';
import { chown, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { type EmbeddedDatabase, startEmbedded } from '../src/database/embedded.ts';

const run = promisify(execFile);
const CONNECT_DEADLINE_MS = 10_000;
const PROMOTION_DEADLINE_S = 30;
const DEADLINE_MS = 20_000;
const LOOK_MS = 10;

export interface Replica extends AsyncDisposable {
  readonly database: EmbeddedDatabase;
  /** Waits until it has everything that the primary has written by now. */
  readonly catchUp: () => Promise<void>;
  /** From now on the primary acknowledges nothing that isn't on this replica's disk. */
  readonly becomeSynchronous: () => Promise<void>;
  /** It hears nothing more from the primary: what is written there from now on is lost in a failover. */
  readonly cutOff: () => Promise<void>;
  /** From now on it is the primary. */
  readonly promote: () => Promise<void>;
}

/** The primary has to have a data folder of its own, on this machine; it may be at work meanwhile. */
export async function startReplica(primary: EmbeddedDatabase): Promise<Replica> {
  await using cleanup = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-replica-'));
  cleanup.defer(() => rm(folder, { recursive: true, force: true }));
  await copyCluster(primary, folder);
  const { hostname, port, username, password } = new URL(primary.url);
  const database = cleanup.use(
    await startEmbedded({
      dataDir: folder,
      settings: { primary_conninfo: `host=${hostname} port=${port} user=${username} password=${password}` },
    }),
  );
  const running = cleanup.move();
  return {
    database,
    catchUp: () => catchUp(primary.url, database.url),
    becomeSynchronous: () =>
      withClient(primary.url, async (client) => {
        await client.query(`alter system set synchronous_standby_names = '*'`);
        await client.query('select pg_reload_conf()');
        await untilSome(client, `select from pg_stat_replication where sync_state = 'sync'`);
      }),
    cutOff: () =>
      withClient(database.url, async (client) => {
        await client.query(`alter system set primary_conninfo = ''`);
        await client.query('select pg_reload_conf()');
        await untilSome(client, 'select where not exists (select from pg_stat_wal_receiver)');
      }),
    promote: () =>
      withClient(database.url, async (client) => {
        const { rows } = await client.query<{ done: boolean }>('select pg_promote(true, $1) as done', [
          PROMOTION_DEADLINE_S,
        ]);
        if (!rows[0]!.done) throw new Error(`the replica wasn't promoted within ${PROMOTION_DEADLINE_S} s`);
      }),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** All files belong to whom the primary's belong to. */
async function copyCluster(primary: EmbeddedDatabase, folder: string): Promise<void> {
  const from = join(primary.dataDir, 'postgres');
  const home = join(folder, 'postgres');
  const { uid, gid } = await stat(from);
  const write = async (name: string, text: string): Promise<void> => {
    await writeFile(join(home, 'pgdata', name), text, { mode: 0o600 });
    await chown(join(home, 'pgdata', name), uid, gid);
  };
  await chown(folder, uid, gid);
  await mkdir(home);
  await chown(home, uid, gid);
  await withClient(primary.url, async (client) => {
    await client.query(`select pg_backup_start('replica', true)`);
    await run('cp', ['-a', join(from, 'pgdata'), join(from, 'password'), home]).catch(unlessOnlyVanished);
    const { rows } = await client.query<{ labelfile: string }>('select labelfile from pg_backup_stop(false)');
    await write('backup_label', rows[0]!.labelfile);
  });
  await write('standby.signal', '');
  await rm(join(home, 'pgdata', 'postmaster.pid'));
}

/** A file that went while a server at work was copied isn't needed: its log says that it went. */
function unlessOnlyVanished(error: Error & { readonly stderr?: string }): void {
  const lines = (error.stderr ?? '').trim().split('\n');
  if (!lines.every((line) => line.endsWith('No such file or directory'))) throw error;
}

async function catchUp(primaryUrl: string, replicaUrl: string): Promise<void> {
  let written = '';
  await withClient(primaryUrl, async (client) => {
    const { rows } = await client.query<{ lsn: string }>('select pg_current_wal_flush_lsn()::text as lsn');
    written = rows[0]!.lsn;
  });
  await withClient(replicaUrl, (client) =>
    untilSome(client, `select where pg_last_wal_replay_lsn() >= '${written}'::pg_lsn`),
  );
}

async function withClient(url: string, work: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: CONNECT_DEADLINE_MS });
  // A server that goes away is told by the query under way.
  client.on('error', () => {});
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

/** PostgreSQL tells nobody: it has to be asked. */
async function untilSome(client: pg.Client, query: string): Promise<void> {
  for (let waitedMs = 0; waitedMs < DEADLINE_MS; waitedMs += LOOK_MS) {
    const { rowCount } = await client.query(query);
    if (rowCount! > 0) return;
    await delay(LOOK_MS);
  }
  throw new Error(`it never came to be: ${query}`);
}
