/** What is said of a database that is reached. */
import { expect, test } from 'vitest';
import { migrateWhenUp } from '../../src/commands/reach.ts';
import { createTestDatabase, withConnection } from '../support/database.ts';

async function saidOf(url: string): Promise<string[]> {
  const said: string[] = [];
  await migrateWhenUp(url, (text) => said.push(text));
  return said;
}

test('a server of an older version than the tested one is said to be so, and migrated', async () => {
  await using database = await createTestDatabase();
  expect(await saidOf(database.url)).toEqual([]);
  // What the server says of itself can't be changed, but another function can be found first.
  await withConnection(database.url, async (sql) => {
    await sql.unsafe(`create schema older;
      create function older.current_setting(text) returns text language sql as $$ select '170009' $$`);
  });
  const older = new URL(database.url);
  older.searchParams.set('options', '-c search_path=older,pg_catalog,public');
  expect(await saidOf(older.href)).toEqual([
    'this is PostgreSQL 17; Cabrank is tested with 18, and slow on a young database before it',
  ]);
});
