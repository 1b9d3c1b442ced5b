import { afterAll, expect, test } from 'vitest';
import { Admission } from '../../src/leasing/admission.ts';
import { OverloadedError } from '../../src/leasing/group-commit.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { addRegion, addRides, newRide, openCity } from '../support/city.ts';

const city = await openCity(0);
afterAll(() => city[Symbol.asyncDispose]());
const { sql } = city;

/** So many rides of a region of its own, all due since `overdueMs`. */
async function addOverdue(id: string, count: number, overdueMs: number): Promise<number> {
  const region = await addRegion(sql, id);
  await addRides(sql, region, count);
  await sql`update rides set queue_at = clock_timestamp() - ${`${overdueMs} milliseconds`}::interval where region = ${region}`;
  return region;
}

test('a ride is refused while a whole round’s worth of rides waits too long, and leaves no trace', async () => {
  const region = await addOverdue('late', 500, 2_000);
  const metrics = createMetrics();
  const leasing = createLeasing(city.database, metrics, { tell: () => {}, wake: () => {}, regionId: String });
  await expect(leasing.request(region, newRide(region))).rejects.toThrow(OverloadedError);
  const [row] = await sql<{ rides: number }[]>`select count(*)::int as rides from rides where region = ${region}`;
  expect(row!.rides).toBe(500);
  expect(await metrics.registry.metrics()).toContain(
    'cabrank_transitions_total{transition="request",outcome="overloaded"} 1',
  );
});

test('fewer rides than a round takes may wait for as long as a matcher is gone', async () => {
  expect(await new Admission(sql).admits(await addOverdue('few', 499, 60_000))).toBe(true);
});

test('a rush is taken: its rides haven’t waited yet', async () => {
  expect(await new Admission(sql).admits(await addOverdue('rush', 600, 500))).toBe(true);
});

test('the region is looked at again after a while, and not for every request', async () => {
  let nowMs = 0;
  const region = await addOverdue('later', 500, 2_000);
  const admission = new Admission(sql, () => nowMs);
  expect(await admission.admits(region)).toBe(false);
  await sql`update rides set queue_at = clock_timestamp() where region = ${region}`;
  nowMs = 249;
  expect(await admission.admits(region)).toBe(false);
  nowMs = 250;
  // Nobody waits for the new look: it answers those who come after it.
  await expect.poll(() => admission.admits(region)).toBe(true);
});
