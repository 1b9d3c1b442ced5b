/**
 * Every hot statement reaches its rows through the index it names, with and without statistics: held against the
 * server's own counters, because a plan that EXPLAIN shows isn't always the one that a function runs.
 */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { cellOf } from '../../domain/geo.ts';
import { defaultPolicy } from '../../domain/policy.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as t from '../../src/leasing/transitions.ts';
import { addDrivers, addRegion, addRides, CENTER, lease, leaseTerms, moveExpiry, newRide } from '../support/city.ts';
import { createTestDatabase } from '../support/database.ts';

const HOT_TABLES = [
  'rider_driver_blocks',
  'rides',
  'offers',
  'driver_state',
  'driver_presence',
  'assignments',
  'ride_events',
];
const BLOCKS = 'rider_driver_blocks_region_rider_id_driver_id_pk';
const GROWN_ROWS = 20_000;
/** That are live in a rush. */
const RUSH_ROWS = 2_000;
/** A set of a few items has no business reading more index entries than this, however large the region. */
const ENTRIES_MAX = 200;

interface Counters {
  readonly seqScans: Readonly<Record<string, number>>;
  readonly scans: Readonly<Record<string, number>>;
  readonly entries: Readonly<Record<string, number>>;
  readonly updates: { readonly all: number; readonly hot: number };
}

interface Bench extends AsyncDisposable {
  readonly sql: Sql;
  /** For what surrounds a transition. */
  readonly cold: Sql;
  readonly region: number;
  /** What a transition did to the counters; fails on a sequential scan of a hot table. */
  readonly watch: (name: string, work: () => Promise<unknown>) => Promise<Counters>;
}

async function openBench(drivers: number): Promise<Bench> {
  const server = await createTestDatabase();
  const database = connectDatabase(server.url, { hotConnections: 1, coldConnections: 1 });
  const { hot, cold } = database;
  // Statistics are there when a test says so.
  for (const table of HOT_TABLES) await cold.unsafe(`alter table ${table} set (autovacuum_enabled = off)`);
  const region = await addRegion(hot, 'berlin', { noShowAfterMs: 300_000 });
  await addDrivers(hot, region, drivers);
  const watch = async (name: string, work: () => Promise<unknown>): Promise<Counters> => {
    const before = await readCounters(hot, cold);
    await work();
    const spent = difference(await readCounters(hot, cold), before);
    expect(spent.seqScans, `${name}: sequential scans`).toEqual({});
    return spent;
  };
  return {
    sql: hot,
    cold,
    region,
    watch,
    [Symbol.asyncDispose]: async () => {
      await database.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** What both connections did so far; each hands its counts over before it answers. */
async function readCounters(hot: Sql, cold: Sql): Promise<Counters> {
  await hot`select pg_stat_force_next_flush()`;
  await cold`select pg_stat_force_next_flush(), pg_stat_clear_snapshot()`;
  const tables = await cold<{ name: string; scans: number; updates: number; hot: number }[]>`
    select relname as name, seq_scan::int as scans, n_tup_upd::int as updates, n_tup_hot_upd::int as hot
    from pg_stat_user_tables where relname = any(${HOT_TABLES})`;
  const indexes = await cold<{ name: string; scans: number; entries: number }[]>`
    select indexrelname as name, idx_scan::int as scans, idx_tup_read::int as entries
    from pg_stat_user_indexes where relname = any(${HOT_TABLES})`;
  const states = tables.find(({ name }) => name === 'driver_state')!;
  return {
    seqScans: Object.fromEntries(tables.map(({ name, scans }) => [name, scans])),
    scans: Object.fromEntries(indexes.map(({ name, scans }) => [name, scans])),
    entries: Object.fromEntries(indexes.map(({ name, entries }) => [name, entries])),
    updates: { all: states.updates, hot: states.hot },
  };
}

function difference(after: Counters, before: Counters): Counters {
  const grown = (a: Readonly<Record<string, number>>, b: Readonly<Record<string, number>>) =>
    Object.fromEntries(
      Object.entries(a)
        .map(([name, count]) => [name, count - (b[name] ?? 0)] as const)
        .filter(([, count]) => count > 0),
    );
  return {
    seqScans: grown(after.seqScans, before.seqScans),
    scans: grown(after.scans, before.scans),
    entries: grown(after.entries, before.entries),
    updates: { all: after.updates.all - before.updates.all, hot: after.updates.hot - before.updates.hot },
  };
}

/** Rides, offers and events of a region that has been at work for a while, made by the transitions themselves. */
async function grow({ sql, region }: Bench): Promise<void> {
  await sql`insert into rider_driver_blocks (region, rider_id, driver_id, created_by)
    select ${region}, 'r' || i, 'd' || i, 'test' from generate_series(1, ${GROWN_ROWS}::int) i`;
  const setMax = 100;
  for (let done = 0; done < GROWN_ROWS; done += setMax) {
    const rides = await addRides(sql, region, setMax);
    const asks = rides.map((rideId, i) => ({
      rideId,
      driverId: `d${done + i + 1}`,
      offerId: newId(region),
      leaseToken: newLeaseToken(),
      pickupEtaS: 60,
    }));
    await t.leaseDrivers(sql, region, asks, { ...leaseTerms, deliveryTtlMs: 600_000, maxLifetimeMs: 900_000 }, true);
    // The last set stays open: a region at work has pending offers, and its statistics know them.
    if (done + setMax === GROWN_ROWS) break;
    const cancels = rides.map((rideId) => ({ rideId, riderId: null, source: 'system' as const, reason: 'test' }));
    await t.cancelRides(sql, region, cancels, true);
  }
}

/** What is live of a region in a rush: rides that two drivers are asked for, and drivers on their way. */
interface Rush {
  readonly contested: readonly t.LeaseAsk[];
  readonly assigned: readonly t.LeaseAsk[];
}

/** With the drivers from `first` on. */
async function rush({ sql, region }: Bench, first: number, rows: number): Promise<Rush> {
  const terms = { ...leaseTerms, parallelOffers: 2, deliveryTtlMs: 600_000, maxLifetimeMs: 900_000 };
  const live: { contested: t.LeaseAsk[]; assigned: t.LeaseAsk[] } = { contested: [], assigned: [] };
  for (let done = 0; done < rows; done += 100) {
    const asks = (await addRides(sql, region, 100)).flatMap((rideId, i) =>
      (i < 50 ? [0, 1] : [0]).map((nth) => ({
        rideId,
        driverId: `d${first + 1.5 * done + (i < 50 ? 2 * i : 50 + i) + nth}`,
        offerId: newId(region),
        leaseToken: newLeaseToken(),
        pickupEtaS: 60,
      })),
    );
    expect(await t.leaseDrivers(sql, region, asks, terms, true)).toEqual(
      asks.map(() => expect.objectContaining({ refused: null })),
    );
    const [contested, alone] = [asks.slice(0, 100), asks.slice(100)];
    await t.confirmOffers(sql, region, alone, true);
    live.contested.push(...contested);
    live.assigned.push(...alone);
  }
  return live;
}

/** What a rush adds to `runTransitions`: rides that ask several drivers, assigned ones, and whole sets of them. */
async function runRush({ sql, region, watch }: Bench, { contested, assigned }: Rush): Promise<void> {
  const bounded = async (
    name: string,
    most: number,
    work: () => Promise<readonly { readonly refused: string | null }[]>,
  ) => {
    const answers: { readonly refused: string | null }[] = [];
    const { entries } = await watch(name, async () => answers.push(...(await work())));
    expect(answers, name).toEqual(answers.map(() => expect.objectContaining({ refused: null })));
    expect(sumOf(entries), `${name}: ${JSON.stringify(entries)}`).toBeLessThan(most);
  };
  const reason = 'flat';
  // One of the two who are asked for a ride.
  const claims = contested.filter((_, n) => n % 2 === 0);
  const onTheirWay = [...assigned];
  const cancels = (some: readonly t.LeaseAsk[]): t.CancelAsk[] =>
    some.map(({ rideId }) => ({ rideId, riderId: null, source: 'system', reason }));
  const arrivals = (some: readonly t.LeaseAsk[]): t.AdvanceAsk[] =>
    some.map(({ rideId, driverId }) => ({ rideId, driverId, status: 'driver_arrived' }));
  for (const set of [3, 50]) {
    const most = ENTRIES_MAX + 80 * set;
    const take = (from: t.LeaseAsk[]): t.LeaseAsk[] => from.splice(0, set);
    await bounded('confirmOffers', most, () => t.confirmOffers(sql, region, take(claims), false));
    await bounded('cancelRides, offered', most, () => t.cancelRides(sql, region, cancels(take(claims)), false));
    await bounded('receiveOffers', most, () => t.receiveOffers(sql, region, take(claims), false));
    await bounded('returnOffers', most, () =>
      t.returnOffers(
        sql,
        region,
        take(claims).map((claim) => ({ ...claim, reason })),
        'declined',
        false,
      ),
    );
    await bounded('cancelRides, assigned', most, () => t.cancelRides(sql, region, cancels(take(onTheirWay)), false));
    await bounded('unassignRides', most, () =>
      t.unassignRides(
        sql,
        region,
        take(onTheirWay).map(({ rideId, driverId }) => ({ rideId, driverId, reason })),
        false,
      ),
    );
    await bounded('advanceRides', most, () => t.advanceRides(sql, region, arrivals(take(onTheirWay)), false));
  }
  await t.advanceRides(sql, region, arrivals(onTheirWay), false);
  const { entries } = await watch('cancelNoShows', () => t.cancelNoShows(sql, region, 100));
  expect(sumOf(entries), `cancelNoShows: ${JSON.stringify(entries)}`).toBeLessThan(ENTRIES_MAX);
}

/** As a night does. */
async function endAll({ sql, region }: Bench): Promise<void> {
  const open = await sql<{ id: string }[]>`select id from rides where region = ${region} and ended_at is null`;
  const cancels = open.map(({ id }) => ({ rideId: id, riderId: null, source: 'system' as const, reason: 'test' }));
  await t.cancelRides(sql, region, cancels, true);
}

async function analyse({ cold }: Bench): Promise<void> {
  for (const table of HOT_TABLES) await cold.unsafe(`vacuum analyze ${table}`);
}

/** Without an invalidation, so that plans stay. */
async function empty({ cold }: Bench): Promise<void> {
  await cold.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    for (const table of [...HOT_TABLES, 'drivers', 'idempotency_keys']) await tx.unsafe(`delete from ${table}`);
  });
}

const claimsOf = (terms: readonly t.TermClaim[]): t.TermClaim[] => [...terms];
const sumOf = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0);

/** All the transitions that change rows, in the order of a ride's life. */
async function runTransitions(bench: Bench): Promise<void> {
  const { sql, region } = bench;
  const bounded = async (name: string, work: () => Promise<unknown>): Promise<Counters> => {
    const spent = await bench.watch(name, work);
    expect(sumOf(spent.entries), `${name}: ${JSON.stringify(spent.entries)}`).toBeLessThan(ENTRIES_MAX);
    return spent;
  };
  const hot = async (name: string, work: () => Promise<unknown>): Promise<void> => {
    const { updates } = await bounded(name, work);
    expect(updates.all, name).toBeGreaterThan(0);
    expect(updates.hot, `${name}: HOT updates of driver_state`).toBe(updates.all);
  };
  const idempotency = (key: string) => ({ subject: 'x', key, requestHash: createHash('sha256').update(key).digest() });
  const request = async (count: number): Promise<string[]> => {
    const rides = Array.from({ length: count }, (_, i) =>
      newRide(region, { idempotency: idempotency(`${newId(region)}-${i}`) }),
    );
    await bounded('createRides', () => t.createRides(sql, region, rides));
    return rides.map(({ rideId }) => rideId);
  };
  const asksOf = (rides: readonly string[]): t.LeaseAsk[] =>
    rides.map((rideId, i) => ({
      rideId,
      driverId: `d${i + 1}`,
      offerId: newId(region),
      leaseToken: newLeaseToken(),
      pickupEtaS: 60,
    }));

  const paired = Array.from({ length: 3 }, (_, i) => {
    const ride = newRide(region, { idempotency: idempotency(`${newId(region)}-${i}`) });
    return { ride, lease: { ...asksOf([ride.rideId])[0]!, driverId: `d${i + 1}`, terms: leaseTerms } };
  });
  await hot('requestRides', () => t.requestRides(sql, region, paired));
  await t.returnOffers(
    sql,
    region,
    paired.map((each) => ({ ...each.lease, reason: 'test' })),
    'declined',
    false,
  );

  const rides = await request(3);
  const terms = asksOf(rides);
  await hot('leaseDrivers', () => t.leaseDrivers(sql, region, terms, leaseTerms, false));
  await hot('receiveOffers', () => t.receiveOffers(sql, region, claimsOf(terms), false));
  await hot('confirmOffers', () => t.confirmOffers(sql, region, claimsOf(terms), false));
  await bounded('confirmOffers, repeated', () => t.confirmOffers(sql, region, claimsOf(terms), false));
  await hot('unassignRides', () =>
    t.unassignRides(sql, region, [{ rideId: rides[2]!, driverId: 'd3', reason: 'flat' }], false),
  );
  for (const status of ['driver_arrived', 'in_progress'] as const) {
    const steps = terms.slice(0, 2).map(({ rideId, driverId }) => ({ rideId, driverId, status }));
    await bounded(status, () => t.advanceRides(sql, region, steps, false));
  }
  await hot('completed', () =>
    t.advanceRides(
      sql,
      region,
      terms.slice(0, 2).map(({ rideId, driverId }) => ({ rideId, driverId, status: 'completed' as const })),
      false,
    ),
  );
  const [cancelled, returned, lapsed, once, withdrawn] = await request(5);
  const open = asksOf([cancelled!, returned!, lapsed!]);
  await hot('leaseDrivers', () => t.leaseDrivers(sql, region, open, leaseTerms, true));
  await hot('leaseDriverOnce', () =>
    t.leaseDriverOnce(
      sql,
      region,
      { ...open[0]!, rideId: once!, driverId: 'd4', offerId: newId(region) },
      leaseTerms,
      idempotency('once'),
    ),
  );
  const [assigned] = await request(1);
  await hot('assignDrivers', () =>
    t.assignDrivers(
      sql,
      region,
      [{ ...open[0]!, rideId: assigned!, driverId: 'd8', offerId: newId(region) }],
      leaseTerms,
      false,
    ),
  );
  await bounded('liftExclusions', () => t.liftExclusions(sql, region, [once!]));
  const cancel = (rideId: string) => ({ rideId, riderId: null, source: 'system' as const, reason: 'test' });
  await hot('cancelRides', () => t.cancelRides(sql, region, [cancel(cancelled!), cancel(once!)], false));
  await hot('returnOffers', () => t.returnOffers(sql, region, [{ ...open[1]!, reason: 'far' }], 'declined', false));
  await moveExpiry(sql, region, ['d3'], -10_000);
  const sweep = await bounded('expireLeases', () => t.expireLeases(sql, region, t.FROM_THE_FIRST, 50));
  expect(sweep.scans['offers_due'], JSON.stringify(sweep.scans)).toBe(1);
  await bounded('settleRides', () =>
    t.settleRides(sql, region, [{ rideId: withdrawn!, waitMs: 0, reason: 'nobody_near' }], {
      offersMax: 5,
      rescueMs: 0,
      recoveryMs: 0,
    }),
  );
  await lease(sql, region, withdrawn!, 'd5');
  await bounded('takeOffline', () => t.takeOffline(sql, region, ['d5', 'd6'], 'off', false));
  await bounded('bringOnline', () => t.bringOnline(sql, region, ['d5', 'd6'], false));
  await bounded('recordPositions', () =>
    t.recordPositions(sql, region, [{ driverId: 'd5', position: { ...CENTER, cell: cellOf(CENTER) } }]),
  );
  await bounded('retireAbsent', () => t.retireAbsent(sql, region, '', 20, 30_000));
  await bounded('dropOldKeys', () => t.dropOldKeys(sql, region, 20));
}

/** The lookups, each through exactly the indexes it names. */
async function runLookups({ sql, region, watch }: Bench): Promise<void> {
  const [ride] = await addRides(sql, region, 2);
  await lease(sql, region, ride!, 'd7');
  const indexesOf = async (name: string, work: () => Promise<unknown>): Promise<string[]> =>
    Object.keys((await watch(name, work)).scans).sort();

  expect(await indexesOf('openRound', () => t.openRound(sql, region, 50))).toEqual([
    'offers_due',
    BLOCKS,
    'rides_no_show',
    'rides_queue',
  ]);
  expect(await indexesOf('isRideOverdue', () => t.isRideOverdue(sql, region, 60_000))).toEqual([
    'offers_due',
    'rides_no_show',
    'rides_queue',
  ]);
  expect(await indexesOf('endingRegions', () => t.endingRegions(sql, 1_000))).toEqual(['offers_due', 'rides_no_show']);
  expect(await indexesOf('expireLeases', () => t.expireLeases(sql, region, t.FROM_THE_FIRST, 50))).toEqual([
    'offers_due',
  ]);
  expect(await indexesOf('duePlaces', () => t.duePlaces(sql, region, 50, 5_000))).toEqual(['offers_due']);
  const undelivered = await watch('undeliveredOffers', () => t.undeliveredOffers(sql, region, 0, 50));
  expect(Object.keys(undelivered.scans).filter((name) => name.startsWith('offers'))).toEqual([
    expect.stringMatching(/^offers_(due|pending_driver)$/),
  ]);
  // By the one index it stops at the fiftieth; by the other it looks at all that are pending, a hundred, each with driver and ride.
  expect(sumOf(undelivered.entries), JSON.stringify(undelivered.entries)).toBeLessThan(2 * ENTRIES_MAX);
  const told = Array.from({ length: 50 }, (_, i) => ({ driverId: `d${i + 1}`, standing: 'free' }));
  expect(await indexesOf('mistakenDrivers', () => t.mistakenDrivers(sql, region, told, 0))).toEqual([
    'driver_state_region_driver_id_pk',
  ]);
  const near = await indexesOf('driversNear', () =>
    t.driversNear(sql, region, 'available', [cellOf(CENTER)], defaultPolicy.positionStaleMs),
  );
  expect(near.filter((name) => name.startsWith('driver_presence'))).toEqual(['driver_presence_by_cell']);
  await watch('availableDrivers, anywhere', () =>
    t.driversNear(sql, region, 'available', null, defaultPolicy.positionStaleMs),
  );
}

describe('hot statements use their indexes alone, and updates of driver_state are HOT', () => {
  test('on a database that was just migrated and never analysed', async () => {
    await using bench = await openBench(10);
    await runTransitions(bench);
    await runLookups(bench);
  });

  test(`on an analysed database of ${GROWN_ROWS} drivers, rides and offers`, async () => {
    await using bench = await openBench(GROWN_ROWS);
    await grow(bench);
    await analyse(bench);
    await runTransitions(bench);
    await runLookups(bench);
  }, 120_000);

  test('on a database that was planned for while it was nearly empty, grew, was vacuumed, and never analysed', async () => {
    await using bench = await openBench(10);
    await runTransitions(bench);
    await runLookups(bench);
    await empty(bench);
    await addDrivers(bench.sql, bench.region, GROWN_ROWS);
    await grow(bench);
    for (const table of HOT_TABLES) await bench.cold.unsafe(`vacuum ${table}`);
    await runTransitions(bench);
    await runLookups(bench);
  }, 120_000);

  test('on a database that was analysed in a quiet hour, when nothing was live, and is in a rush since', async () => {
    await using bench = await openBench(GROWN_ROWS);
    await grow(bench);
    await endAll(bench);
    await analyse(bench);
    const live = await rush(bench, 100, RUSH_ROWS);
    await runRush(bench, live);
    await runTransitions(bench);
  }, 120_000);

  test('on a small fleet of which nobody acknowledges, vacuumed and never analysed', async () => {
    await using bench = await openBench(1_000);
    await rush(bench, 1, 500);
    for (const table of HOT_TABLES) await bench.cold.unsafe(`vacuum ${table}`);
    const { entries } = await bench.watch('undeliveredOffers', () =>
      t.undeliveredOffers(bench.sql, bench.region, 0, 200),
    );
    expect(sumOf(entries), JSON.stringify(entries)).toBeLessThan(10 * ENTRIES_MAX);
  }, 120_000);
});
