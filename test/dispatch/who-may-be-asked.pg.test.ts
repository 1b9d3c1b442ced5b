/** Whom a round asks, and why it asks nobody: on the records, with nothing around the rounds. */
import { expect, test } from 'vitest';
import { cellOf, offsetPoint } from '../../domain/geo.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { verify } from '../../src/verify/verify.ts';
import { CENTER, lease, leaseTerms, moveExpiry } from '../support/city.ts';
import { openTown, type Town } from '../support/town.ts';

test('each ride goes to a driver who has what it needs', async () => {
  await using town = await openTown(4);
  await town.profile('d1', { vehicle_class: 'van' });
  await town.profile('d2', { seats: 6 });
  await town.profile('d3', { attributes: ['pet', 'wheelchair'] });
  const rides = [
    await town.ask({ vehicleClass: 'van' }),
    await town.ask({ seats: 5 }),
    await town.ask({ attributes: ['wheelchair'] }),
    await town.ask({ seats: 2 }),
  ];
  expect(await town.round()).toEqual(rides.map((rideId, i) => `${rideId} d${i + 1}`));
});

test('a higher class is for whoever has waited, a lower one for whoever allows it', async () => {
  await using town = await openTown(2, { vehicleClasses: ['economy', 'comfort'], higherClassAfterMs: 60_000 });
  await town.profile('d1', { vehicle_class: 'comfort' });
  await town.profile('d2', { status: 'offline' });
  const economy = await town.ask();
  expect(await town.round()).toEqual([]);
  await town.letWait(economy, 60_000);
  expect(await town.round()).toEqual([`${economy} d1`]);
  await town.profile('d2', { status: 'available' });
  const strict = await town.ask({ vehicleClass: 'comfort' });
  await town.letWait(strict, 240_000);
  expect(await town.round()).toEqual([]);
  const easy = await town.ask({ vehicleClass: 'comfort', acceptsLowerClass: true });
  expect(await town.round()).toEqual([`${easy} d2`]);
});

test('a driver’s own limits hold: the longest way to a pickup, and the end of the shift', async () => {
  await using town = await openTown(2);
  await town.profile('d1', { max_pickup_m: 500 });
  await town.profile('d2', { shift_ends_at: new Date(Date.now() + 60_000) });
  const far = await town.ask({ pickup: offsetPoint(CENTER, 0, 800) });
  expect(await town.round()).toEqual([]);
  await town.sql`update rides set patience_until = requested_at where id = ${far}`;
  await town.round();
  expect(await town.reasonOfEnd(far)).toMatch(/^(pickup_too_far|shift_ends)$/);
  // A short trip from here ends before the shift, and is near enough.
  const rides = [await town.ask({ dropoff: CENTER }), await town.ask({ dropoff: CENTER })];
  expect((await town.round()).map((offer) => offer.split(' ')[0]).toSorted()).toEqual(rides.toSorted());
});

test('a rider and a driver who are kept apart aren’t brought together, by nobody', async () => {
  await using town = await openTown(1);
  const rideId = await town.ask({ riderId: 'rosa' });
  const block = { region: town.region, rider_id: 'rosa', driver_id: 'd1', created_by: 'olga' };
  // After the round has read who is blocked, and before it leases: the lease looks again.
  await town.sql`insert into rider_driver_blocks ${town.sql(block)}`;
  await expect(lease(town.sql, town.region, rideId, 'd1')).rejects.toThrow('driver_blocked');
  expect(await town.round()).toEqual([]);
  const other = await town.ask({ riderId: 'rob' });
  expect(await town.round()).toEqual([`${other} d1`]);
});

test('a round that has read a ride before its driver gave it back doesn’t lease him again', async () => {
  await using town = await openTown(1);
  const rideId = await town.ask();
  const { rides } = await transitions.openRound(town.sql, town.region, 1);
  const [seen] = rides;
  const term = await lease(town.sql, town.region, rideId, 'd1');
  await transitions.confirmOffers(town.sql, town.region, [term], true);
  const back = { rideId, driverId: 'd1', reason: 'flat_tyre' };
  await transitions.unassignRides(town.sql, town.region, [back], true);
  const stale = {
    rideId,
    driverId: 'd1',
    offerId: newId(town.region),
    leaseToken: newLeaseToken(),
    pickupEtaS: 1,
    seenExclusions: seen!.excluded_driver_ids.length,
  };
  const lateLease = (ask: transitions.LeaseAsk) =>
    transitions.leaseDrivers(town.sql, town.region, [ask], leaseTerms, true);
  expect(await lateLease(stale)).toMatchObject([{ refused: 'driver_excluded' }]);
  // An operator may, who knows why.
  expect(await lateLease({ ...stale, seenExclusions: 1 })).toMatchObject([{ refused: null }]);
});

test('whoever declined is asked again once the exclusion is over, whoever gave the ride back never', async () => {
  await using town = await openTown(2, { declinedExclusionMs: 30_000 });
  const rideId = await town.ask();
  const declined = await lease(town.sql, town.region, rideId, 'd1');
  await transitions.returnOffers(town.sql, town.region, [{ ...declined, reason: 'busy' }], 'declined', true);
  const accepted = await lease(town.sql, town.region, rideId, 'd2');
  await transitions.confirmOffers(town.sql, town.region, [accepted], true);
  const back = { rideId, driverId: 'd2', reason: 'flat_tyre' };
  await transitions.unassignRides(town.sql, town.region, [back], true);
  expect(await town.round()).toEqual([]);
  await town.letWait(rideId, 30_000);
  expect(await town.round()).toEqual([`${rideId} d1`]);
});

test('exclusions for lapsed offers are lifted once, when nobody else is there, and the timeline says so', async () => {
  await using town = await openTown(1);
  const rideId = await town.ask();
  const lapse = async (): Promise<void> => {
    await moveExpiry(town.sql, town.region, ['d1'], -60_000);
  };
  expect(await town.round()).toEqual([`${rideId} d1`]);
  await lapse();
  // It frees the lapsed lease, finds nobody else, and lifts; the next asks again.
  expect(await town.round()).toEqual([]);
  expect(await town.round()).toEqual([`${rideId} d1`]);
  await lapse();
  await town.round();
  expect(await town.round()).toEqual([]);
  expect(await town.events(rideId)).toEqual([
    'ride_requested',
    'offer_made',
    'offer_undeliverable',
    'exclusions_lifted',
    'offer_made',
    'offer_undeliverable',
  ]);
  expect(await town.ride(rideId)).toMatchObject({ excluded_as: ['lifted', 'undeliverable'] });
});

test('with somebody else there, nothing is lifted', async () => {
  await using town = await openTown(2);
  const rideId = await town.ask();
  await lease(town.sql, town.region, rideId, 'd1');
  await moveExpiry(town.sql, town.region, ['d1'], -60_000);
  expect(await town.round()).toEqual([`${rideId} d2`]);
  expect(await town.events(rideId)).not.toContain('exclusions_lifted');
});

test.each<[string, (town: Town) => Promise<string>]>([
  ['nobody_near', (town) => town.ask({ pickup: offsetPoint(CENTER, 0, 15_000) })],
  ['vehicle_class', (town) => town.ask({ vehicleClass: 'van' })],
  ['seats', (town) => town.ask({ seats: 9 })],
  ['attributes', (town) => town.ask({ attributes: ['helicopter'] })],
])('a ride that isn’t served ends with the reason: %s', async (reason, ask) => {
  await using town = await openTown(2);
  const rideId = await ask(town);
  await town.sql`update rides set patience_until = requested_at where id = ${rideId}`;
  await town.round();
  expect(await town.ride(rideId)).toMatchObject({ status: 'no_drivers_available' });
  expect(await town.reasonOfEnd(rideId)).toBe(reason);
  expect((await verify(town.url)).violations).toBe(0);
});

test('a driver who comes back online never sees the open order: the next round offers it', async () => {
  await using town = await openTown(1);
  const { sql, region } = town;
  await transitions.takeOffline(sql, region, ['d1'], 'driver_offline', true);
  const rideId = await town.ask();
  expect(await town.round()).toEqual([]);
  expect(await town.ride(rideId)).toMatchObject({ status: 'searching', empty_rounds: 1 });
  await transitions.bringOnline(sql, region, ['d1'], true);
  await transitions.recordPositions(sql, region, [{ driverId: 'd1', position: { ...CENTER, cell: cellOf(CENTER) } }]);
  expect(await town.round()).toEqual([`${rideId} d1`]);
});
