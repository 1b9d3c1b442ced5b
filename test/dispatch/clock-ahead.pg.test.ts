/** What a database clock that was an hour ahead leaves behind when it is put back. */
import { expect, test } from 'vitest';
import { defaultPolicy } from '../../domain/policy.ts';
import { ClockAhead } from '../../src/dispatch/clock-ahead.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { Regions } from '../../src/regions.ts';
import { verify } from '../../src/verify/verify.ts';
import { addRegion, addRides, type City, lease, openCity } from '../support/city.ts';

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const LIFETIME_MS = defaultPolicy.maxLifetimeMs;
const RESCUE_MS = 2 * defaultPolicy.retryMaxMs;

/** A sweeper's mending, by a clock of the test's own. */
async function mender(city: City): Promise<(atMs: number) => Promise<void>> {
  const leasing = createLeasing(city.database, createMetrics(), { tell: () => {}, wake: () => {}, regionId: String });
  const regions = new Regions(city.database);
  let nowMs = 0;
  const clockAhead = new ClockAhead({ sql: city.sql, leasing, regions, log: silent }, () => nowMs);
  return async (atMs: number): Promise<void> => {
    nowMs = atMs;
    await clockAhead.mend();
  };
}

/** As if all of it had been written by a clock that was an hour ahead. */
async function writtenAnHourAhead({ sql }: City): Promise<void> {
  for (const table of ['rides', 'offers', 'driver_state', 'assignments', 'ride_events']) {
    const columns = await sql<{ name: string }[]>`select column_name as name from information_schema.columns
      where table_name = ${table} and data_type = 'timestamp with time zone'`;
    const moved = columns.map(({ name }) => `${name} = ${name} + interval '1 hour'`);
    await sql.unsafe(`update ${table} set ${moved.join(', ')}`);
  }
}

const isDue = async (city: City, rideId: string): Promise<unknown> =>
  (await city.sql`select queue_at <= clock_timestamp() as due from rides where id = ${rideId}`)[0]!['due'];

test('a lease of the future ends when it has been known for as long as it may live, and its ride is due', async () => {
  await using city = await openCity(2);
  const [received, unheard] = await addRides(city.sql, city.region, 2);
  const term = await lease(city.sql, city.region, received!, 'd1');
  await transitions.receiveOffers(city.sql, city.region, [term], true);
  const silentTerm = await lease(city.sql, city.region, unheard!, 'd2');
  await writtenAnHourAhead(city);
  const mendAt = await mender(city);
  for (const atMs of [0, LIFETIME_MS - 1]) {
    await mendAt(atMs);
    expect(await city.driver('d1')).toMatchObject({ status: 'leased' });
  }
  await mendAt(LIFETIME_MS);
  expect(await city.driver('d1')).toMatchObject({ status: 'available', offer_id: null });
  expect(await city.offer(term.offerId)).toMatchObject({ status: 'expired' });
  expect(await city.offer(silentTerm.offerId)).toMatchObject({ status: 'undeliverable' });
  expect([await isDue(city, received!), await isDue(city, unheard!)]).toEqual([true, true]);
  const [patience] =
    await city.sql`select max(extract(epoch from patience_until - clock_timestamp()) * 1000)::float8 as ms from rides`;
  expect(patience!['ms']).toBeLessThanOrEqual(defaultPolicy.patienceMs);
  expect(await transitions.termsAhead(city.sql, city.region, 10)).toEqual([]);
  // Its holder hears that it is over, and the driver serves another ride.
  const [late] = await transitions.confirmOffers(city.sql, city.region, [term], true);
  expect(late).toMatchObject({ applied: false, refused: 'lease_expired' });
  const next = await lease(city.sql, city.region, unheard!, 'd1');
  const [confirmed] = await transitions.confirmOffers(city.sql, city.region, [next], true);
  expect(confirmed).toMatchObject({ applied: true });
  expect(await verify(city.url)).toMatchObject({ violations: 0 });
});

test('what is known anew has its whole life before it; what somebody holds is ended the next time', async () => {
  await using city = await openCity(1);
  const [first, second] = await addRides(city.sql, city.region, 2);
  const term = await lease(city.sql, city.region, first!, 'd1');
  await writtenAnHourAhead(city);
  const mendAt = await mender(city);
  await mendAt(0);
  await transitions.returnOffers(city.sql, city.region, [{ ...term, reason: 'other' }], 'withdrawn', true);
  const again = await lease(city.sql, city.region, second!, 'd1');
  await mendAt(LIFETIME_MS);
  expect(await city.offer(again.offerId)).toMatchObject({ status: 'pending' });
  for (const table of ['driver_state', 'rides'])
    await city.sql.begin(async (tx) => {
      await tx`select from ${tx(table)} for update`;
      await mendAt(2 * LIFETIME_MS);
      expect(await city.offer(again.offerId)).toMatchObject({ status: 'pending' });
    });
  await mendAt(2 * LIFETIME_MS);
  expect(await city.offer(again.offerId)).toMatchObject({ status: 'undeliverable' });
});

test('of the leases of the future only those that are named end', async () => {
  await using city = await openCity(2);
  const [first, second] = await addRides(city.sql, city.region, 2);
  const named = await lease(city.sql, city.region, first!, 'd1');
  const other = await lease(city.sql, city.region, second!, 'd2');
  await writtenAnHourAhead(city);
  const rowsOfTheOther = () => Promise.all([city.offer(other.offerId), city.driver('d2'), city.ride(second!)]);
  const before = await rowsOfTheOther();
  expect(await transitions.endTermsAhead(city.sql, city.region, [named.offerId])).toMatchObject([
    { offer_id: named.offerId, driver_id: 'd1', ended_as: 'undeliverable' },
  ]);
  expect(await rowsOfTheOther()).toEqual(before);
  expect(await transitions.endTermsAhead(city.sql, city.region, [named.offerId])).toEqual([]);
});

test('nobody’s patience lasts because positions were lost at a time that is yet to come', async () => {
  await using city = await openCity(0);
  const [rideId] = await addRides(city.sql, city.region, 1, 1);
  await city.sql`insert into presence_epochs values (${city.region}, clock_timestamp() + interval '1 hour')`;
  const settle = (recoveryMs: number) =>
    transitions.settleRides(city.sql, city.region, [{ rideId: rideId!, waitMs: 0, reason: 'nobody_near' }], {
      offersMax: 1,
      rescueMs: 0,
      recoveryMs,
    });
  expect(await settle(60_000)).toMatchObject([{ given_up: false }]);
  expect(await settle(0)).toMatchObject([{ given_up: true }]);
});

test('another region’s waits take no part of what a region’s look may bring forward', async () => {
  await using city = await openCity(0);
  const other = await addRegion(city.sql, 'paris');
  for (const region of [other, city.region]) await addRides(city.sql, region, 1);
  await writtenAnHourAhead(city);
  expect(await transitions.bringRidesForward(city.sql, city.region, 1_000, 1)).toBe(1);
  expect(await transitions.bringRidesForward(city.sql, city.region, 1_000, 1)).toBe(0);
});

test('leases and waits of a clock that was right are left alone, and so is a ride that an operator holds', async () => {
  await using city = await openCity(1, { rescueMs: RESCUE_MS });
  const [leased, waiting, rescued, held] = await addRides(city.sql, city.region, 4);
  const term = await lease(city.sql, city.region, leased!, 'd1');
  const wait = async (rideId: string, waitMs: number): Promise<void> => {
    await city.sql`update rides set queue_at = clock_timestamp() + make_interval(secs => ${waitMs / 1000}) where id = ${rideId}`;
  };
  await wait(waiting!, defaultPolicy.retryMaxMs);
  await wait(rescued!, RESCUE_MS);
  await transitions.holdRide(city.sql, city.region, held!, 'a call');
  await wait(held!, 3_600_000);
  const mendAt = await mender(city);
  await mendAt(0);
  await mendAt(10 * LIFETIME_MS);
  expect(await city.offer(term.offerId)).toMatchObject({ status: 'pending' });
  for (const rideId of [waiting!, rescued!, held!]) expect(await isDue(city, rideId)).toBe(false);
  await wait(waiting!, 3_600_000);
  await mendAt(11 * LIFETIME_MS);
  expect(await isDue(city, waiting!)).toBe(true);
  for (const rideId of [rescued!, held!]) expect(await isDue(city, rideId)).toBe(false);

  // A later policy asks nobody to wait so long; the ride keeps its own.
  const document = { ...defaultPolicy, rescueMs: 0 };
  await city.sql`insert into policies (region, version, document, created_by)
    values (${city.region}, 2, ${city.sql.json(document as never)}, 'test')`;
  await city.sql`update regions set policy_version = 2`;
  const laterMend = await mender(city);
  await laterMend(0);
  expect(await isDue(city, rescued!)).toBe(false);
  await wait(rescued!, RESCUE_MS + 5_000);
  await laterMend(1);
  expect(await isDue(city, rescued!)).toBe(true);
});
