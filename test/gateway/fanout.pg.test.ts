import { expect, test, vi } from 'vitest';
import { openFanout } from '../../src/gateway/fanout.ts';
import { createTestDatabase, withConnection } from '../support/database.ts';

const DEADLINE = { timeout: 15_000, interval: 20 };
/** More than the connections that it has. */
const CUTS = 4;

test('notices go on between processes however often the database cuts their connections, and they end when they are told to', async () => {
  await using database = await createTestDatabase();
  await withConnection(database.url, async (sql) => {
    const from = await openFanout({ kind: 'postgres', databaseUrl: database.url }, () => {});
    const to = await openFanout({ kind: 'postgres', databaseUrl: database.url }, () => {});
    const heard: string[] = [];
    to.onConnected(({ driverId }) => heard.push(driverId));
    const isHeard = (driverId: string): Promise<void> =>
      vi.waitFor(() => {
        from.announce({ driverId, socketId: 's', connectedAtMs: 1 });
        expect(heard).toContain(driverId);
      }, DEADLINE);
    await isHeard('d0');
    for (let cut = 1; cut <= CUTS; cut++) {
      await sql`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'cabrank fanout'`;
      await isHeard(`d${cut}`);
    }
    await Promise.all([from[Symbol.asyncDispose](), to[Symbol.asyncDispose]()]);
  });
}, 60_000);
