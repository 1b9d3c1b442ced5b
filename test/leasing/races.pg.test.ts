/**
 * Races that real dispatch systems shipped, each kept as a test under its name. Those of the screen are in
 * test/gateway/offers.pg.test.ts, those of resource leases in test/client/leases and test/resource-leases.
 */
import { afterAll, describe, expect, test } from 'vitest';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { addRides, lease, leaseTerms, moveExpiry, openCity, type Term } from '../support/city.ts';

const ROUNDS = 30;
const city = await openCity(2 * ROUNDS + 20);
afterAll(() => city[Symbol.asyncDispose]());
const { sql, region } = city;
let taken = 0;
/** Nobody else's drivers. */
const drivers = (count: number): string[] => city.driverIds.slice(taken, (taken += count)) as string[];

const confirm = async (term: Term) => (await transitions.confirmOffers(sql, region, [term], true))[0]!;
const cancel = async (rideId: string) =>
  (await transitions.cancelRides(sql, region, [{ rideId, riderId: null, source: 'rider', reason: 'test' }], true))[0]!;
const liveAssignments = async (rideId: string) =>
  sql`select driver_id from assignments where region = ${region} and ride_id = ${rideId} and ended_at is null`;

describe('two at once', () => {
  test('the same request accepted by two drivers', async () => {
    const winners = new Set<number>();
    const [a, b] = drivers(2) as [string, string];
    for (let round = 0; round < ROUNDS; round++) {
      const [rideId] = await addRides(sql, region, 1);
      const terms = [];
      for (const driver of [a, b]) terms.push(await lease(sql, region, rideId!, driver, { parallelOffers: 2 }));
      const answers = await Promise.all(round % 2 === 0 ? terms.map(confirm) : terms.toReversed().map(confirm));
      const refused = answers.map((answer) => answer.refused);
      expect(refused.toSorted()).toEqual(['ride_taken', null].toSorted());
      winners.add(refused.indexOf(null) ^ (round % 2));
      expect(await liveAssignments(rideId!)).toHaveLength(1);
      expect((await cancel(rideId!)).refused).toBeNull();
    }
    // Both orders were seen, or this shows nothing.
    expect(winners.size).toBe(2);
  });

  test('one driver accepting two rides', async () => {
    const [driver] = drivers(1) as [string];
    for (let round = 0; round < ROUNDS; round++) {
      const rides = await addRides(sql, region, 2);
      const tries = await Promise.allSettled(rides.map((rideId) => lease(sql, region, rideId, driver)));
      const terms = tries.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
      expect(terms).toHaveLength(1);
      const [term] = terms as [Term];
      // With the token of the one, the other can't be had.
      expect((await confirm(term)).refused).toBeNull();
      const held =
        await sql`select ride_id from assignments where region = ${region} and driver_id = ${driver} and ended_at is null`;
      expect(held).toMatchObject([{ ride_id: term.rideId }]);
      for (const rideId of rides) await cancel(rideId);
    }
  });

  test('the rider cancels and the driver accepts anyway', async () => {
    const seen = new Set<string>();
    const [driver] = drivers(1) as [string];
    for (let round = 0; round < ROUNDS; round++) {
      const [rideId] = await addRides(sql, region, 1);
      const term = await lease(sql, region, rideId!, driver);
      const asked = [() => confirm(term), () => cancel(rideId!)];
      if (round % 2 === 1) asked.reverse();
      await Promise.all(asked.map((ask) => ask()));
      const { refused } = await confirm(term);
      seen.add(refused ?? 'accepted');
      expect(await city.ride(rideId!)).toMatchObject({ status: 'cancelled' });
      expect(await liveAssignments(rideId!)).toHaveLength(0);
      expect(await city.driver(driver)).toMatchObject({ status: 'available', offer_id: null });
    }
    expect([...seen].toSorted()).toEqual(['accepted', 'ride_cancelled']);
  });

  test('a double click on a manual assign makes two rides', async () => {
    const [driver, other] = drivers(2) as [string, string];
    const [rideId] = await addRides(sql, region, 1);
    const click = (driverId: string) =>
      lease(sql, region, rideId!, driverId).then(
        () => 'offered',
        () => 'refused',
      );
    const clicks = await Promise.all([click(driver), click(driver), click(other), click(other)]);
    expect(clicks.filter((each) => each === 'offered')).toHaveLength(1);
    const open =
      await sql`select id from offers where region = ${region} and ride_id = ${rideId!} and due_at is not null`;
    expect(open).toHaveLength(1);
  });
});

describe('one after the other', () => {
  test('a ride given to a driver who is on a trip', async () => {
    const [driver] = drivers(1) as [string];
    const [first, second] = await addRides(sql, region, 2);
    const term = await lease(sql, region, first!, driver);
    await confirm(term);
    for (const status of ['driver_arrived', 'in_progress'] as const) {
      await expect(lease(sql, region, second!, driver)).rejects.toThrow('driver_unavailable');
      await transitions.advanceRides(sql, region, [{ rideId: first!, driverId: driver, status }], true);
    }
    await expect(lease(sql, region, second!, driver)).rejects.toThrow('driver_unavailable');
    expect(await liveAssignments(second!)).toHaveLength(0);
  });

  test('an accept on an old search try books while the new try goes on', async () => {
    const [first, second] = drivers(2) as [string, string];
    const [rideId] = await addRides(sql, region, 1);
    const old = await lease(sql, region, rideId!, first);
    await confirm(old);
    const ask = { rideId: rideId!, driverId: first, reason: 'test' };
    await transitions.unassignRides(sql, region, [ask], true);
    const fresh = await lease(sql, region, rideId!, second);
    // He hears what he heard then, and nothing changes.
    expect(await confirm(old)).toMatchObject({ refused: null, applied: false });
    expect(await city.ride(rideId!)).toMatchObject({ status: 'searching', assigned_driver_id: null });
    expect((await confirm(fresh)).applied).toBe(true);
    expect(await liveAssignments(rideId!)).toMatchObject([{ driver_id: second }]);
  });

  test('an old try’s offer that was never answered can’t book either', async () => {
    const [first, second] = drivers(2) as [string, string];
    const [rideId] = await addRides(sql, region, 1);
    const old = await lease(sql, region, rideId!, first);
    await moveExpiry(sql, region, [first], -60_000);
    await transitions.expireLeases(sql, region, transitions.FROM_THE_FIRST, 1_000);
    const fresh = await lease(sql, region, rideId!, second);
    expect((await confirm(old)).refused).toBe('lease_expired');
    expect((await confirm(fresh)).applied).toBe(true);
  });

  test('re-dispatch offers the ride to the driver who just cancelled it', async () => {
    const [driver] = drivers(1) as [string];
    const [rideId] = await addRides(sql, region, 1);
    await confirm(await lease(sql, region, rideId!, driver));
    const ask = { rideId: rideId!, driverId: driver, reason: 'test' };
    await transitions.unassignRides(sql, region, [ask], true);
    const due = (await transitions.openRound(sql, region, 500)).rides.find((ride) => ride.ride_id === rideId);
    // What a match round goes by.
    expect(due!.excluded_driver_ids).toEqual([driver]);
  });

  test('accept retried on a bad network', async () => {
    const [driver] = drivers(1) as [string];
    const [rideId] = await addRides(sql, region, 1);
    const term = await lease(sql, region, rideId!, driver);
    const answers = await Promise.all(Array.from({ length: 20 }, () => confirm(term)));
    const first = answers.find(({ applied }) => applied)!;
    expect(answers.filter(({ applied }) => applied)).toHaveLength(1);
    for (const { refused, assigned_at: at, fence } of [...answers, await confirm(term)])
      expect({ refused, at, fence }).toEqual({ refused: null, at: first.assigned_at, fence: first.fence });
    expect(await city.events(rideId!)).toEqual(['ride_requested', 'offer_made', 'offer_accepted']);
  });

  test('a clock step that revives an expired lease', async () => {
    const [driver] = drivers(1) as [string];
    const [rideId] = await addRides(sql, region, 1);
    const term = await lease(sql, region, rideId!, driver);
    await moveExpiry(sql, region, [driver], -60_000);
    // What is recorded of the driver lies ahead, as after a clock that was set back by an hour.
    await sql`update driver_state set updated_at = clock_timestamp() + interval '1 hour'
      where region = ${region} and driver_id = ${driver}`;
    expect((await confirm(term)).refused).toBe('lease_expired');
    await transitions.expireLeases(sql, region, transitions.FROM_THE_FIRST, 1_000);
    expect(await city.driver(driver)).toMatchObject({ status: 'available' });
  });

  test('a pause longer than the TTL followed by a write', async () => {
    const [driver] = drivers(1) as [string];
    const [mine, theirs] = await addRides(sql, region, 2);
    const term = await lease(sql, region, mine!, driver);
    await moveExpiry(sql, region, [driver], -60_000);
    await transitions.expireLeases(sql, region, transitions.FROM_THE_FIRST, 1_000);
    const next = await lease(sql, region, theirs!, driver);
    expect(next.fence).toBe(term.fence + 1);
    const before = await city.everything();
    expect((await transitions.receiveOffers(sql, region, [term], true))[0]!.refused).toBe('lease_lost');
    expect((await confirm(term)).refused).toBe('lease_lost');
    for (const status of ['declined', 'withdrawn'] as const) {
      const back = await transitions.returnOffers(sql, region, [{ ...term, reason: 'late' }], status, true);
      expect(back[0]!.refused).toBe('lease_lost');
    }
    expect(await city.everything()).toEqual(before);
  });

  test('ten leased rows at the head of the line starving all who come after', async () => {
    const held = drivers(10);
    const [rideId] = await addRides(sql, region, 1);
    const free = drivers(1)[0]!;
    const locked = Promise.withResolvers<void>();
    const done = Promise.withResolvers<void>();
    const holding = city.database.cold.begin(async (tx) => {
      await tx`select from driver_state where region = ${region} and driver_id = any(${held}) for update`;
      locked.resolve();
      await done.promise;
    });
    await locked.promise;
    const asks = [...held, free].map((driverId) => ({
      rideId: rideId!,
      driverId,
      offerId: newId(region),
      leaseToken: newLeaseToken(),
      pickupEtaS: 60,
    }));
    const answers = await transitions.leaseDrivers(sql, region, asks, leaseTerms, false);
    done.resolve();
    await holding;
    expect(answers.map(({ refused }) => refused)).toEqual([...held.map(() => 'busy'), null]);
  });
});
