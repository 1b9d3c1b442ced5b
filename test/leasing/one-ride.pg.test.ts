import { expect, test } from 'vitest';
import * as t from '../../src/leasing/transitions.ts';
import { addRides, lease, moveExpiry, openCity } from '../support/city.ts';

test('a ride goes from request to completion, and its driver is free again', async () => {
  await using city = await openCity(1);
  const { sql, region } = city;
  const [rideId] = await addRides(sql, region, 1);
  const term = await lease(sql, region, rideId!, 'd1');
  const [receipt] = await t.receiveOffers(sql, region, [term], false);
  expect(receipt).toMatchObject({ refused: null, applied: true });
  expect(receipt!.expires_in_ms).toBeGreaterThan(14_000);
  const [confirm] = await t.confirmOffers(sql, region, [term], false);
  expect(confirm).toMatchObject({ refused: null, applied: true, ride_id: rideId, driver_id: 'd1', fence: 1 });
  for (const status of ['driver_arrived', 'in_progress', 'completed'] as const) {
    const [step] = await t.advanceRides(sql, region, [{ rideId: rideId!, driverId: 'd1', status }], false);
    expect(step).toEqual({ refused: null, applied: true });
  }
  expect(await city.ride(rideId!)).toMatchObject({ status: 'completed', event_seq: 7 });
  expect(await city.driver('d1')).toMatchObject({ status: 'available', lease_token: null, leased_to_ride_id: null });
  expect(await city.offer(term.offerId)).toMatchObject({ status: 'accepted', due_at: null });
  expect(await city.events(rideId!)).toEqual([
    'ride_requested',
    'offer_made',
    'offer_received',
    'offer_accepted',
    'driver_arrived',
    'ride_started',
    'ride_completed',
  ]);
});

test('a lapsed offer sends the ride back to the queue at once, without that driver', async () => {
  await using city = await openCity(2);
  const { sql, region } = city;
  const [rideId] = await addRides(sql, region, 1);
  const term = await lease(sql, region, rideId!, 'd1');
  expect(await t.expireLeases(sql, region, t.FROM_THE_FIRST, 10)).toEqual([]);
  await moveExpiry(sql, region, ['d1'], -5_000);
  const over = await t.expireLeases(sql, region, t.FROM_THE_FIRST, 10);
  expect(over).toMatchObject([{ offer_id: term.offerId, ended_as: 'undeliverable' }]);
  expect(await city.ride(rideId!)).toMatchObject({ status: 'searching', live_offers: 0, excluded_driver_ids: ['d1'] });
  expect((await t.openRound(sql, region, 10)).rides.map((ride) => ride.ride_id)).toEqual([rideId]);
  expect(await city.driver('d1')).toMatchObject({ status: 'available' });
});

test('a ride that found nobody is looked at again later, and given up when its patience is over', async () => {
  await using city = await openCity(0);
  const { sql, region } = city;
  const [rideId] = await addRides(sql, region, 1, 60_000);
  const settle = (recoveryMs: number) =>
    t.settleRides(sql, region, [{ rideId: rideId!, waitMs: 5_000, reason: 'nobody_near' }], {
      offersMax: 10,
      rescueMs: 0,
      recoveryMs,
    });
  expect(await settle(0)).toMatchObject([{ ride_id: rideId, given_up: false, again_in_ms: 5_000 }]);
  const round = await t.openRound(sql, region, 10);
  expect(round).toMatchObject({ is_overdue: false, rides: [] });
  expect(round.next_in_ms).toBeGreaterThan(4_000);
  await sql`update rides set patience_until = clock_timestamp() - interval '1 second', queue_at = clock_timestamp()`;
  // Positions may just have been lost: patience stands still until drivers had time to send them again.
  expect(await settle(60_000)).toMatchObject([{ ride_id: rideId, given_up: false }]);
  expect(await settle(0)).toMatchObject([{ ride_id: rideId, given_up: true, again_in_ms: null }]);
  expect(await city.ride(rideId!)).toMatchObject({ status: 'no_drivers_available', queue_at: null });
  expect(await city.events(rideId!)).toEqual(['ride_requested', 'no_drivers_available']);
  expect(await settle(0)).toEqual([]);
});
