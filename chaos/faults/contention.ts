/** Somebody else on the same database, who takes what the service needs and doesn't let go. */
import pg from 'pg';
import type { Arena } from '../arena.ts';
import { BACK_AFTER_CUT_MS, type Fault, type Injected } from './fault.ts';

const CONNECT_DEADLINE_MS = 5_000;
/** More than the embedded server takes. */
const CONNECTIONS_MAX = 300;

async function connect(arena: Arena): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: arena.databaseUrl,
    connectionTimeoutMillis: CONNECT_DEADLINE_MS,
    application_name: 'somebody else',
  });
  // It may be cut together with the service's own.
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function hold(arena: Arena, statements: readonly string[], target: string): Promise<Injected> {
  try {
    const client = await connect(arena);
    await client.query('begin');
    for (const statement of statements) await client.query(statement);
    return { target, heal: () => client.end().catch(() => {}) };
  } catch (error) {
    // Another fault took the database away, and every lock with it: the line broke, or the server stops or starts.
    if (error instanceof pg.DatabaseError && error.code?.startsWith('57P') !== true) throw error;
    return { target, heal: async () => {}, detail: () => 'the database was gone' };
  }
}

const held = (name: string, what: string, statements: readonly string[], target: string): Fault => ({
  name,
  what,
  kind: 'contention',
  holdMs: [1_500, 4_000],
  backWithinMs: BACK_AFTER_CUT_MS,
  inject: (arena) => hold(arena, statements, target),
});

/** Cuts the service off and takes every connection before it is back. */
const connectionsTaken: Fault = {
  name: 'connections-taken',
  what: 'the service’s connections are ended, and somebody else has taken all that the database gives',
  kind: 'contention',
  holdMs: [1_500, 4_000],
  backWithinMs: BACK_AFTER_CUT_MS,
  inject: async (arena) => {
    const taken: pg.Client[] = [await connect(arena)];
    for (let rounds = 0; rounds < 2; rounds++) {
      await taken[0]!.query(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name <> 'somebody else' and backend_type = 'client backend'`,
      );
      while (taken.length < CONNECTIONS_MAX) {
        const more = await Promise.allSettled(Array.from({ length: 20 }, () => connect(arena)));
        const got = more.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
        taken.push(...got);
        if (got.length < more.length) break;
      }
    }
    return {
      target: 'postgres',
      heal: async () => {
        await Promise.all(taken.map((each) => each.end().catch(() => {})));
      },
      detail: () => `${taken.length} connections taken`,
    };
  },
};

export const contentionFaults: readonly Fault[] = [
  held(
    'drivers-locked',
    'somebody holds the rows of all drivers',
    ['select from driver_state for update'],
    'driver_state',
  ),
  held(
    'rides-locked',
    'somebody holds the rows of all open rides',
    ['select from rides where ended_at is null for update'],
    'rides',
  ),
  held(
    'tables-locked',
    'somebody has locked whole tables, as a careless migration does',
    ['lock table rides, offers in access exclusive mode'],
    'rides, offers',
  ),
  connectionsTaken,
];
