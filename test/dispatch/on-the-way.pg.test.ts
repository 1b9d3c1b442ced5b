/** Operators who keep a ride to themselves, drivers who don't come, and better ones found before the pickup. */
import { expect, test } from 'vitest';
import { cellOf, offsetPoint, type Point } from '../../domain/geo.ts';
import { connectDatabase } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { verify } from '../../src/verify/verify.ts';
import { CENTER, lease, leaseTerms, type Term } from '../support/city.ts';
import { openTown, type Town } from '../support/town.ts';

async function assign(town: Town, rideId: string, driverId: string): Promise<Term> {
  const term = await lease(town.sql, town.region, rideId, driverId);
  expect(await transitions.confirmOffers(town.sql, town.region, [term], true)).toMatchObject([{ applied: true }]);
  return term;
}
const at = (northM: number): Point => offsetPoint(CENTER, 0, northM);
const put = (town: Town, driverId: string, position: Point) =>
  transitions.recordPositions(town.sql, town.region, [{ driverId, position: { ...position, cell: cellOf(position) } }]);
/** As if nobody had come nearer for so long. */
const standStill = (town: Town, ms: number) =>
  town.sql`update pickup_progress set nearer_at = nearer_at - ${`${ms} milliseconds`}::interval`;
const assignment = (town: Town, rideId: string, driverId: string) => ({
  rideId,
  driverId,
  offerId: newId(town.region),
  leaseToken: newLeaseToken(),
  pickupEtaS: 1,
});

test('a held ride is nobody’s but the operator’s: its offer is withdrawn, and rounds pass it by', async () => {
  await using town = await openTown(2, { holdMs: 60_000 });
  const rideId = await town.ask();
  const term = await lease(town.sql, town.region, rideId, 'd1');
  const before = await town.ride(rideId);
  const answers = await Promise.all([1, 2].map(() => transitions.holdRide(town.sql, town.region, rideId, 'vip')));
  expect(answers.map(({ refused, applied }) => ({ refused, applied })).toSorted((a) => (a.applied ? -1 : 1))).toEqual([
    { refused: null, applied: true },
    { refused: null, applied: false },
  ]);
  expect(await town.events(rideId)).toEqual(['ride_requested', 'offer_made', 'offer_withdrawn', 'ride_held']);
  expect(await town.driver('d1')).toMatchObject({ status: 'available' });
  expect(await transitions.confirmOffers(town.sql, town.region, [term], true)).toMatchObject([
    { applied: false, refused: 'lease_lost' },
  ]);
  const held = await town.ride(rideId);
  const patience = (ride: Record<string, unknown>) => (ride['patience_until'] as Date).getTime();
  expect(patience(held) - patience(before)).toBe(60_000);
  // Not even a round that had read the ride before, and wherever its row says it is due.
  expect(await town.round()).toEqual([]);
  expect(await town.ride(rideId)).toMatchObject({ status: 'searching', live_offers: 0 });
  const asked = { ...assignment(town, rideId, 'd2'), seenExclusions: 0 };
  const [answer] = await transitions.leaseDrivers(town.sql, town.region, [asked], leaseTerms, true);
  expect(answer!.refused).toBe('ride_held');
  const [byHand] = await transitions.assignDrivers(
    town.sql,
    town.region,
    [assignment(town, rideId, 'd2')],
    leaseTerms,
    true,
  );
  expect(byHand!.refused).toBeNull();
  expect(await town.ride(rideId)).toMatchObject({ status: 'assigned', held_until: null });
  expect(await transitions.holdRide(town.sql, town.region, rideId, 'vip')).toMatchObject({
    refused: 'ride_not_searching',
  });
  expect((await verify(town.url)).violations).toBe(0);
});

test('released, or when its time is over, a held ride is searched for again with what was left of its patience', async () => {
  await using town = await openTown(2, { holdMs: 60_000 });
  const [released, outlasted] = [await town.ask(), await town.ask()];
  const patience = async (rideId: string) => ((await town.ride(rideId))['patience_until'] as Date).getTime();
  const before = await patience(released);
  for (const rideId of [released, outlasted]) await transitions.holdRide(town.sql, town.region, rideId, 'vip');
  expect(await transitions.releaseHold(town.sql, town.region, released, 'solved')).toMatchObject({ applied: true });
  expect(await transitions.releaseHold(town.sql, town.region, released, 'solved')).toMatchObject({
    refused: null,
    applied: false,
  });
  expect((await patience(released)) - before).toBeLessThan(30_000);
  expect(await town.round()).toHaveLength(1);
  await town.sql`update rides set held_until = updated_at where id = ${outlasted}`;
  expect(await town.round()).toHaveLength(1);
  expect((await verify(town.url)).violations).toBe(0);
});

test('an operator’s own offer of a held ride comes to nothing: the ride stays held', async () => {
  await using town = await openTown(1, { holdMs: 60_000 });
  const rideId = await town.ask();
  await transitions.holdRide(town.sql, town.region, rideId, 'vip');
  const term = await lease(town.sql, town.region, rideId, 'd1');
  await transitions.returnOffers(town.sql, town.region, [{ ...term, reason: 'no' }], 'declined', true);
  const { queue_at: queueAt, held_until: heldUntil } = await town.ride(rideId);
  expect(queueAt).toEqual(heldUntil);
  expect((await verify(town.url)).violations).toBe(0);
});

test('an accept and a hold at once: the driver has the ride or the operator holds it, never both', async () => {
  await using town = await openTown(20);
  await using many = connectDatabase(town.url, { hotConnections: 8 });
  const rides = await Promise.all(town.driverIds.map(() => town.ask()));
  const terms = await Promise.all(rides.map((rideId, i) => lease(town.sql, town.region, rideId, town.driverIds[i]!)));
  const [accepts, holds] = await Promise.all([
    Promise.all(terms.map((term) => transitions.confirmOffers(many.hot, town.region, [term], true))),
    Promise.all(rides.map((rideId) => transitions.holdRide(many.hot, town.region, rideId, 'vip'))),
  ]);
  const accepted = accepts.flat().map(({ applied }) => applied);
  expect(holds.map(({ applied }) => applied)).toEqual(accepted.map((has) => !has));
  expect((await verify(town.url)).violations).toBe(0);
});

test('a driver who doesn’t come nearer is flagged once, and no more when he does', async () => {
  await using town = await openTown(1, { stalledAfterMs: 60_000 });
  const rideId = await town.ask({ pickup: at(3_000) });
  await assign(town, rideId, 'd1');
  await town.watch();
  await standStill(town, 60_000);
  await town.watch();
  await town.watch();
  expect(await town.ride(rideId)).toMatchObject({ status: 'assigned', stalled_since: expect.any(Date) });
  await put(town, 'd1', at(200));
  await town.watch();
  expect(await town.ride(rideId)).toMatchObject({ status: 'assigned', stalled_since: null });
  // However long: the policy doesn't say that the ride is taken from him.
  await standStill(town, 86_400_000);
  await town.watch();
  await town.watch();
  expect((await town.events(rideId)).slice(-3)).toEqual(['pickup_stalled', 'pickup_resumed', 'pickup_stalled']);
  expect((await verify(town.url)).violations).toBe(0);
});

test('a ride is taken from a driver who doesn’t come, or whose phone is silent, and searches on without him', async () => {
  await using town = await openTown(2, {
    stalledAfterMs: 60_000,
    stalledReplacedAfterMs: 120_000,
    searchRadiusM: 5_000,
  });
  const [still, silent] = [await town.ask({ pickup: at(3_000) }), await town.ask({ pickup: at(3_000) })];
  await assign(town, still, 'd1');
  await assign(town, silent, 'd2');
  await town.watch();
  await town.sql`delete from driver_presence where driver_id = 'd2'`;
  await standStill(town, 60_000);
  await town.watch();
  expect(await town.sql`select from rides where stalled_since is not null`).toHaveLength(2);
  await standStill(town, 60_000);
  await town.watch();
  for (const rideId of [still, silent]) {
    expect(await town.ride(rideId)).toMatchObject({
      status: 'searching',
      excluded_as: ['stalled'],
      stalled_since: null,
      search_try: 2,
    });
  }
  expect(await town.driver('d1')).toMatchObject({ status: 'available' });
  expect(await town.sql`select reason from ride_events where type = 'driver_unassigned'`).toMatchObject([
    { reason: 'system:stalled' },
    { reason: 'system:stalled' },
  ]);
  expect(await town.round()).toEqual([`${silent} d1`]);
  await town.watch();
  expect(await town.sql`select from pickup_progress`).toHaveLength(0);
  expect((await verify(town.url)).violations).toBe(0);
});

test('he arrives as the ride is taken from him: he has it, or it is another’s, never both', async () => {
  await using town = await openTown(20, { stalledAfterMs: 60_000, stalledReplacedAfterMs: 120_000 });
  await using many = connectDatabase(town.url, { hotConnections: 8 });
  const rides = await Promise.all(town.driverIds.map(() => town.ask()));
  const terms: Term[] = [];
  for (const [i, rideId] of rides.entries()) terms.push(await assign(town, rideId, town.driverIds[i]!));
  const flags = terms.map(({ rideId, offerId }) => ({ rideId, offerId, stalledMs: 60_000 }));
  expect(await transitions.flagPickups(town.sql, town.region, flags)).toHaveLength(20);
  const [arrivals, takings] = await Promise.all([
    Promise.all(
      terms.map(({ rideId, driverId }) =>
        transitions.advanceRides(many.hot, town.region, [{ rideId, driverId, status: 'driver_arrived' }], true),
      ),
    ),
    Promise.all(
      Array.from({ length: 5 }, (_, i) => terms.slice(4 * i, 4 * i + 4)).map((set) =>
        transitions.replaceStalled(many.hot, town.region, set),
      ),
    ),
  ]);
  const arrived = arrivals.flat().filter(({ applied }) => applied).length;
  expect(arrived + takings.flat().length).toBe(20);
  expect(await town.sql`select from rides where status = 'driver_arrived'`).toHaveLength(arrived);
  expect((await verify(town.url)).violations).toBe(0);
});

test('a clearly better driver takes the ride over, once, and the first is free at once', async () => {
  await using town = await openTown(3, { betterDriverSavesMs: 120_000 });
  const rideId = await town.ask({ pickup: at(3_000) });
  await assign(town, rideId, 'd1');
  for (const driverId of ['d2', 'd3']) await town.profile(driverId, { status: 'offline' });
  await town.profile('d2', { status: 'available' });
  // 400 m nearer are 80 s: not worth two drivers' trouble.
  await put(town, 'd2', at(400));
  await town.watch();
  expect(await town.ride(rideId)).toMatchObject({ assigned_driver_id: 'd1' });
  await put(town, 'd2', at(1_500));
  await town.watch();
  expect(await town.ride(rideId)).toMatchObject({
    status: 'assigned',
    assigned_driver_id: 'd2',
    excluded_as: ['replaced'],
  });
  expect(await town.driver('d1')).toMatchObject({ status: 'available' });
  await town.profile('d3', { status: 'available' });
  await put(town, 'd3', at(3_000));
  await town.watch();
  expect(await town.ride(rideId)).toMatchObject({ assigned_driver_id: 'd2' });
  const again = {
    ...assignment(town, rideId, 'd3'),
    fromDriverId: 'd2',
    source: 'system' as const,
    reason: 'replaced',
  };
  expect(await transitions.reassignRide(town.sql, town.region, again, leaseTerms)).toMatchObject({
    refused: 'wrong_phase',
    applied: false,
  });
  expect((await verify(town.url)).violations).toBe(0);
});

test('nobody is moved for one who doesn’t suit the ride, while a ride waits, or after the first has arrived', async () => {
  await using town = await openTown(2, { betterDriverSavesMs: 120_000 });
  const rideId = await town.ask({ pickup: at(3_000) });
  await assign(town, rideId, 'd1');
  await put(town, 'd2', at(2_900));
  await town.profile('d2', { vehicle_class: 'van' });
  await town.watch();
  await town.profile('d2', { vehicle_class: 'economy' });
  const waiting = await town.ask();
  await town.watch();
  await transitions.cancelRides(
    town.sql,
    town.region,
    [{ rideId: waiting, riderId: null, source: 'operator', reason: 'test' }],
    true,
  );
  expect(await town.ride(rideId)).toMatchObject({ assigned_driver_id: 'd1' });
  const arrival = { rideId, driverId: 'd1', status: 'driver_arrived' as const };
  expect(await transitions.advanceRides(town.sql, town.region, [arrival], true)).toMatchObject([{ applied: true }]);
  const late = { ...assignment(town, rideId, 'd2'), fromDriverId: 'd1', source: 'system' as const, reason: 'replaced' };
  expect(await transitions.reassignRide(town.sql, town.region, late, leaseTerms)).toMatchObject({
    refused: 'wrong_phase',
  });
  await town.watch();
  expect(await town.ride(rideId)).toMatchObject({ status: 'driver_arrived', assigned_driver_id: 'd1' });
  expect((await verify(town.url)).violations).toBe(0);
});
