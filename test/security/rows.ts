/** Whether anything at all changed. */
import type { Sql } from '../../src/database/connection.ts';

/** Of each table a digest of all its rows: equal before and after whatever was refused. */
export async function rowsOf(sql: Sql): Promise<Record<string, string>> {
  const tables = await sql<{ name: string }[]>`
    select c.oid::regclass::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r' and n.nspname = 'public' order by 1`;
  if (tables.length < 10) throw new Error('the tables weren’t found');
  const digests = tables.map(
    ({ name }) => `select '${name}' as name, coalesce(md5(string_agg(t::text, '|' order by t::text)), '') as rows
      from ${name} t`,
  );
  const rows = await sql.unsafe<{ name: string; rows: string }[]>(digests.join(' union all '));
  return Object.fromEntries(rows.map(({ name, rows: digest }) => [name, digest]));
}
