/** Brings a database to what this version of the code needs: tables first, then the functions of `src/leasing/`, `src/resource-leases/` and `src/outbox/`. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Sql } from 'postgres';
import { drizzle, migrate as migrateTables } from './drizzle.ts';
import postgres from './postgres.ts';

const migrationsFolder = fileURLToPath(new URL('../../migrations', import.meta.url));
const functionFolders = ['leasing', 'resource-leases', 'outbox'].map((name) => new URL(`../${name}/`, import.meta.url));

/** Any number that nothing else on this database locks by: two starting processes migrate one after the other. */
const MIGRATION_LOCK = 7_231_903_001;
const LOCK_TIMEOUT_MS = 30_000;

/**
 * Migrates the database at `url`; does nothing when it is up to date. The functions have no history of their own:
 * their files are what holds, and a changed file replaces its function. Returns the server's major version.
 */
export async function migrate(url: string): Promise<number> {
  const sql = postgres(url, {
    max: 1,
    onnotice: () => {},
    connection: { application_name: 'cabrank migrate', lock_timeout: LOCK_TIMEOUT_MS },
  });
  try {
    await sql`select pg_advisory_lock(${MIGRATION_LOCK})`;
    await migrateTables(drizzle(sql), { migrationsFolder });
    await replaceFunctions(sql);
    const [server] = await sql<{ version: number }[]>`select current_setting('server_version_num')::int as version`;
    return Math.floor(server!.version / 10_000);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** The functions have a schema of their own, so that a change of them replaces all of it at once. */
async function replaceFunctions(sql: Sql): Promise<void> {
  const source = functionsSource();
  const hash = createHash('sha256').update(source).digest('hex');
  const [installed] = await sql<{ hash: string | null }[]>`
    select obj_description(to_regnamespace('leasing'), 'pg_namespace') as hash`;
  if (installed?.hash === hash) return;
  await sql.begin(async (transaction) => {
    await transaction.unsafe(`
      drop schema if exists leasing cascade;
      create schema leasing;
      comment on schema leasing is '${hash}';
      set local search_path to leasing, public;
      set local check_function_bodies = off;
      ${source}`);
  });
}

/** Every function of the engine, as one script. Bodies are checked at the first call, so their order doesn't matter. */
function functionsSource(): string {
  return functionFolders
    .flatMap((folder) =>
      readdirSync(folder)
        .filter((name) => name.endsWith('.sql'))
        .sort()
        .map((name) => readFileSync(new URL(name, folder), 'utf8')),
    )
    .join('\n');
}
