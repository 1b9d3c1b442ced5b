/** Drivers who give a ride back, operators who take it, riders who don't come. */
import { expect, test } from 'vitest';
import { connectDatabase } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { verify } from '../../src/verify/verify.ts';
import { lease, leaseTerms, type Term } from '../support/city.ts';
import { openTown, type Town } from '../support/town.ts';

async function assign(town: Town, rideId: string, driverId: string): Promise<Term> {
  const term = await lease(town.sql, town.region, rideId, driverId);
  expect(await transitions.confirmOffers(town.sql, town.region, [term], true)).toMatchObject([{ applied: true }]);
  return term;
}
const giveBack = (town: Town, rideId: string, driverId: string) =>
  transitions.unassignRides(town.sql, town.region, [{ rideId, driverId, reason: 'flat_tyre' }], true);
const take = (town: Town, rideId: string, driverId: string) =>
  transitions.unassignRides(town.sql, town.region, [{ rideId, driverId, source: 'operator', reason: 'vip' }], true);
const step = (town: Town, rideId: string, driverId: string, status: transitions.RideStep) =>
  transitions.advanceRides(town.sql, town.region, [{ rideId, driverId, status }], true);
const reassignment = (town: Town, rideId: string, fromDriverId: string, driverId: string) => ({
  rideId,
  fromDriverId,
  driverId,
  source: 'operator' as const,
  reason: 'closer',
  offerId: newId(town.region),
  leaseToken: newLeaseToken(),
  pickupEtaS: 1,
});

test('a ride that is given back keeps its place in line, and no accept of its old search books', async () => {
  await using town = await openTown(3);
  const [first, second] = [await town.ask(), await town.ask()];
  const old = await assign(town, first, 'd1');
  await giveBack(town, first, 'd1');
  expect(await town.ride(first)).toMatchObject({ status: 'searching', search_try: 2 });
  for (const driverId of ['d1', 'd3']) await town.profile(driverId, { status: 'offline' });
  // d2 alone is left for both: whoever asked first is first.
  expect(await town.round()).toEqual([`${first} d2`]);
  expect(await transitions.confirmOffers(town.sql, town.region, [old], true)).toMatchObject([{ applied: false }]);
  expect(await town.ride(first)).toMatchObject({ status: 'searching', live_offers: 1 });
  expect(await town.ride(second)).toMatchObject({ status: 'searching', live_offers: 0 });
  expect((await verify(town.url)).violations).toBe(0);
});

test('an open offer of an old search can’t book, should there ever be one', async () => {
  await using town = await openTown(1);
  const rideId = await town.ask();
  const term = await lease(town.sql, town.region, rideId, 'd1');
  await town.sql`update rides set search_try = 2`;
  expect(await transitions.confirmOffers(town.sql, town.region, [term], true)).toMatchObject([
    { applied: false, refused: 'lease_expired' },
  ]);
});

test('a ride that too many gave back isn’t searched for by itself any more', async () => {
  await using town = await openTown(4, { givebacksMax: 1, rescueMs: 60_000 });
  const rideId = await town.ask();
  await assign(town, rideId, 'd1');
  await giveBack(town, rideId, 'd1');
  expect(await town.round()).toHaveLength(1);
  const [leased] = await town.sql<{ driver_id: string; offer_id: string; lease_token: string }[]>`
    select driver_id, offer_id, lease_token from driver_state where status = 'leased'`;
  const claim = { offerId: leased!.offer_id, leaseToken: leased!.lease_token, driverId: leased!.driver_id };
  await transitions.confirmOffers(town.sql, town.region, [claim], true);
  await giveBack(town, rideId, leased!.driver_id);
  expect(await town.round()).toEqual([]);
  expect((await town.events(rideId)).at(-1)).toBe('rescue_needed');
  expect((await verify(town.url)).violations).toBe(0);
});

test('an operator takes a ride from its driver, once, whatever the double click says', async () => {
  await using town = await openTown(1);
  const rideId = await town.ask();
  await assign(town, rideId, 'd1');
  const answers = (await Promise.all([take(town, rideId, 'd1'), take(town, rideId, 'd1')])).flat();
  expect(answers.map(({ refused }) => refused)).toEqual([null, null]);
  expect(answers.filter(({ applied }) => applied)).toHaveLength(1);
  expect(await town.driver('d1')).toMatchObject({ status: 'available' });
  expect(await town.events(rideId)).toEqual(['ride_requested', 'offer_made', 'offer_accepted', 'driver_unassigned']);
  expect(await town.sql`select ended_as from assignments`).toMatchObject([{ ended_as: 'unassigned' }]);
  expect(await take(town, rideId, 'nobody')).toMatchObject([{ refused: 'wrong_driver' }]);
  expect((await verify(town.url)).violations).toBe(0);
});

test('reassigned, a ride goes from one driver to the other, or nothing changes at all', async () => {
  await using town = await openTown(3);
  const [rideId, other] = [await town.ask(), await town.ask()];
  await assign(town, rideId, 'd1');
  await assign(town, other, 'd2');
  const before = await town.everything();
  const refused = await transitions.reassignRide(
    town.sql,
    town.region,
    reassignment(town, rideId, 'd1', 'd2'),
    leaseTerms,
  );
  expect(refused).toMatchObject({ refused: 'driver_unavailable', applied: false });
  expect(await town.everything()).toEqual(before);
  const done = await transitions.reassignRide(
    town.sql,
    town.region,
    reassignment(town, rideId, 'd1', 'd3'),
    leaseTerms,
  );
  expect(done).toMatchObject({ refused: null, applied: true, fence: 1 });
  expect(await town.ride(rideId)).toMatchObject({ status: 'assigned', assigned_driver_id: 'd3', search_try: 2 });
  expect(await town.driver('d1')).toMatchObject({ status: 'available' });
  expect((await verify(town.url)).violations).toBe(0);
});

test('the system finds a better driver for a ride once, an operator as often as he likes', async () => {
  await using town = await openTown(4);
  const [rideId, other] = [await town.ask(), await town.ask()];
  await assign(town, rideId, 'd1');
  // Another's arrival is no obstacle.
  await assign(town, other, 'd2');
  await step(town, other, 'd2', 'driver_arrived');
  const give = (from: string, to: string, source: 'operator' | 'system') => {
    const ask = { ...reassignment(town, rideId, from, to), source, reason: 'replaced' };
    return transitions.reassignRide(town.sql, town.region, ask, leaseTerms);
  };
  expect(await give('d1', 'd3', 'system')).toMatchObject({ refused: null, applied: true });
  expect(await give('d3', 'd4', 'system')).toMatchObject({ refused: 'wrong_phase', applied: false });
  expect(await give('d3', 'd4', 'operator')).toMatchObject({ refused: null, applied: true });
  await step(town, rideId, 'd4', 'driver_arrived');
  expect(await give('d4', 'd1', 'operator')).toMatchObject({ refused: null, applied: true });
  expect((await verify(town.url)).violations).toBe(0);
});

test('a ride that is given to another and, by a second click, to a third, is given once', async () => {
  await using town = await openTown(3);
  const rideId = await town.ask();
  await assign(town, rideId, 'd1');
  const give = (to: string) =>
    transitions.reassignRide(town.sql, town.region, reassignment(town, rideId, 'd1', to), leaseTerms);
  expect(await give('d2')).toMatchObject({ refused: null, applied: true });
  const before = await town.everything();
  for (const to of ['d2', 'd3']) expect(await give(to)).toMatchObject({ refused: null, applied: false });
  expect(await town.everything()).toEqual(before);
});

test('two operators reassign at once, each to another: one has it, and neither driver has two rides', async () => {
  await using town = await openTown(12);
  await using many = connectDatabase(town.url, { hotConnections: 8 });
  for (let i = 0; i < 4; i++) {
    const [a, b, c] = [`d${3 * i + 1}`, `d${3 * i + 2}`, `d${3 * i + 3}`];
    const [one, two] = [await town.ask(), await town.ask()];
    await assign(town, one, a);
    await assign(town, two, b);
    // Crosswise too: a's ride to b and b's ride to a can't both be, and don't wait for each other for ever.
    const asks = [
      reassignment(town, one, a, c),
      reassignment(town, one, a, b),
      reassignment(town, two, b, a),
      reassignment(town, two, b, c),
    ];
    const answers = await Promise.all(
      asks.map((ask) => transitions.reassignRide(many.hot, town.region, ask, leaseTerms)),
    );
    expect(answers.filter(({ applied }) => applied).length).toBeGreaterThanOrEqual(1);
    const live =
      await town.sql`select driver_id from assignments where ended_at is null and ride_id in (${one}, ${two})`;
    expect(live).toHaveLength(2);
  }
  expect((await verify(town.url)).violations).toBe(0);
});

test('a rider who doesn’t come in time: the ride is cancelled as no_show, and the driver is free', async () => {
  await using town = await openTown(3, { noShowAfterMs: 120_000 });
  const [gone, here, back] = [await town.ask(), await town.ask(), await town.ask()];
  for (const [rideId, driverId] of [
    [gone, 'd1'],
    [here, 'd2'],
    [back, 'd3'],
  ] as const) {
    await assign(town, rideId, driverId);
    await step(town, rideId, driverId, 'driver_arrived');
  }
  expect(await transitions.cancelNoShows(town.sql, town.region, 10)).toEqual([]);
  await step(town, here, 'd2', 'in_progress');
  await giveBack(town, back, 'd3');
  await town.sql`update rides set no_show_at = updated_at where no_show_at is not null`;
  expect(await transitions.cancelNoShows(town.sql, town.region, 10)).toEqual([{ ride_id: gone, driver_id: 'd1' }]);
  expect(await town.ride(gone)).toMatchObject({
    status: 'cancelled',
    cancel_source: 'system',
    cancel_reason: 'no_show',
    cancel_phase: 'driver_arrived',
  });
  expect(await town.driver('d1')).toMatchObject({ status: 'available' });
  expect(await town.ride(here)).toMatchObject({ status: 'in_progress' });
  expect(await town.ride(back)).toMatchObject({ status: 'searching' });
  expect((await verify(town.url)).violations).toBe(0);
});

test('the rider gets in as the time is up: the trip or the no-show, never both', async () => {
  await using town = await openTown(20, { noShowAfterMs: 120_000 });
  await using many = connectDatabase(town.url, { hotConnections: 8 });
  const rides = await Promise.all(town.driverIds.map(() => town.ask()));
  for (const [i, rideId] of rides.entries()) {
    await assign(town, rideId, town.driverIds[i]!);
    await step(town, rideId, town.driverIds[i]!, 'driver_arrived');
  }
  await town.sql`update rides set no_show_at = updated_at`;
  const starts = rides.map((rideId, i) =>
    transitions.advanceRides(
      many.hot,
      town.region,
      [{ rideId, driverId: town.driverIds[i]!, status: 'in_progress' }],
      true,
    ),
  );
  const sweeps = Array.from({ length: 10 }, () => transitions.cancelNoShows(many.hot, town.region, 5));
  const [started, cancelled] = await Promise.all([Promise.all(starts), Promise.all(sweeps)]);
  const trips = started.flat().filter(({ applied }) => applied).length;
  expect(trips + cancelled.flat().length).toBe(rides.length);
  expect(await town.sql`select from rides where status = 'in_progress'`).toHaveLength(trips);
  expect((await verify(town.url)).violations).toBe(0);
});
