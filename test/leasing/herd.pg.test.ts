/** Many leases that end together: one sweep frees them, in sets side by side. */
import { expect, test } from 'vitest';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import { duePlaces, leaseDrivers } from '../../src/leasing/transitions.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { addRides, type City, leaseTerms, moveExpiry, openCity } from '../support/city.ts';

const HERD = 350;

/** Leases of as many drivers, all over since the same moment. */
async function addHerd({ sql, region }: City): Promise<void> {
  const rideIds = await addRides(sql, region, HERD);
  const asks = rideIds.map((rideId, i) => ({
    rideId,
    driverId: `d${i + 1}`,
    offerId: newId(region),
    leaseToken: newLeaseToken(),
    pickupEtaS: 60,
  }));
  await leaseDrivers(sql, region, asks, leaseTerms, false);
  const driverIds = asks.map(({ driverId }) => driverId);
  await moveExpiry(sql, region, driverIds, -600_000);
}

test('leases that end together are all freed by one sweep, and counted once', async () => {
  await using city = await openCity(HERD);
  await addHerd(city);
  const told: string[] = [];
  const leasing = createLeasing(city.database, createMetrics(), {
    tell: (_region, notices) => void told.push(...notices.map(({ driverId }) => driverId)),
    wake: () => {},
    regionId: String,
  });
  expect(await leasing.expire(city.region)).toBe(HERD);
  const rows = await city.sql`select status, count(*)::int as n from driver_state group by 1`;
  expect(rows).toEqual([{ status: 'available', n: HERD }]);
  expect(new Set(told).size).toBe(HERD);
  expect(told).toHaveLength(HERD);
  expect(await leasing.expire(city.region)).toBe(0);
});

test('a sweep knows where the sets of a herd end, and looks at no lease that isn’t over', async () => {
  await using city = await openCity(HERD);
  await addHerd(city);
  await moveExpiry(city.sql, city.region, ['d1', 'd2'], 1_200_000);
  const due = await city.sql<{ due_at: string; offer_id: string }[]>`
    select due_at::text, id as offer_id from offers where due_at < clock_timestamp() order by due_at, id`;
  expect(due).toHaveLength(HERD - 2);
  const places = await duePlaces(city.sql, city.region, 100, 10_000);
  expect([...places]).toEqual([due[99], due[199], due[299]]);
  expect(await duePlaces(city.sql, city.region, 100, 250)).toHaveLength(2);
});
