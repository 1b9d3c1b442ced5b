/** Match rounds with nothing around them: no queue, no sweeper, no gateway. */
import { expect, test, vi } from 'vitest';
import { cellOf, offsetPoint, type Point } from '../../domain/geo.ts';
import { matchings, type WaitingRide } from '../../domain/matching.ts';
import { createRandom } from '../../domain/random.ts';
import { noFaults } from '../../src/dispatch/faults.ts';
import { startMatcher } from '../../src/dispatch/matcher.ts';
import { runRound } from '../../src/dispatch/round.ts';
import { contextOf } from '../../src/dispatch/seeking.ts';
import { type Seen, Supply } from '../../src/dispatch/supply.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import { leaseDrivers, recordPositions } from '../../src/leasing/transitions.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { Regions } from '../../src/regions.ts';
import { addRides, CENTER, leaseTerms, moveExpiry, openCity, type City } from '../support/city.ts';

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

async function rounds(city: City) {
  const metrics = createMetrics();
  // Nobody is told and nobody is woken.
  const leasing = createLeasing(city.database, metrics, { tell: () => {}, wake: () => {}, regionId: String });
  const regions = new Regions(city.database);
  const deps = { sql: city.sql, leasing, regions, metrics, faults: noFaults, supply: new Supply(city.sql) };
  const region = (await regions.byNumber(city.region))!;
  return { deps, round: () => runRound(deps, region) };
}

const waitingRide = (rideId: string, pickup: Point): WaitingRide => ({
  rideId,
  pickup,
  dropoff: CENTER,
  vehicleClasses: ['economy'],
  seats: 1,
  attributes: [],
  excluded: new Map(),
  searchRadiusM: 6_000,
  places: 1,
  queuedAtMs: 0,
});

async function addDriversAt(city: City, drivers: readonly { driverId: string; position: Point }[]): Promise<void> {
  const ids = drivers.map(({ driverId }) => driverId);
  await city.sql`insert into drivers (id, region, vehicle_class) select id, ${city.region}, 'economy' from unnest(${ids}::text[]) id`;
  await city.sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
    select ${city.region}, id, 'available', 'economy', clock_timestamp() from unnest(${ids}::text[]) id`;
  const reports = drivers.map(({ driverId, position }) => ({
    driverId,
    position: { ...position, cell: cellOf(position) },
  }));
  await recordPositions(city.sql, city.region, reports);
}

/** What rounds look with in a city of 100 drivers, each so much farther from the centre, in another direction. */
async function spiral(city: City, stepM: number) {
  const drivers = Array.from({ length: 100 }, (_, i) => ({
    driverId: `d${i}`,
    position: offsetPoint(CENTER, i, 20 + stepM * i),
  }));
  await addDriversAt(city, drivers);
  const { deps } = await rounds(city);
  const region = (await deps.regions.byNumber(city.region))!;
  return { deps, region, context: contextOf(region) };
}

const statuses = async (city: City): Promise<unknown[]> =>
  (await city.sql`select status from rides order by id`).map(({ status }) => status as unknown);

test('a round leases the drivers there are, and puts the other rides back for later', async () => {
  await using city = await openCity(2);
  await addRides(city.sql, city.region, 3);
  const { round } = await rounds(city);
  expect(await round()).toMatchObject({ looked: 3, offered: 2, givenUp: 0 });
  expect(await city.sql`select from driver_state where status = 'leased'`).toHaveLength(2);
  const outcome = await round();
  expect(outcome).toMatchObject({ looked: 0, offered: 0 });
  expect(outcome.nextInMs).toBeGreaterThan(0);
});

test('a round first frees what is over, without any sweeper', async () => {
  await using city = await openCity(1);
  await addRides(city.sql, city.region, 2);
  const { round } = await rounds(city);
  await round();
  await moveExpiry(city.sql, city.region, ['d1'], -5_000);
  await city.sql`update rides set queue_at = clock_timestamp() where queue_at is not null`;
  // The driver who let it lapse isn't asked again for that ride, but for the other one.
  expect(await round()).toMatchObject({ offered: 1 });
  expect(await city.sql`select from offers where status = 'undeliverable'`).toHaveLength(1);
});

test('a driver whose position is stale isn’t offered rides', async () => {
  await using city = await openCity(1);
  await addRides(city.sql, city.region, 1);
  await city.sql`update driver_presence set position_at = position_at - interval '1 hour'`;
  const { round } = await rounds(city);
  expect(await round()).toMatchObject({ looked: 1, offered: 0 });
});

test('rows at the head of the line that others hold don’t starve those behind', async () => {
  await using city = await openCity(20);
  const rideIds = await addRides(city.sql, city.region, 20);
  const { round } = await rounds(city);
  await city.sql.begin(async (holder) => {
    await holder`select from rides where id = any(${rideIds.slice(0, 10)}) for update`;
    expect(await round()).toMatchObject({ offered: 10 });
  });
  expect(await round()).toMatchObject({ offered: 10 });
});

test('a ride whose nearest drivers are held gets the next one, and who has nobody else is asked for until he is let go', async () => {
  await using city = await openCity(0);
  await addDriversAt(
    city,
    [0, 100, 500].map((m) => ({ driverId: `at-${m}`, position: offsetPoint(CENTER, 0, m) })),
  );
  const { round } = await rounds(city);
  await city.sql.begin(async (holder) => {
    await holder`select from driver_state where driver_id in ('at-0', 'at-100') for update`;
    await addRides(city.sql, city.region, 1);
    expect(await round()).toMatchObject({ looked: 1, offered: 0, nextInMs: 0 });
    expect(await round()).toMatchObject({ looked: 1, offered: 0, nextInMs: 0 });
    expect(await round()).toMatchObject({ looked: 1, offered: 1 });
    expect(await city.sql`select driver_id from offers`).toEqual([{ driver_id: 'at-500' }]);
    await addRides(city.sql, city.region, 1);
    expect(await round()).toMatchObject({ looked: 1, offered: 0, nextInMs: 0 });
  });
  expect(await round()).toMatchObject({ looked: 1, offered: 1 });
});

test('a driver whose shift ends as late as may be said is asked, and keeps nobody else from it', async () => {
  await using city = await openCity(2);
  await city.sql`update driver_state set shift_ends_at = '2199-12-31T23:59:59.999Z' where driver_id = 'd1'`;
  await addRides(city.sql, city.region, 2);
  const { round } = await rounds(city);
  expect(await round()).toMatchObject({ looked: 2, offered: 2 });
});

test('with the queue gone every ride still comes to its end: by the poll alone', async () => {
  await using city = await openCity(1, {
    patienceMs: 300,
    retryMs: 50,
    retryMaxMs: 100,
    roundIntervalMs: 0,
    positionStaleMs: 8_000,
  });
  await addRides(city.sql, city.region, 3, 300);
  await city.sql`insert into presence_epochs values (${city.region}, clock_timestamp() - interval '1 minute')`;
  const { deps } = await rounds(city);
  const matcher = startMatcher({ ...deps, log: silent, isQueueDown: () => false });
  // One ride holds the driver until the lease lapses; all of them end when their patience is over.
  await vi.waitFor(
    async () => expect(await statuses(city)).toEqual(Array.from({ length: 3 }, () => 'no_drivers_available')),
    { timeout: 20_000, interval: 100 },
  );
  await matcher.stop();
});

test('a ride that is due sooner than it was is looked at, however far away the next round was', async () => {
  await using city = await openCity(1, { roundIntervalMs: 0 });
  await addRides(city.sql, city.region, 1);
  await city.sql`update rides set queue_at = queue_at + interval '1 hour'`;
  const { deps } = await rounds(city);
  const matcher = startMatcher({ ...deps, log: silent, isQueueDown: () => false });
  const roundsDone = async (): Promise<number> => (await deps.metrics.roundDuration.get()).values.at(-1)?.value ?? 0;
  matcher.wake(city.region);
  await vi.waitFor(async () => expect(await roundsDone()).toBeGreaterThan(0));
  await city.sql`update rides set queue_at = clock_timestamp()`;
  await vi.waitFor(
    async () => expect(await city.sql`select from driver_state where status = 'leased'`).toHaveLength(1),
    { timeout: 10_000, interval: 100 },
  );
  await matcher.stop();
});

test('a round that looks near first has the candidates of one that looks everywhere, and goes farther where it must', async () => {
  await using city = await openCity(0, { searchRadiusM: 6_000 });
  const random = createRandom('supply');
  const scattered = Array.from({ length: 400 }, (_, i) => ({
    driverId: `d${i}`,
    position: offsetPoint(CENTER, 2 * Math.PI * random.next(), 6_000 * random.next()),
  }));
  await addDriversAt(city, scattered);
  const { deps } = await rounds(city);
  const region = (await deps.regions.byNumber(city.region))!;
  const context = contextOf(region);
  const seeking = Array.from({ length: 30 }, (_, i) => waitingRide(`ride-${i}`, offsetPoint(CENTER, i, 100 * i)));
  const everybody = await deps.supply.all(region, seeking);
  let narrowed = 0;
  for (const ride of seeking) {
    const seen = await deps.supply.nearest(region, [ride], context);
    if (seen.fleet.drivers.length < everybody.fleet.drivers.length) narrowed += 1;
    expect(matchings.batch([ride], seen.fleet, context)).toEqual(matchings.batch([ride], everybody.fleet, context));
  }
  expect(narrowed).toBeGreaterThan(10);
  // At the edge of the city there are fewer than expected.
  const outside = waitingRide('outside', offsetPoint(CENTER, 0, 9_000));
  const near = await deps.supply.nearest(region, [outside], context);
  expect(matchings.batch([outside], near.fleet, context)).toEqual(
    matchings.batch([outside], (await deps.supply.all(region, [outside])).fleet, context),
  );
});

test('for a moment rounds know the drivers whom they read, except those they asked, until one of them turns out to be gone', async () => {
  await using city = await openCity(0, { searchRadiusM: 6_000, candidatesMax: 2 });
  const { deps, region, context } = await spiral(city, 50);
  let nowMs = 0;
  const supply = new Supply(city.sql, () => nowMs);
  const ride = waitingRide('ride', CENTER);
  const nearestOf = ({ fleet }: Seen): string | undefined => matchings.nearest([ride], fleet, context)[0]?.driverId;
  const nearest = async () => nearestOf(await supply.nearest(region, [ride], context));
  await supply.all(region, [ride]);
  expect(await nearest()).toBe('d0');

  await city.sql`update driver_state set status = 'offline' where driver_id = 'd0'`;
  nowMs += 249;
  expect(await nearest()).toBe('d0');
  const pairs = ['d0', 'd1'].map((driverId) => ({ rideId: 'ride', driverId, pickupEtaS: 1 }));
  expect(supply.take(region, pairs, nowMs)).toEqual(pairs);
  // Two rounds of a process may have read the same; only one of them asks, and the other doesn't take its ride for one
  // whom nobody is near.
  expect(supply.take(region, pairs, nowMs)).toEqual([]);
  expect(await nearest()).toBe('d2');
  expect(nearestOf(await supply.all(region, [ride]))).toBe('d1');
  supply.answered(region, pairs);
  expect(await nearest()).toBe('d2');
  expect(supply.take(region, pairs, nowMs - 1)).toEqual([]);
  // By then nobody has to say so.
  nowMs += 1;
  expect(await nearest()).toBe('d1');

  // A round that asks somebody who is gone knows no more than that, and the next one looks for itself.
  await city.sql`update driver_state set status = 'offline'`;
  await city.sql`update driver_state set status = 'available' where driver_id in ('d5', 'd6')`;
  await addRides(city.sql, city.region, 2);
  const round = () => runRound({ ...deps, supply }, region);
  expect(await round()).toMatchObject({ looked: 2, offered: 0, nextInMs: 0 });
  expect(await round()).toMatchObject({ looked: 2, offered: 2 });
});

test('where others have looked within the moment a round reads nothing, at the edge of the city either, and the next moment begins with it', async () => {
  await using city = await openCity(0, { searchRadiusM: 6_000, candidatesMax: 2 });
  const { region, context } = await spiral(city, 20);
  let nowMs = 0;
  let reads = 0;
  const sql = new Proxy(city.sql, {
    apply: (target, self, args) => {
      reads += 1;
      return Reflect.apply(target as never, self, args) as unknown;
    },
  });
  const supply = new Supply(sql, () => nowMs);
  const readsOf = async (...places: Point[]): Promise<number> => {
    const before = reads;
    for (const [i, place] of places.entries()) await supply.nearest(region, [waitingRide(`ride-${i}`, place)], context);
    return reads - before;
  };
  const edge = offsetPoint(CENTER, 0, 5_000);
  await supply.all(region, [waitingRide('ride', CENTER)]);
  expect(await readsOf(CENTER)).toBe(1);
  // Near it, where nobody is, and farther.
  expect(await readsOf(edge)).toBe(2);
  expect(await readsOf(CENTER, edge, CENTER)).toBe(0);
  nowMs += 250;
  // Its own, and what the others looked at.
  expect(await readsOf(CENTER)).toBe(2);
  expect(await readsOf(edge, CENTER)).toBe(0);
});

test('a round waits for no herd of leases that end together: it frees some, and the next ones the others', async () => {
  await using city = await openCity(700);
  const { round } = await rounds(city);
  const rideIds = await addRides(city.sql, city.region, 700);
  const asks = rideIds.map((rideId, i) => ({
    rideId,
    driverId: `d${i + 1}`,
    offerId: newId(city.region),
    leaseToken: newLeaseToken(),
    pickupEtaS: 60,
  }));
  await leaseDrivers(city.sql, city.region, asks, leaseTerms, false);
  await moveExpiry(
    city.sql,
    city.region,
    asks.map(({ driverId }) => driverId),
    -600_000,
  );
  const overdue = async (): Promise<number> => {
    const [row] = await city.sql<
      { n: number }[]
    >`select count(*)::int as n from offers where due_at < clock_timestamp()`;
    return row!.n;
  };
  expect(await overdue()).toBe(700);
  await round();
  expect(await overdue()).toBe(200);
  await round();
  expect(await overdue()).toBe(0);
});
