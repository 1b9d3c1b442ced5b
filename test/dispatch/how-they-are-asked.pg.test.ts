/** How many are asked at a time, who is assigned without being asked, and what a search escalates to. */
import { expect, test } from 'vitest';
import { offsetPoint } from '../../domain/geo.ts';
import { connectDatabase } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { verify } from '../../src/verify/verify.ts';
import { addRides, CENTER, lease, leaseTerms, moveExpiry, openCity } from '../support/city.ts';
import { openTown, type Town } from '../support/town.ts';

/** What those who were asked hold. */
async function claims(town: Town): Promise<transitions.TermClaim[]> {
  const held = await town.sql<{ id: string; token: string; driver_id: string }[]>`
    select offer_id as id, lease_token as token, driver_id from driver_state where status = 'leased' order by driver_id`;
  return held.map(({ id, token, driver_id: driverId }) => ({ offerId: id, leaseToken: token, driverId }));
}

test('one at a time, until so many have declined; then several at once, each with a lease of its own', async () => {
  await using town = await openTown(6, { escalateAfterOffers: 2, escalatedParallelOffers: 3 });
  const rideId = await town.ask();
  for (let refusals = 0; refusals < 2; refusals++) {
    expect(await town.round()).toHaveLength(1);
    const [claim] = await claims(town);
    await transitions.returnOffers(town.sql, town.region, [{ ...claim!, reason: 'no' }], 'declined', true);
  }
  expect(await town.round()).toHaveLength(3);
  expect(await town.ride(rideId)).toMatchObject({ live_offers: 3, offers_made: 5, queue_at: null });
  // The first accept wins, and the others are withdrawn with it.
  const answers = await transitions.confirmOffers(town.sql, town.region, await claims(town), true);
  expect(answers.map(({ applied }) => applied)).toEqual([true, false, false]);
  expect(await town.sql`select from driver_state where status = 'leased'`).toHaveLength(0);
  expect((await verify(town.url)).violations).toBe(0);
});

test('three accepts at once of the three who were asked, in different sets: one has the ride', async () => {
  await using town = await openTown(3, { parallelOffers: 3 });
  const rideId = await town.ask();
  expect(await town.round()).toHaveLength(3);
  await using many = connectDatabase(town.url, { hotConnections: 3 });
  const answers = await Promise.all(
    (await claims(town)).map((claim) => transitions.confirmOffers(many.hot, town.region, [claim], true)),
  );
  expect(answers.flat().filter(({ applied }) => applied)).toHaveLength(1);
  expect(answers.flat().filter(({ refused }) => refused === 'ride_taken')).toHaveLength(2);
  expect(await town.ride(rideId)).toMatchObject({ status: 'assigned', live_offers: 0 });
});

test('and then farther away', async () => {
  await using town = await openTown(1, {
    searchRadiusM: 500,
    searchRadiusStepM: 0,
    searchRadiusMaxM: 500,
    escalateAfterMs: 60_000,
    escalatedRadiusM: 3_000,
  });
  const rideId = await town.ask({ pickup: offsetPoint(CENTER, 0, 2_000) });
  await town.letWait(rideId, 60_000);
  expect(await town.round()).toEqual([]);
  await town.letWait(rideId, 60_000);
  expect(await town.round()).toEqual([`${rideId} d1`]);
  expect((await verify(town.url)).violations).toBe(0);
});

test('a ride that found nobody waits for an operator, who can still find somebody, and ends after that', async () => {
  await using town = await openTown(1, { rescueMs: 120_000 });
  await town.profile('d1', { vehicle_class: 'van' });
  const [lost, helped] = [await town.ask(), await town.ask()];
  await town.sql`update rides set patience_until = requested_at`;
  await town.round();
  expect(await town.ride(lost)).toMatchObject({ status: 'searching', rescue_until: expect.any(Date) });
  expect(await town.events(lost)).toEqual(['ride_requested', 'rescue_needed']);
  // On the list nothing happens by itself, however often it is looked at.
  await town.profile('d1', { vehicle_class: 'economy' });
  expect(await town.round()).toEqual([]);
  expect(await town.events(lost)).toEqual(['ride_requested', 'rescue_needed']);
  const term = await lease(town.sql, town.region, helped, 'd1');
  expect(await transitions.confirmOffers(town.sql, town.region, [term], true)).toMatchObject([{ applied: true }]);
  await town.sql`update rides set rescue_until = clock_timestamp() where id = ${lost}`;
  await town.round();
  expect(await town.ride(lost)).toMatchObject({ status: 'no_drivers_available' });
  expect(await town.ride(helped)).toMatchObject({ status: 'assigned' });
  expect((await verify(town.url)).violations).toBe(0);
});

test('a ride whose offers are used up waits for an operator too, who isn’t bound by their number', async () => {
  await using town = await openTown(3, { offersMax: 1, rescueMs: 120_000 });
  const [rideId, lost] = [await town.ask(), await town.ask()];
  for (const [ride, driverId] of [
    [rideId, 'd1'],
    [lost, 'd2'],
  ] as const) {
    const term = await lease(town.sql, town.region, ride, driverId, { offersMax: 1 });
    await transitions.returnOffers(town.sql, town.region, [{ ...term, reason: 'no' }], 'declined', true);
  }
  expect(await town.round()).toEqual([]);
  expect(await town.events(rideId)).toEqual(['ride_requested', 'offer_made', 'offer_declined', 'rescue_needed']);
  const ask = { rideId, driverId: 'd3', offerId: newId(town.region), leaseToken: newLeaseToken(), pickupEtaS: 1 };
  const byHand = { ...leaseTerms, offersMax: 100 };
  expect(await transitions.assignDrivers(town.sql, town.region, [ask], byHand, true)).toMatchObject([
    { refused: null },
  ]);
  await town.sql`update rides set rescue_until = clock_timestamp() where id = ${lost}`;
  await town.round();
  expect(await town.ride(lost)).toMatchObject({ status: 'no_drivers_available' });
  expect(await town.reasonOfEnd(lost)).toBe('offers_used_up');
  expect((await verify(town.url)).violations).toBe(0);
});

test('where drivers may not refuse they are assigned by the round', async () => {
  await using town = await openTown(2, { asking: 'assign', parallelOffers: 3 });
  const rides = [await town.ask(), await town.ask(), await town.ask()];
  expect(await town.round()).toHaveLength(2);
  const states = await Promise.all(rides.map((rideId) => town.ride(rideId)));
  expect(states.map(({ status }) => status)).toEqual(['assigned', 'assigned', 'searching']);
  expect(await town.events(rides[0]!)).toEqual(['ride_requested', 'offer_made', 'offer_accepted']);
  expect(await town.sql`select from driver_state where status = 'assigned' and fence = 1`).toHaveLength(2);
  expect((await verify(town.url)).violations).toBe(0);
});

test('what leases cost is counted: drivers held in vain, and rides that missed a held driver', async () => {
  await using town = await openTown(1);
  const [first, second] = [await town.ask(), await town.ask()];
  expect(await town.round()).toEqual([`${first} d1`]);
  // d1 would do, and is held by the other's offer.
  expect(await town.round()).toEqual([]);
  const missed = async () => (await town.metrics.hiddenSupply.get()).values[0]!.value;
  expect(await missed()).toBeGreaterThanOrEqual(1);
  await moveExpiry(town.sql, town.region, ['d1'], -60_000);
  expect(await town.round()).toEqual([`${second} d1`]);
  const held = (await town.metrics.leaseHold.get()).values.find(
    ({ labels, metricName }) => labels['ended_as'] === 'undeliverable' && metricName?.endsWith('_sum') === true,
  );
  expect(held!.value).toBeGreaterThan(60);
  const { facts } = await verify(town.url);
  expect(facts.heldSeconds['undeliverable']).toBeGreaterThan(60);
});

test('a ride that has an offer out isn’t assigned past it', async () => {
  await using town = await openTown(2);
  const rideId = await town.ask();
  await lease(town.sql, town.region, rideId, 'd1');
  const ask = { rideId, driverId: 'd2', offerId: newId(town.region), leaseToken: newLeaseToken(), pickupEtaS: 1 };
  const [answer] = await transitions.assignDrivers(town.sql, town.region, [ask], leaseTerms, true);
  expect(answer!.refused).toBe('ride_fully_offered');
  expect(await town.driver('d2')).toMatchObject({ status: 'available' });
});

test('50 assign from the same 20 drivers at once: 20 assignments, no error, no deadlock', async () => {
  await using city = await openCity(20);
  const rideIds = await addRides(city.sql, city.region, 50);
  await using many = connectDatabase(city.url, { hotConnections: 50 });
  const sets = Array.from({ length: 50 }, (_, m) =>
    city.driverIds.map((_driver, i) => ({
      rideId: rideIds[(m + i) % rideIds.length]!,
      driverId: city.driverIds[(m * 7 + i) % city.driverIds.length]!,
      offerId: newId(city.region),
      leaseToken: newLeaseToken(),
      pickupEtaS: 1,
    })),
  );
  const answers = await Promise.all(
    sets.map((asks) => transitions.assignDrivers(many.hot, city.region, asks, leaseTerms, true)),
  );
  expect(answers.flat().filter(({ refused }) => refused === null)).toHaveLength(20);
  expect(await city.sql`select from assignments where ended_at is null`).toHaveLength(20);
  expect((await verify(city.url)).violations).toBe(0);
});
