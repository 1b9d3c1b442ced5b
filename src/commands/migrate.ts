/** `cabrank migrate`: brings the database of DATABASE_URL to what this version needs. */
import postgres from '../database/postgres.ts';
import { migrateWhenUp } from './reach.ts';
import { readOptions, UsageError } from './usage.ts';

const CONNECT_DEADLINE_S = 10;

const help = `
cabrank migrate [options]       migrates the database of DATABASE_URL (serve does so itself)

  --restored     its files were put back from a snapshot: begin a new epoch, so that no fence is handed out twice.
                 With the service stopped. A promoted replica, a restore to a point in time and a dump that is read
                 into another cluster are noticed without it.
`;

export async function migrateCommand(args: string[]): Promise<number> {
  const flags = readOptions(args, { restored: { type: 'boolean' } }, help);
  if (flags === null) return 0;
  const url = process.env['DATABASE_URL'];
  if (!url) throw new UsageError('DATABASE_URL is needed');
  await migrateWhenUp(url, (text) => console.error(text));
  console.log('migrated');
  if (flags.restored === true) console.log(`epoch ${await openEpoch(url)} begins`);
  return 0;
}

async function openEpoch(url: string): Promise<number> {
  const sql = postgres(url, {
    max: 1,
    connect_timeout: CONNECT_DEADLINE_S,
    connection: { search_path: 'public, leasing' },
  });
  try {
    // The epoch of these files so far was perhaps never written: it has to be there to be left.
    await sql`select fence_floor()`;
    const [row] = await sql<{ epoch: number }[]>`
      select open_epoch(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), true) as epoch`;
    return row!.epoch;
  } finally {
    await sql.end({ timeout: 2 });
  }
}
