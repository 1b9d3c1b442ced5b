/** Rides that are paired before they are in the database: made and leased in one transaction, or left to the next round. */
import { expect, test, vi } from 'vitest';
import { defaultPolicy, type Policy } from '../../domain/policy.ts';
import { noFaults } from '../../src/dispatch/faults.ts';
import { type Matcher, startMatcher } from '../../src/dispatch/matcher.ts';
import { Supply } from '../../src/dispatch/supply.ts';
import type { Sql } from '../../src/database/connection.ts';
import type { DriverNotice } from '../../src/gateway/notices.ts';
import { createLeasing, type Leasing } from '../../src/leasing/leasing.ts';
import type { NewRide } from '../../src/leasing/transitions.ts';
import { createMetrics, type Metrics } from '../../src/ops/metrics.ts';
import { Regions } from '../../src/regions.ts';
import { verify } from '../../src/verify/verify.ts';
import { addRides, CENTER, type City, newRide, openCity } from '../support/city.ts';

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

interface Process extends AsyncDisposable {
  readonly leasing: Leasing;
  readonly told: DriverNotice[];
  /** Rounds run in tests by being asked for only: how often they were. */
  readonly woken: () => number;
  readonly matcher: Matcher;
  readonly metrics: Metrics;
}

/** What a process with the roles of the API and the matcher does, but for the rounds. */
function openProcess(city: City, sql = city.sql): Process {
  const metrics = createMetrics();
  const told: DriverNotice[] = [];
  let woken = 0;
  let matcher: Matcher | null = null;
  const leasing = createLeasing(city.database, metrics, {
    tell: (_region, notices) => void told.push(...notices),
    wake: () => void (woken += 1),
    regionId: String,
    pair: async (region, rides) => matcher!.pair(region, rides),
  });
  const regions = new Regions(city.database);
  const deps = { sql, leasing, regions, metrics, faults: noFaults, supply: new Supply(city.sql) };
  matcher = startMatcher({ ...deps, log: silent, isQueueDown: () => false });
  return { leasing, told, matcher, metrics, woken: () => woken, [Symbol.asyncDispose]: () => matcher.stop() };
}

/** Statements of which it is so never reach the database. */
const failing = (sql: Sql, fails: (text: string) => boolean): Sql =>
  new Proxy(sql, {
    apply(target, self, args: [TemplateStringsArray]) {
      if (fails(args[0].join(''))) throw new Error('it shall fail');
      return Reflect.apply(target, self, args) as unknown;
    },
  });

const request = ({ leasing }: Process, city: City, rides: readonly NewRide[]) =>
  Promise.all(rides.map((ride) => leasing.request(city.region, ride)));
const rides = (city: City, count: number, patch: Partial<NewRide> = {}): NewRide[] =>
  Array.from({ length: count }, () => newRide(city.region, patch));
const offersOf = (city: City) =>
  city.sql<{ ride_id: string; driver_id: string; policy_version: number; decision_ttl_ms: number }[]>`
    select ride_id, driver_id, policy_version, decision_ttl_ms from offers order by ride_id`;

test('rides that are requested while drivers are free are leased in the transaction that makes them, and the drivers are told', async () => {
  await using city = await openCity(5);
  await using process = openProcess(city);
  const made = await request(process, city, rides(city, 3));
  expect(made).toMatchObject(Array.from({ length: 3 }, () => ({ refused: null, replayed: false })));
  const events = await city.sql<{ types: string[]; transactions: number }[]>`
    select array_agg(type order by seq) as types, count(distinct tx)::int as transactions from ride_events group by ride_id`;
  expect(events).toEqual(
    Array.from({ length: 3 }, () => ({ types: ['ride_requested', 'offer_made'], transactions: 1 })),
  );
  const offers = await offersOf(city);
  expect(process.told.map(({ driverId }) => driverId).toSorted()).toEqual(
    offers.map(({ driver_id: id }) => id).toSorted(),
  );
  const [{ data }] = process.told as [DriverNotice & { event: 'offer' }];
  expect(data).toMatchObject({ pickup: CENTER, fence: 1, expiresInMs: defaultPolicy.decisionTtlMs });
  const { driverId } = process.told[0]!;
  expect(await process.leasing.confirm(city.region, { ...data, driverId })).toMatchObject({ refused: null });
  expect(process.woken()).toBe(0);
  expect(await verify(city.url)).toMatchObject({ violations: 0 });
});

test('who finds nobody waits for a round, and the others don’t', async () => {
  await using city = await openCity(2);
  await using process = openProcess(city);
  await request(process, city, rides(city, 3));
  expect(await offersOf(city)).toHaveLength(2);
  expect(await city.sql`select from rides where queue_at is not null`).toHaveLength(1);
  expect(process.woken()).toBe(1);
});

test('a repetition asks nobody, in the same set or later', async () => {
  await using city = await openCity(5, { roundIntervalMs: 0 });
  await using process = openProcess(city);
  const idempotency = { subject: 'backend', key: 'one', requestHash: Buffer.from('same') };
  const [first, twin] = await request(process, city, rides(city, 2, { idempotency }));
  const [later] = await request(process, city, rides(city, 1, { idempotency }));
  expect([first, twin, later].map((ride) => ride!.ride_id)).toEqual(Array.from({ length: 3 }, () => first!.ride_id));
  const [other] = await request(
    process,
    city,
    rides(city, 1, { idempotency: { ...idempotency, requestHash: Buffer.from('other') } }),
  );
  expect(other).toMatchObject({ refused: 'idempotency_key_reused' });
  expect(await offersOf(city)).toHaveLength(1);
  expect(await city.sql`select from driver_state where status = 'leased'`).toHaveLength(1);
});

test('of two processes that found the same driver one gets him, and the other’s ride waits for a round', async () => {
  await using city = await openCity(1, { roundIntervalMs: 0 });
  await using one = openProcess(city);
  await using two = openProcess(city);
  const answers = await Promise.all([request(one, city, rides(city, 1)), request(two, city, rides(city, 1))]);
  expect(answers.flat()).toMatchObject([{ refused: null }, { refused: null }]);
  expect(await offersOf(city)).toHaveLength(1);
  expect(await city.sql`select from rides where queue_at is not null`).toHaveLength(1);
  expect(one.woken() + two.woken()).toBe(1);
  expect(await verify(city.url)).toMatchObject({ violations: 0 });
});

test('each ride is leased under the version of the policy that it was requested under', async () => {
  await using city = await openCity(4);
  await using process = openProcess(city);
  const canary: Policy = { ...defaultPolicy, decisionTtlMs: 7_000, parallelOffers: 2 };
  const assigning: Policy = { ...defaultPolicy, asking: 'assign' };
  await city.sql`insert into policies (region, version, document, created_by) values
    (${city.region}, 2, ${city.sql.json(canary as never)}, 'test'), (${city.region}, 3, ${city.sql.json(assigning as never)}, 'test')`;
  const [old] = rides(city, 1);
  const [tried] = rides(city, 1, { policyVersion: 2 });
  // An assignment is made by a round.
  const [assigned] = rides(city, 1, { policyVersion: 3 });
  await request(process, city, [old!, tried!, assigned!]);
  const offers = await offersOf(city);
  expect(offers.find(({ ride_id: id }) => id === old!.rideId)).toMatchObject({
    policy_version: 1,
    decision_ttl_ms: defaultPolicy.decisionTtlMs,
  });
  expect(offers.find(({ ride_id: id }) => id === tried!.rideId)).toMatchObject({
    policy_version: 2,
    decision_ttl_ms: 7_000,
  });
  expect(offers).toHaveLength(2);
  // The second place of the one, and the driver of the other, are the round's.
  expect(await city.sql`select id from rides where queue_at is not null order by id`).toEqual(
    [tried!.rideId, assigned!.rideId].toSorted().map((id) => ({ id })),
  );
  expect(process.woken()).toBe(1);
});

test('within the interval of a round, which they are as well, rides wait for the next', async () => {
  await using city = await openCity(5, { roundIntervalMs: 60_000 });
  await using process = openProcess(city);
  await request(process, city, rides(city, 1));
  await request(process, city, rides(city, 1));
  expect(await offersOf(city)).toHaveLength(1);
  expect(process.woken()).toBe(1);
});

test('while a round leaves others waiting, because it takes no more, whoever comes waits behind them', async () => {
  await using city = await openCity(3, { roundIntervalMs: 0 });
  // Rounds fail from the second one on: the first leaves one ride of 501.
  let rounds = 0;
  const sql = failing(city.sql, (text) => text.includes('open_round') && (rounds += 1) > 1);
  await using process = openProcess(city, sql);
  await city.sql`update driver_state set status = 'offline'`;
  await addRides(city.sql, city.region, 501);
  process.matcher.wake(city.region);
  await vi.waitFor(() => expect(rounds).toBe(2), { timeout: 10_000, interval: 20 });
  await city.sql`update driver_state set status = 'available'`;
  await request(process, city, rides(city, 1));
  expect(await offersOf(city)).toEqual([]);
  expect(process.woken()).toBe(1);
});

test('rides of whom one found nobody were no round: the next one needn’t wait for the interval', async () => {
  await using city = await openCity(1, { roundIntervalMs: 60_000 });
  // Nor does the poll find that ride.
  await using process = openProcess(
    city,
    failing(city.sql, (text) => text.includes('is_ride_overdue')),
  );
  await city.sql`update driver_state set status = 'offline'`;
  await request(process, city, rides(city, 1));
  await city.sql`update driver_state set status = 'available'`;
  await request(process, city, rides(city, 1));
  expect(await offersOf(city)).toHaveLength(1);
});

test('a ride is made as well where the lease fails', async () => {
  await using city = await openCity(5);
  await using process = openProcess(city);
  await city.sql.unsafe('alter function leasing.lease_drivers rename to lease_nobody');
  expect(await request(process, city, rides(city, 3))).toMatchObject(
    Array.from({ length: 3 }, () => ({ refused: null, replayed: false, leased_at: null })),
  );
  expect(await offersOf(city)).toEqual([]);
  expect(process.woken()).toBe(1);
});

test('a driver whom the rider has blocked costs no more than a round', async () => {
  await using city = await openCity(1, { roundIntervalMs: 60_000 });
  await using process = openProcess(city);
  await city.sql`insert into rider_driver_blocks (region, rider_id, driver_id, created_by) values (${city.region}, 'rider-1', 'd1', 'test')`;
  await request(process, city, rides(city, 1));
  expect(await offersOf(city)).toEqual([]);
  process.matcher.wake(city.region);
  const looked = async () => (await process.metrics.emptyLooks.get()).values.map(({ labels }) => labels.reason);
  await vi.waitFor(async () => expect(await looked()).toEqual(['blocked']), { timeout: 10_000, interval: 20 });
});

test('a ride is made as well where the drivers near it can’t be read', async () => {
  await using city = await openCity(5);
  await using process = openProcess(city);
  await city.sql.unsafe('alter function leasing.drivers_near rename to drivers_far');
  expect(await request(process, city, rides(city, 1))).toMatchObject([{ refused: null }]);
  expect(await offersOf(city)).toEqual([]);
  expect(process.woken()).toBe(1);
});
