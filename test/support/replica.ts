/** A replica of a test's own primary, made as PostgreSQL's manual makes one without `pg_basebackup`. */
import { execFile } from 'node:child_process';
import { chown, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type EmbeddedDatabase, startEmbedded } from '../../src/database/embedded.ts';
import { withConnection } from './database.ts';

const run = promisify(execFile);
const PROMOTION_DEADLINE_S = 30;
const DEADLINE_MS = 20_000;
const LOOK_MS = 10;

export interface Replica extends AsyncDisposable {
  readonly url: string;
  /** Waits until it has everything that the primary has written by now. */
  readonly catchUp: () => Promise<void>;
  /** It hears nothing more from the primary: what is written there from now on is lost in a failover. */
  readonly cutOff: () => Promise<void>;
  /** From now on it is the primary. */
  readonly promote: () => Promise<void>;
}

/** The primary has to have a data folder of its own, on this machine. */
export async function startReplica(primary: EmbeddedDatabase): Promise<Replica> {
  await using cleanup = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-replica-'));
  cleanup.defer(() => rm(folder, { recursive: true, force: true }));
  const from = join(primary.dataDir, 'postgres');
  const { uid, gid } = await stat(from);
  await chown(folder, uid, gid);
  const home = join(folder, 'postgres');
  const write = async (name: string, text: string): Promise<void> => {
    await writeFile(join(home, 'pgdata', name), text, { mode: 0o600 });
    await chown(join(home, 'pgdata', name), uid, gid);
  };
  await withConnection(primary.url, async (sql) => {
    await sql`select pg_backup_start('replica', true)`;
    await mkdir(home);
    await chown(home, uid, gid);
    await run('cp', ['-a', join(from, 'pgdata'), join(from, 'password'), home]);
    const [backup] = await sql<{ labelfile: string }[]>`select labelfile from pg_backup_stop(false)`;
    await write('backup_label', backup!.labelfile);
  });
  await write('standby.signal', '');
  await rm(join(home, 'pgdata', 'postmaster.pid'));
  const { hostname, port, username, password } = new URL(primary.url);
  const server = cleanup.use(
    await startEmbedded({
      dataDir: folder,
      settings: { primary_conninfo: `host=${hostname} port=${port} user=${username} password=${password}` },
    }),
  );
  const running = cleanup.move();
  return {
    url: server.url,
    catchUp: () => catchUp(primary.url, server.url),
    cutOff: () =>
      withConnection(server.url, async (sql) => {
        await sql`alter system set primary_conninfo = ''`;
        await sql`select pg_reload_conf()`;
        await untilTrue(async () => (await sql`select from pg_stat_wal_receiver`).length === 0);
      }),
    promote: () => withConnection(server.url, (sql) => sql`select pg_promote(true, ${PROMOTION_DEADLINE_S})`),
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

async function catchUp(primaryUrl: string, replicaUrl: string): Promise<void> {
  let written = '';
  await withConnection(primaryUrl, async (sql) => {
    const [row] = await sql<{ lsn: string }[]>`select pg_current_wal_flush_lsn()::text as lsn`;
    written = row!.lsn;
  });
  await withConnection(replicaUrl, (sql) =>
    untilTrue(async () => {
      const [row] = await sql<{ there: boolean }[]>`select pg_last_wal_replay_lsn() >= ${written}::pg_lsn as there`;
      return row!.there;
    }),
  );
}

/** PostgreSQL tells nobody: it has to be asked. */
async function untilTrue(isSo: () => Promise<boolean>): Promise<void> {
  for (let waitedMs = 0; waitedMs < DEADLINE_MS; waitedMs += LOOK_MS) {
    if (await isSo()) return;
    await delay(LOOK_MS);
  }
  throw new Error('it never came to be');
}
