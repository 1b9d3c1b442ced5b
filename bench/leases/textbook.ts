/** The lease table of the textbooks, in both of its forms. */
import { randomUUID } from 'node:crypto';
import type { Sql } from '../../src/database/connection.ts';
import { type Contender, inLanes } from './contender.ts';

const DURABILITY = 'PostgreSQL: fsync, synchronous_commit=on';

/** `INSERT … ON CONFLICT (resource) DO UPDATE … WHERE expires_at <= now()`, confirmed and released by token. */
export const upsertTable = (sql: Sql, drivers: number, connections: number): Contender => ({
  name: 'lease table, upsert',
  durability: DURABILITY,
  driven: `one row a lease and nothing else recorded, ${connections} connections, one at a time on each`,
  open: async () => {
    await sql`create table textbook_leases (resource text primary key, token uuid not null, status text not null,
      expires_at timestamptz not null) with (fillfactor = 50)`;
    const each = Math.floor(drivers / connections);
    const next = new Int32Array(connections);
    return {
      run: (ms) =>
        inLanes(connections, ms, async (lane) => {
          const resource = `driver-${lane * each + (next[lane]! % each)}`;
          next[lane]! += 1;
          const token = randomUUID();
          const leased = await sql`
            insert into textbook_leases (resource, token, status, expires_at)
            values (${resource}, ${token}, 'leased', now() + interval '15 s')
            on conflict (resource) do update set token = excluded.token, status = 'leased', expires_at = excluded.expires_at
            where textbook_leases.expires_at <= now() returning 1`;
          const confirmed = await sql`update textbook_leases set status = 'assigned', expires_at = 'infinity'
            where resource = ${resource} and token = ${token} and expires_at > now() returning 1`;
          const released = await sql`update textbook_leases set status = 'free', expires_at = now()
            where resource = ${resource} and token = ${token} returning 1`;
          if (leased.length + confirmed.length + released.length !== 3) throw new Error('the textbook refused');
          return 1;
        }),
      [Symbol.asyncDispose]: async () => {},
    };
  },
});

/** `SELECT … FOR UPDATE` of somebody available, at an offset so that not all want the same row. */
export const selectForUpdate = (sql: Sql, drivers: number, connections: number): Contender => ({
  name: 'select … for update',
  durability: DURABILITY,
  driven: `one row a driver and nothing else recorded, an offset below ${2 * connections}, ${connections} connections`,
  open: async () => {
    await sql`create table textbook_drivers (id int primary key, status text not null, token uuid) with (fillfactor = 50)`;
    await sql`insert into textbook_drivers select i, 'available', null from generate_series(1, ${drivers}::int) i`;
    await sql`create index on textbook_drivers (id) where status = 'available'`;
    await sql`analyze textbook_drivers`;
    return {
      run: (ms) =>
        inLanes(connections, ms, async () => {
          const token = randomUUID();
          const offset = Math.floor(Math.random() * 2 * connections);
          const id = await sql.begin(async (tx) => {
            const [found] = await tx<{ id: number }[]>`select id from textbook_drivers where status = 'available'
              order by id limit 1 offset ${offset} for update`;
            if (found === undefined) return null;
            await tx`update textbook_drivers set status = 'leased', token = ${token} where id = ${found.id}`;
            return found.id;
          });
          // Somebody else took the row while we waited for it: that turn is lost.
          if (id === null) return 0;
          await sql`update textbook_drivers set status = 'assigned' where id = ${id} and token = ${token}`;
          await sql`update textbook_drivers set status = 'available', token = null where id = ${id} and token = ${token}`;
          return 1;
        }),
      [Symbol.asyncDispose]: async () => {},
    };
  },
});
