/** Match rounds with nothing around them: no queue, no sweeper, no gateway. */
import { expect, test, vi } from 'vitest';
import { noFaults } from '../../src/dispatch/faults.ts';
import { startMatcher } from '../../src/dispatch/matcher.ts';
import { runRound } from '../../src/dispatch/round.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { Regions } from '../../src/regions.ts';
import { addRides, moveExpiry, openCity, type City } from '../support/city.ts';

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };

async function rounds(city: City) {
  const metrics = createMetrics();
  // Nobody is told and nobody is woken.
  const leasing = createLeasing(city.database, metrics, { tell: () => {}, wake: () => {} });
  const regions = new Regions(city.database);
  const deps = { sql: city.sql, leasing, regions, metrics, faults: noFaults };
  const region = (await regions.byNumber(city.region))!;
  return { deps, round: () => runRound(deps, region) };
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
