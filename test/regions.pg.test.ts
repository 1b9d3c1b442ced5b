import { expect, test } from 'vitest';
import type { Database } from '../src/database/connection.ts';
import { Regions } from '../src/regions.ts';
import { openCity } from './support/city.ts';

test('what is forgotten while it is being read is read again, for whoever asks afterwards', async () => {
  await using city = await openCity(0);
  const read = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const { orm } = city.database;
  /** Its answers are on their way until the gate opens. */
  const select = (columns: never) => ({
    from: (table: never) => ({
      innerJoin: (other: never, on: never) => ({
        where: async (which: never): Promise<unknown> => {
          const rows: unknown = await orm.select(columns).from(table).innerJoin(other, on).where(which);
          read.resolve();
          await gate.promise;
          return rows;
        },
      }),
    }),
  });
  const regions = new Regions({ ...city.database, orm: { select } as unknown as Database['orm'] });

  const before = regions.byId('berlin');
  await read.promise;
  await city.sql`update regions set name = 'Berlin'`;
  regions.forget();
  const after = regions.byId('berlin');
  gate.resolve();
  await before;
  expect(await after).toMatchObject({ name: 'Berlin' });
});
