/** Each condition of the transitions, shown by the command that it refuses, and that nothing changed. */
import { describe, expect, test } from 'vitest';
import { connectDatabase } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as t from '../../src/leasing/transitions.ts';
import {
  addDrivers,
  addRegion,
  addRides,
  assign,
  lease,
  leaseTerms,
  moveExpiry,
  newRide,
  openCity,
  type City,
  type Term,
} from '../support/city.ts';

const askFor = (region: number, rideId: string, driverId: string): t.LeaseAsk => ({
  rideId,
  driverId,
  offerId: newId(region),
  leaseToken: newLeaseToken(),
  pickupEtaS: 1,
});

async function refusedUnchanged<A extends { refused: string | null }>(
  city: City,
  run: () => Promise<A[]>,
): Promise<(string | null)[]> {
  const before = await city.everything();
  const answers = await run();
  expect(await city.everything()).toEqual(before);
  return answers.map(({ refused }) => refused);
}

describe('lease', () => {
  const refusal = (city: City, rideId: string, driverId: string, terms: Partial<t.LeaseTerms> = {}) =>
    refusedUnchanged(city, () =>
      t.leaseDrivers(city.sql, city.region, [askFor(city.region, rideId, driverId)], { ...leaseTerms, ...terms }, true),
    );

  test('is refused for a ride or driver that is not there', async () => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    expect(await refusal(city, newId(city.region), 'd1')).toEqual(['ride_not_found']);
    expect(await refusal(city, rideId!, 'nobody')).toEqual(['driver_not_found']);
  });

  test('is refused for a driver of another region', async () => {
    await using city = await openCity(1);
    const other = await addRegion(city.sql, 'paris');
    const [rideId] = await addRides(city.sql, other, 1);
    const answers = await t.leaseDrivers(city.sql, other, [askFor(other, rideId!, 'd1')], leaseTerms, true);
    expect(answers).toMatchObject([{ refused: 'driver_not_found' }]);
  });

  test.each(['offline', 'leased', 'assigned'])('is refused while the driver is %s', async (status) => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    if (status === 'offline') await t.takeOffline(city.sql, city.region, ['d1'], 'test', true);
    if (status === 'leased') await lease(city.sql, city.region, (await addRides(city.sql, city.region, 1))[0]!, 'd1');
    if (status === 'assigned') await assign(city);
    expect(await refusal(city, rideId!, 'd1')).toEqual(['driver_unavailable']);
  });

  test('is refused once the ride is assigned, cancelled or given up', async () => {
    await using city = await openCity(2);
    const { rideId } = await assign(city);
    expect(await refusal(city, rideId, 'd2')).toEqual(['ride_not_searching']);
    await t.cancelRides(city.sql, city.region, [{ rideId, riderId: null, source: 'operator', reason: 'test' }], true);
    expect(await refusal(city, rideId, 'd2')).toEqual(['ride_not_searching']);
  });

  test('is refused when the ride holds as many offers as its policy allows, or has used them up', async () => {
    await using city = await openCity(2);
    const [rideId] = await addRides(city.sql, city.region, 1);
    await lease(city.sql, city.region, rideId!, 'd1');
    expect(await refusal(city, rideId!, 'd2')).toEqual(['ride_fully_offered']);
    expect(await refusal(city, rideId!, 'd2', { parallelOffers: 2, offersMax: 1 })).toEqual(['ride_fully_offered']);
  });

  test('gives one driver to one ride, and a ride no more drivers than it has places, within one set', async () => {
    await using city = await openCity(3);
    const [a, b] = await addRides(city.sql, city.region, 2);
    const pairs = [
      askFor(city.region, a!, 'd1'),
      askFor(city.region, b!, 'd1'),
      askFor(city.region, a!, 'd2'),
      askFor(city.region, b!, 'd3'),
    ];
    const answers = await t.leaseDrivers(city.sql, city.region, pairs, leaseTerms, false);
    expect(answers.map(({ refused }) => refused)).toEqual([null, 'driver_unavailable', 'ride_fully_offered', null]);
  });

  test('is refused for who came to be excluded since the matcher looked, or is blocked, here and by this rider', async () => {
    await using city = await openCity(3);
    const { sql, region } = city;
    const [rideId] = await addRides(sql, region, 1);
    await t.returnOffers(
      sql,
      region,
      [{ ...(await lease(sql, region, rideId!, 'd1')), reason: 'x' }],
      'declined',
      true,
    );
    const asking = (driverId: string, seenExclusions: number) =>
      t.leaseDrivers(sql, region, [{ ...askFor(region, rideId!, driverId), seenExclusions }], leaseTerms, true);
    expect(await refusedUnchanged(city, () => asking('d1', 0))).toEqual(['driver_excluded']);
    const other = await addRegion(sql, 'paris');
    const block = (at: number, riderId: string, driverId: string) =>
      sql`insert into rider_driver_blocks ${sql({ region: at, rider_id: riderId, driver_id: driverId, created_by: 'x' })}`;
    await block(region, 'rider-1', 'd3');
    await block(region, 'rider-2', 'd1');
    await block(other, 'rider-1', 'd1');
    expect(await refusedUnchanged(city, () => asking('d3', 1))).toEqual(['driver_blocked']);
    expect(await asking('d1', 1)).toMatchObject([{ refused: null }]);
  });

  test('a pair that is refused takes no place from the next of its set', async () => {
    await using city = await openCity(4);
    const { sql, region } = city;
    const [a, b] = await addRides(sql, region, 2);
    await lease(sql, region, b!, 'd1');
    const pairs = [askFor(region, a!, 'd1'), askFor(region, a!, 'd2'), askFor(region, a!, 'd3')];
    const answers = await t.leaseDrivers(sql, region, pairs, leaseTerms, true);
    expect(answers.map(({ refused }) => refused)).toEqual(['driver_unavailable', null, 'ride_fully_offered']);
  });

  test('a set never waits for a row that somebody else holds, and the others are granted', async () => {
    await using city = await openCity(2);
    const [a, b] = await addRides(city.sql, city.region, 2);
    await city.sql.begin(async (holder) => {
      await holder`select from driver_state where region = ${city.region} and driver_id = 'd1' for update`;
      const pairs = [askFor(city.region, a!, 'd1'), askFor(city.region, b!, 'd2')];
      const answers = await t.leaseDrivers(city.sql, city.region, pairs, leaseTerms, false);
      expect(answers.map(({ refused }) => refused)).toEqual(['busy', null]);
    });
  });
});

describe.each(['received', 'confirm', 'decline', 'release'] as const)('%s', (command) => {
  const run = (city: City, claim: t.TermClaim): Promise<{ refused: string | null }[]> => {
    const { sql, region } = city;
    if (command === 'received') return t.receiveOffers(sql, region, [claim], true);
    if (command === 'confirm') return t.confirmOffers(sql, region, [claim], true);
    const status = command === 'decline' ? 'declined' : 'withdrawn';
    return t.returnOffers(sql, region, [{ ...claim, reason: 'test' }], status, true);
  };
  const refusal = (city: City, claim: t.TermClaim) => refusedUnchanged(city, () => run(city, claim));
  async function leased(city: City, driverId = 'd1') {
    const [rideId] = await addRides(city.sql, city.region, 1);
    return lease(city.sql, city.region, rideId!, driverId);
  }

  test('is refused for an unknown offer, another driver, and a token that is not the term’s own, in this order', async () => {
    await using city = await openCity(1);
    const term = await leased(city);
    expect(await refusal(city, { ...term, offerId: newId(city.region), driverId: 'd2', leaseToken: 'x' })).toEqual([
      'offer_not_found',
    ]);
    expect(await refusal(city, { ...term, driverId: 'd2', leaseToken: 'x' })).toEqual(['wrong_driver']);
    expect(await refusal(city, { ...term, leaseToken: newLeaseToken() })).toEqual(['wrong_token']);
    expect(await refusal(city, { ...term, leaseToken: '' })).toEqual(['wrong_token']);
  });

  test('is refused after the end of the term, swept or not', async () => {
    await using city = await openCity(1);
    const term = await leased(city);
    await moveExpiry(city.sql, city.region, ['d1'], -5_000);
    expect(await refusal(city, term)).toEqual(['lease_expired']);
    await t.expireLeases(city.sql, city.region, t.FROM_THE_FIRST, 10);
    expect(await refusal(city, term)).toEqual(['lease_expired']);
  });

  test('is refused once the driver holds a newer term', async () => {
    await using city = await openCity(1);
    const old = await leased(city);
    await moveExpiry(city.sql, city.region, ['d1'], -5_000);
    await t.expireLeases(city.sql, city.region, t.FROM_THE_FIRST, 10);
    await leased(city);
    expect(await refusal(city, old)).toEqual(['lease_lost']);
  });

  test('is refused after the ride was cancelled, and after another driver took it', async () => {
    await using city = await openCity(3);
    const term = await leased(city);
    await t.cancelRides(
      city.sql,
      city.region,
      [{ rideId: term.rideId, riderId: null, source: 'rider', reason: 'test' }],
      true,
    );
    expect(await refusal(city, term)).toEqual(['ride_cancelled']);

    const [rideId] = await addRides(city.sql, city.region, 1);
    const [first, second] = [
      await lease(city.sql, city.region, rideId!, 'd2', { parallelOffers: 2 }),
      await lease(city.sql, city.region, rideId!, 'd3', { parallelOffers: 2 }),
    ];
    await t.confirmOffers(city.sql, city.region, [first], true);
    expect(await refusal(city, second)).toEqual(['ride_taken']);
  });
});

describe('confirm', () => {
  test('repeated, also after the ride went on or the term’s end passed, is answered as the first time', async () => {
    await using city = await openCity(1);
    const term = await assign(city);
    const confirm = async () => (await t.confirmOffers(city.sql, city.region, [term], true))[0]!;
    const first = await confirm();
    expect(first).toMatchObject({ refused: null, applied: false, fence: 1 });
    for (const status of ['driver_arrived', 'in_progress', 'completed'] as const) {
      await t.advanceRides(city.sql, city.region, [{ rideId: term.rideId, driverId: 'd1', status }], true);
    }
    await lease(city.sql, city.region, (await addRides(city.sql, city.region, 1))[0]!, 'd1');
    expect(await confirm()).toEqual(first);
    const [stranger] = await t.confirmOffers(city.sql, city.region, [{ ...term, leaseToken: newLeaseToken() }], true);
    expect(stranger!.refused).toBe('wrong_token');
  });

  test('of one ride by two drivers in one set: the first wins, the other is withdrawn and told so', async () => {
    await using city = await openCity(2);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const one = await lease(city.sql, city.region, rideId!, 'd1', { parallelOffers: 2 });
    const two = await lease(city.sql, city.region, rideId!, 'd2', { parallelOffers: 2 });
    const answers = await t.confirmOffers(city.sql, city.region, [two, one], false);
    expect(answers.map(({ refused }) => refused)).toEqual([null, 'ride_taken']);
    expect(answers[0]).toMatchObject({
      driver_id: 'd2',
      withdrawn_offer_ids: [one.offerId],
      withdrawn_driver_ids: ['d1'],
    });
    expect(await city.driver('d1')).toMatchObject({ status: 'available' });
    expect(await city.offer(one.offerId)).toMatchObject({ status: 'withdrawn', end_reason: 'ride_taken' });
    expect(await city.ride(rideId!)).toMatchObject({ status: 'assigned', assigned_driver_id: 'd2', live_offers: 0 });
  });

  test('tells of each ride’s own losers, and not of offers that ended before', async () => {
    await using city = await openCity(6);
    const { sql, region } = city;
    const rides = await addRides(sql, region, 2);
    const early = await lease(sql, region, rides[0]!, 'd6', { parallelOffers: 3 });
    await t.returnOffers(sql, region, [{ ...early, reason: 'x' }], 'declined', true);
    const terms: Term[] = [];
    for (const [n, driverId] of ['d1', 'd2', 'd3', 'd4'].entries())
      terms.push(await lease(sql, region, rides[n % 2]!, driverId, { parallelOffers: 3 }));
    const answers = await t.confirmOffers(sql, region, [terms[0]!, terms[1]!, { ...terms[2]!, leaseToken: 'x' }], true);
    const told = ({ refused, ...each }: t.ConfirmAnswer) => [
      refused,
      each.withdrawn_offer_ids,
      each.withdrawn_driver_ids,
    ];
    expect(answers.map(told)).toEqual([
      [null, [terms[2]!.offerId], ['d3']],
      [null, [terms[3]!.offerId], ['d4']],
      ['wrong_token', null, null],
    ]);
  });

  test('of a ride whose other offer is held by somebody else waits rather than leave that offer open', async () => {
    await using city = await openCity(2);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const one = await lease(city.sql, city.region, rideId!, 'd1', { parallelOffers: 2 });
    await lease(city.sql, city.region, rideId!, 'd2', { parallelOffers: 2 });
    await city.sql.begin(async (holder) => {
      await holder`select from driver_state where region = ${city.region} and driver_id = 'd2' for update`;
      expect((await t.confirmOffers(city.sql, city.region, [one], false))[0]!.refused).toBe('busy');
    });
    expect((await t.confirmOffers(city.sql, city.region, [one], true))[0]!.refused).toBe(null);
  });

  test('that waited behind a lock until after the end of its term is refused', async () => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const term = await lease(city.sql, city.region, rideId!, 'd1', { deliveryTtlMs: 300 });
    const confirmed = await city.sql.begin(async (holder) => {
      await holder`select from rides where region = ${city.region} and id = ${rideId!} for update`;
      const waiting = t.confirmOffers(city.sql, city.region, [term], true);
      // It waits for the lock now; hold it until the term is over by the database's clock.
      await holder`select pg_sleep_until(lease_expires_at + interval '50 ms') from driver_state where driver_id = 'd1'`;
      return { waiting };
    });
    expect((await confirmed.waiting)[0]!.refused).toBe('lease_expired');
    expect(await city.driver('d1')).toMatchObject({ status: 'leased' });
  });
});

describe('after the clock stepped back', () => {
  /** As if the driver's last change had been recorded by a clock that was ahead. */
  const recordAhead = (city: City, driverId: string, seconds: number) =>
    city.sql`update driver_state set updated_at = clock_timestamp() + make_interval(secs => ${seconds}) where driver_id = ${driverId}`;

  test('a confirm whose losing driver was recorded ahead wins all the same, and the ride’s events are dated in order', async () => {
    await using city = await openCity(2);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const one = await lease(city.sql, city.region, rideId!, 'd1', { parallelOffers: 2 });
    await lease(city.sql, city.region, rideId!, 'd2', { parallelOffers: 2 });
    await recordAhead(city, 'd2', 20);
    expect(await t.confirmOffers(city.sql, city.region, [one], true)).toMatchObject([{ refused: null, applied: true }]);
    await expectEventsInOrder(city, rideId!);
  });

  test('a cancel of a ride with two open offers dates its events in order', async () => {
    await using city = await openCity(2);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const terms = await Promise.all(
      ['d1', 'd2'].map((d) => lease(city.sql, city.region, rideId!, d, { parallelOffers: 2 })),
    );
    await recordAhead(city, terms.sort((a, b) => (a.offerId < b.offerId ? -1 : 1))[0]!.driverId, 2);
    await t.cancelRides(
      city.sql,
      city.region,
      [{ rideId: rideId!, riderId: null, source: 'rider', reason: 'x' }],
      true,
    );
    await expectEventsInOrder(city, rideId!);
  });

  test('an expired lease is not revived for a driver whose later time is on record', async () => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const term = await lease(city.sql, city.region, rideId!, 'd1');
    await recordAhead(city, 'd1', 20);
    expect((await t.confirmOffers(city.sql, city.region, [term], true))[0]!.refused).toBe('lease_expired');
  });

  test('the next term starts no earlier than the last one ended', async () => {
    await using city = await openCity(1);
    const [a, b] = await addRides(city.sql, city.region, 2);
    const first = await lease(city.sql, city.region, a!, 'd1');
    await recordAhead(city, 'd1', 2);
    await t.returnOffers(city.sql, city.region, [{ ...first, reason: 'x' }], 'declined', true);
    const second = await lease(city.sql, city.region, b!, 'd1');
    const [ended, granted] = [
      (await city.offer(first.offerId))['ended_at'],
      (await city.offer(second.offerId))['granted_at'],
    ];
    expect((granted as Date).getTime()).toBeGreaterThanOrEqual((ended as Date).getTime());
  });

  async function expectEventsInOrder(city: City, rideId: string): Promise<void> {
    const times = (await city.sql`select at from ride_events where ride_id = ${rideId} order by seq`).map((e) =>
      (e['at'] as Date).getTime(),
    );
    expect(times).toEqual([...times].sort((a, b) => a - b));
  }
});

describe('received', () => {
  test('renews once to the decision window, and repeated renews nothing', async () => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const term = await lease(city.sql, city.region, rideId!, 'd1');
    const [first] = await t.receiveOffers(city.sql, city.region, [term], true);
    const renewed = await city.driver('d1');
    const [again] = await t.receiveOffers(city.sql, city.region, [term], true);
    expect([first!.applied, again!.applied]).toEqual([true, false]);
    expect(again!.expires_in_ms).toBeLessThanOrEqual(first!.expires_in_ms);
    expect(await city.driver('d1')).toEqual(renewed);
  });

  test('in a set renews each to its own window, and each ride tells of its own', async () => {
    await using city = await openCity(4);
    const { sql, region } = city;
    const rides = await addRides(sql, region, 3);
    const windows = [30_000, 60_000, 90_000];
    const terms: Term[] = [];
    for (const [n, decisionTtlMs] of windows.entries())
      terms.push(await lease(sql, region, rides[n]!, `d${n + 1}`, { decisionTtlMs, maxLifetimeMs: 100_000 }));
    const second = await lease(sql, region, rides[2]!, 'd4', {
      parallelOffers: 2,
      decisionTtlMs: 90_000,
      maxLifetimeMs: 100_000,
    });
    const receipts = await t.receiveOffers(sql, region, [...terms, second], true);
    const lefts = receipts.map(({ expires_in_ms: leftMs }) => Math.round(leftMs / 10_000) * 10_000);
    expect(lefts).toEqual([...windows, 90_000]);
    for (const [n, rideId] of rides.entries()) {
      const events = await city.events(rideId);
      expect(events.filter((type) => type === 'offer_received')).toHaveLength(n === 2 ? 2 : 1);
    }
  });

  test('never renews past the lifetime', async () => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const term = await lease(city.sql, city.region, rideId!, 'd1', { decisionTtlMs: 60_000, maxLifetimeMs: 10_000 });
    const [receipt] = await t.receiveOffers(city.sql, city.region, [term], true);
    expect(receipt!.expires_in_ms).toBeLessThanOrEqual(10_000);
    await t.confirmOffers(city.sql, city.region, [term], true);
    const offer = await city.offer(term.offerId);
    expect(offer['expires_at']).toEqual(offer['lifetime_ends_at']);
  });

  test('a renewed lease that is due is looked at again at its new end, and not ended', async () => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const term = await lease(city.sql, city.region, rideId!, 'd1');
    await t.receiveOffers(city.sql, city.region, [term], true);
    await city.sql`update offers set due_at = clock_timestamp() - interval '1 second'`;
    expect(await t.expireLeases(city.sql, city.region, t.FROM_THE_FIRST, 10)).toMatchObject([{ ended_as: null }]);
    expect(await t.expireLeases(city.sql, city.region, t.FROM_THE_FIRST, 10)).toEqual([]);
    expect((await city.offer(term.offerId))['due_at']).toEqual((await city.driver('d1'))['lease_expires_at']);
    await moveExpiry(city.sql, city.region, ['d1'], -20_000);
    expect(await t.expireLeases(city.sql, city.region, t.FROM_THE_FIRST, 10)).toMatchObject([{ ended_as: 'expired' }]);
  });
});

describe('cancel', () => {
  const cancel = (city: City, rideId: string, riderId: string | null = null) =>
    t.cancelRides(city.sql, city.region, [{ rideId, riderId, source: 'rider', reason: 'changed_mind' }], true);

  test('ends a ride that nobody was offered, in a set as well as alone', async () => {
    await using city = await openCity(0);
    const [a, b] = await addRides(city.sql, city.region, 2);
    expect(await cancel(city, a!)).toMatchObject([{ refused: null, applied: true }]);
    const ask = { rideId: b!, riderId: null, source: 'rider' as const, reason: 'changed_mind' };
    expect(await t.cancelRides(city.sql, city.region, [ask], false)).toMatchObject([{ refused: null, applied: true }]);
  });

  test('withdraws the open offer and frees its driver', async () => {
    await using city = await openCity(1);
    const [rideId] = await addRides(city.sql, city.region, 1);
    const term = await lease(city.sql, city.region, rideId!, 'd1');
    expect(await cancel(city, rideId!)).toMatchObject([{ refused: null, withdrawn_offer_ids: [term.offerId] }]);
    expect(await city.driver('d1')).toMatchObject({ status: 'available' });
    expect(await city.ride(rideId!)).toMatchObject({ status: 'cancelled', cancel_phase: 'searching', live_offers: 0 });
    expect(await city.events(rideId!)).toEqual(['ride_requested', 'offer_made', 'offer_withdrawn', 'ride_cancelled']);
  });

  test('after the accept frees the assigned driver', async () => {
    await using city = await openCity(1);
    const { rideId } = await assign(city);
    expect(await cancel(city, rideId)).toMatchObject([{ refused: null, released_driver_id: 'd1' }]);
    expect(await city.driver('d1')).toMatchObject({ status: 'available', leased_to_ride_id: null });
    expect(await city.ride(rideId)).toMatchObject({ status: 'cancelled', cancel_phase: 'assigned' });
  });

  test('repeated changes nothing and is answered as the first time', async () => {
    await using city = await openCity(1);
    const { rideId } = await assign(city);
    await cancel(city, rideId);
    expect(await refusedUnchanged(city, () => cancel(city, rideId))).toEqual([null]);
  });

  test('is refused to strangers, during the trip, and after the ride', async () => {
    await using city = await openCity(1);
    const { rideId } = await assign(city);
    expect(await refusedUnchanged(city, () => cancel(city, newId(city.region)))).toEqual(['ride_not_found']);
    expect(await refusedUnchanged(city, () => cancel(city, rideId, 'somebody'))).toEqual(['wrong_rider']);
    const advance = (status: t.RideStep) =>
      t.advanceRides(city.sql, city.region, [{ rideId, driverId: 'd1', status }], true);
    await advance('driver_arrived');
    await advance('in_progress');
    expect(await refusedUnchanged(city, () => cancel(city, rideId))).toEqual(['ride_in_progress']);
    await advance('completed');
    expect(await refusedUnchanged(city, () => cancel(city, rideId))).toEqual(['ride_over']);
  });
});

describe('a driver who cancels after accepting', () => {
  const leave = (city: City, rideId: string, driverId = 'd1') =>
    t.unassignRides(city.sql, city.region, [{ rideId, driverId, reason: 'flat_tyre' }], true);

  test('sends the ride back to searching without him, and is free', async () => {
    await using city = await openCity(2);
    const term = await assign(city);
    expect(await leave(city, term.rideId)).toEqual([{ refused: null, applied: true }]);
    expect(await city.ride(term.rideId)).toMatchObject({
      status: 'searching',
      assigned_driver_id: null,
      excluded_driver_ids: ['d1'],
    });
    expect(await city.driver('d1')).toMatchObject({ status: 'available' });
    expect(await refusedUnchanged(city, () => leave(city, term.rideId))).toEqual([null]);
    // The accept that he gave back still has its first answer, and books nothing.
    expect(await t.confirmOffers(city.sql, city.region, [term], true)).toMatchObject([
      { refused: null, applied: false },
    ]);
    expect(await city.ride(term.rideId)).toMatchObject({ status: 'searching' });
    const next = await lease(city.sql, city.region, term.rideId, 'd2');
    expect(await t.confirmOffers(city.sql, city.region, [next], true)).toMatchObject([
      { refused: null, applied: true },
    ]);
  });

  test('is refused if it isn’t his ride, or the trip has begun', async () => {
    await using city = await openCity(2);
    const { rideId } = await assign(city);
    expect(await refusedUnchanged(city, () => leave(city, rideId, 'd2'))).toEqual(['wrong_driver']);
    for (const status of ['driver_arrived', 'in_progress'] as const) {
      await t.advanceRides(city.sql, city.region, [{ rideId, driverId: 'd1', status }], true);
    }
    expect(await refusedUnchanged(city, () => leave(city, rideId))).toEqual(['ride_in_progress']);
  });
});

describe('a step of the ride', () => {
  const advance = (city: City, rideId: string, status: t.RideStep, driverId = 'd1') =>
    t.advanceRides(city.sql, city.region, [{ rideId, driverId, status }], true);

  test('is taken by the assigned driver alone, in order, and repeated changes nothing', async () => {
    await using city = await openCity(2);
    const { rideId } = await assign(city);
    expect(await refusedUnchanged(city, () => advance(city, rideId, 'driver_arrived', 'd2'))).toEqual(['wrong_driver']);
    expect(await refusedUnchanged(city, () => advance(city, rideId, 'in_progress'))).toEqual(['wrong_phase']);
    expect(await refusedUnchanged(city, () => advance(city, rideId, 'completed'))).toEqual(['wrong_phase']);
    expect(await advance(city, rideId, 'driver_arrived')).toMatchObject([{ refused: null, applied: true }]);
    expect(await refusedUnchanged(city, () => advance(city, rideId, 'driver_arrived'))).toEqual([null]);
  });

  test('two steps of one ride in one set: the first is taken, the second has to come again', async () => {
    await using city = await openCity(1);
    const { rideId } = await assign(city);
    const steps = (['driver_arrived', 'in_progress'] as const).map((status) => ({ rideId, driverId: 'd1', status }));
    expect((await t.advanceRides(city.sql, city.region, steps, false)).map(({ refused }) => refused)).toEqual([
      null,
      'busy',
    ]);
  });

  test('is refused after the ride was cancelled', async () => {
    await using city = await openCity(1);
    const { rideId } = await assign(city);
    await t.cancelRides(city.sql, city.region, [{ rideId, riderId: null, source: 'rider', reason: 'x' }], true);
    expect(await refusedUnchanged(city, () => advance(city, rideId, 'driver_arrived'))).toEqual(['ride_cancelled']);
  });
});

test('what is asked again of a driver who has moved to another region since is answered, and he is nobody’s to wait for', async () => {
  await using city = await openCity(1);
  const { sql, region } = city;
  const [lapsedRide] = await addRides(sql, region, 1);
  const lapsed = await lease(sql, region, lapsedRide!, 'd1');
  await moveExpiry(sql, region, ['d1'], -60_000);
  await t.expireLeases(sql, region, t.FROM_THE_FIRST, 10);
  const driven = await assign(city);
  const steps = (['driver_arrived', 'in_progress', 'completed'] as const).map((status) => ({
    rideId: driven.rideId,
    driverId: 'd1',
    status,
  }));
  for (const step of steps) await t.advanceRides(sql, region, [step], true);
  await t.takeOffline(sql, region, ['d1'], 'over', true);
  const elsewhere = await addRegion(sql, 'elsewhere');
  await sql`update driver_state set region = ${elsewhere} where driver_id = 'd1'`;

  for (const wait of [true, false]) {
    const refused = async (asked: Promise<readonly { refused: string | null }[]>) => (await asked)[0]!.refused;
    for (const step of steps) expect(await refused(t.advanceRides(sql, region, [step], wait))).toBe(null);
    expect(await refused(t.confirmOffers(sql, region, [driven], wait))).toBe(null);
    expect(await refused(t.confirmOffers(sql, region, [lapsed], wait))).toBe('lease_lost');
    expect(await refused(t.receiveOffers(sql, region, [lapsed], wait))).toBe('lease_lost');
    expect(
      await refused(
        t.unassignRides(sql, region, [{ rideId: driven.rideId, driverId: 'd1', reason: 'flat_tyre' }], wait),
      ),
    ).toBe('ride_over');
  }
});

describe('a shift', () => {
  test('ends only without a ride in hand; an open offer ends declined', async () => {
    await using city = await openCity(2);
    const { sql, region } = city;
    await assign(city, 'd1');
    expect(await refusedUnchanged(city, () => t.takeOffline(sql, region, ['d1'], 'over', true))).toEqual([
      'driver_assigned',
    ]);
    const [rideId] = await addRides(sql, region, 1);
    const term = await lease(sql, region, rideId!, 'd2');
    expect(await t.takeOffline(sql, region, ['d2'], 'over', true)).toMatchObject([
      { applied: true, ended_offer_id: term.offerId },
    ]);
    expect(await city.offer(term.offerId)).toMatchObject({ status: 'declined', end_reason: 'over', proof: null });
    expect(await city.driver('d2')).toMatchObject({ status: 'offline' });
    expect(await city.ride(rideId!)).toMatchObject({ excluded_driver_ids: ['d2'], live_offers: 0 });
    expect(await t.takeOffline(sql, region, ['d2'], 'over', true)).toMatchObject([{ refused: null, applied: false }]);
    expect(await t.bringOnline(sql, region, ['d2', 'nobody'], true)).toMatchObject([
      { refused: null, applied: true },
      { refused: 'driver_not_found' },
    ]);
  });

  test('of a driver who isn’t seen any more ends by itself, but only while available', async () => {
    await using city = await openCity(0);
    const { sql, region } = city;
    await addDrivers(sql, region, 4);
    await assign(city, 'd1');
    await lease(sql, region, (await addRides(sql, region, 1))[0]!, 'd2');
    await sql`update driver_presence set seen_at = seen_at - interval '1 minute' where driver_id <> 'd4'`;
    await sql`update driver_state set updated_at = updated_at - interval '1 minute' where driver_id in ('d3', 'd4')`;
    expect(await t.retireAbsent(sql, region, '', 100, 30_000)).toEqual({ last_driver_id: 'd4', retired: ['d3'] });
    expect(await t.retireAbsent(sql, region, 'd4', 100, 30_000)).toEqual({ last_driver_id: null, retired: [] });
    expect(await city.driver('d3')).toMatchObject({ status: 'offline' });
  });
});

describe('absent drivers', () => {
  test('retire by what was last seen and done in their region alone, and step by step', async () => {
    await using city = await openCity(8);
    const { sql, region } = city;
    const other = await addRegion(sql, 'paris');
    const ago = sql`clock_timestamp() - interval '1 minute'`;
    await sql`update driver_state set updated_at = ${ago}`;
    await sql`update driver_presence set seen_at = ${ago} where driver_id <> 'd1'`;
    // d3 has just come, d4 was never seen, d5 is seen in another region alone, d6 is offered a ride.
    await sql`update driver_state set updated_at = clock_timestamp() where driver_id = 'd3'`;
    await sql`delete from driver_presence where driver_id = 'd4'`;
    await sql`insert into driver_presence (region, driver_id, seen_at) values (${other}, 'd5', clock_timestamp())`;
    await sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
      values (${other}, 'd2', 'available', 'economy', ${ago}), (${other}, 'd9', 'available', 'economy', ${ago})`;
    await lease(sql, region, (await addRides(sql, region, 1))[0]!, 'd6');
    await sql`update driver_state set updated_at = ${ago} where driver_id = 'd6'`;
    expect(await t.retireAbsent(sql, region, '', 6, 30_000)).toEqual({
      last_driver_id: 'd6',
      retired: ['d2', 'd4', 'd5'],
    });
    expect(await t.retireAbsent(sql, region, 'd6', 6, 30_000)).toEqual({ last_driver_id: 'd8', retired: ['d7', 'd8'] });
    const kept =
      await sql`select region, driver_id from driver_state where status <> 'offline' order by region, driver_id`;
    expect(kept.map((row) => [row['region'], row['driver_id']])).toEqual([
      [region, 'd1'],
      [region, 'd3'],
      [region, 'd6'],
      [other, 'd2'],
      [other, 'd9'],
    ]);
    const seen = await sql`select region, driver_id from driver_presence order by region, driver_id`;
    expect(seen.map((row) => [row['region'], row['driver_id']])).toEqual([
      [region, 'd1'],
      [region, 'd3'],
      [region, 'd6'],
      [other, 'd5'],
    ]);
  });

  test('stay when nobody of their region is seen, unless a gateway has watched all the while: else it is we who don’t see', async () => {
    await using city = await openCity(2);
    const { sql, region } = city;
    const other = await addRegion(sql, 'paris');
    const ago = sql`clock_timestamp() - interval '1 minute'`;
    await sql`update driver_state set updated_at = ${ago}`;
    await sql`update driver_presence set seen_at = ${ago}`;
    await sql`insert into driver_presence (region, driver_id, seen_at) values (${other}, 'd9', clock_timestamp())`;
    const retire = async () => (await t.retireAbsent(sql, region, '', 6, 30_000)).retired;
    const watch = (...numbers: number[]) =>
      t.watchRegions(
        sql,
        numbers.map((number) => ({ number, graceMs: 30_000 })),
      );
    expect(await retire()).toEqual([]);
    await watch(other, region);
    await watch(other, region);
    expect(await retire()).toEqual([]);

    // Nobody watched for a while: the drivers may just not have come back.
    await sql`update presence_epochs set since = ${ago}, watched_at = clock_timestamp() - interval '16 seconds'`;
    expect(await retire()).toEqual([]);
    await watch(other, region);
    expect(await retire()).toEqual([]);
    await sql`update presence_epochs set since = ${ago}`;
    await sql`update presence_epochs set watched_at = clock_timestamp() - interval '16 seconds' where region = ${region}`;
    await watch(other);
    expect(await retire()).toEqual([]);
    expect(
      await sql`select region from presence_epochs where watched_at > clock_timestamp() - interval '16 seconds'`,
    ).toEqual([{ region: other }]);

    await watch(region);
    await sql`update presence_epochs set since = ${ago}`;
    expect(await retire()).toEqual(['d1', 'd2']);
    expect(await sql`select driver_id from driver_presence`).toEqual([{ driver_id: 'd9' }]);
  });

  test('aren’t seen by what a clock that was ahead has seen, nor asked for a ride', async () => {
    await using city = await openCity(2);
    const { sql, region } = city;
    await sql`update driver_state set updated_at = clock_timestamp() - interval '1 minute'`;
    const ahead = sql`clock_timestamp() + interval '1 hour'`;
    await sql`update driver_presence set seen_at = ${ahead}, position_at = ${ahead} where driver_id = 'd1'`;
    const near = await t.driversNear(sql, region, 'available', null, 60_000);
    expect(near.map(({ driverId }) => driverId)).toEqual(['d2']);
    expect(await t.retireAbsent(sql, region, '', 6, 30_000)).toMatchObject({ retired: ['d1'] });
    await sql`update driver_presence set seen_at = ${ahead}`;
    expect(await t.retireAbsent(sql, region, '', 6, 30_000)).toMatchObject({ retired: [] });
  });
});

describe('a hold', () => {
  test('repeated withdraws nothing of what was offered by hand since', async () => {
    await using city = await openCity(2);
    const { sql, region } = city;
    const [rideId, elsewhere] = await addRides(sql, region, 2);
    const first = await lease(sql, region, rideId!, 'd1');
    await lease(sql, region, elsewhere!, 'd2');
    expect(await t.holdRide(sql, region, rideId!, 'vip')).toMatchObject({
      applied: true,
      withdrawn_offer_ids: [first.offerId],
      withdrawn_driver_ids: ['d1'],
    });
    await lease(sql, region, rideId!, 'd1');
    const before = await city.everything();
    expect(await t.holdRide(sql, region, rideId!, 'vip')).toMatchObject({
      refused: null,
      applied: false,
      withdrawn_offer_ids: null,
    });
    expect(await city.everything()).toEqual(before);
  });
});

describe('a request', () => {
  test('under the same key is the same ride, in one set and later; with another body it is refused', async () => {
    await using city = await openCity(0);
    const { sql, region } = city;
    const make = (key: string, body: string) => ({
      rideId: newId(region),
      riderId: 'rider-1',
      vehicleClass: 'economy',
      seats: 1,
      attributes: [],
      acceptsLowerClass: false,
      pickup: { lat: 1, lng: 1 },
      dropoff: { lat: 2, lng: 2 },
      policyVersion: 1,
      patienceMs: 1_000,
      idempotency: { subject: 'rider:1', key, requestHash: Buffer.from(body) },
    });
    const first = [make('a', 'x'), make('b', 'x'), make('a', 'x')];
    const answers = await t.createRides(sql, region, first);
    expect(answers.map(({ replayed }) => replayed)).toEqual([false, false, true]);
    expect(answers[2]!.ride_id).toBe(answers[0]!.ride_id);
    const [again, other] = await t.createRides(sql, region, [make('a', 'x'), make('b', 'y')]);
    expect(again).toMatchObject({ refused: null, replayed: true, ride_id: answers[0]!.ride_id });
    expect(other!.refused).toBe('idempotency_key_reused');
    expect(await sql`select from rides`).toHaveLength(2);
    await sql`update idempotency_keys set created_at = created_at - interval '25 hours'`;
    expect(await t.createRides(sql, region, [make('a', 'z')])).toMatchObject([{ refused: null, replayed: false }]);
    expect(await t.dropOldKeys(sql, region, 10)).toBe(1);
  });

  test('requested with a driver it is leased, if it is new and the driver may have it; without one nobody is asked', async () => {
    await using city = await openCity(4);
    const { sql, region } = city;
    const [taken] = await addRides(sql, region, 1);
    await lease(sql, region, taken!, 'd4');
    const withDriver = (driverId: string, ride: Partial<t.NewRide> = {}, terms = leaseTerms): t.PairedRide => {
      const made = newRide(region, { policyVersion: terms.policyVersion, ...ride });
      return { ride: made, lease: { ...askFor(region, made.rideId, driverId), terms } };
    };
    const idempotency = { subject: 'rider:1', key: 'a', requestHash: Buffer.from('x') };
    const paired = [
      withDriver('d4'),
      withDriver('d2', {}, { ...leaseTerms, policyVersion: 2, decisionTtlMs: 7_000 }),
      { ride: newRide(region), lease: undefined },
      withDriver('d1', { idempotency }),
      withDriver('d3', { idempotency }),
    ];
    // A ride of the same id in another region is none of its business.
    await t.createRides(sql, await addRegion(sql, 'twin'), [paired[1]!.ride]);
    const none = { lease_refused: null, fence: null, first_offer_after_ms: null };
    const granted = { lease_refused: null, fence: 1, first_offer_after_ms: 0, leased_at: expect.any(Date) as Date };
    const late = expect.any(Number) as number;
    expect(await t.requestRides(sql, region, paired)).toMatchObject([
      { refused: null, replayed: false, ...none, lease_refused: 'driver_unavailable' },
      { refused: null, replayed: false, ...granted, first_offer_after_ms: late },
      { refused: null, replayed: false, ...none },
      { refused: null, replayed: false, ...granted, first_offer_after_ms: late },
      { refused: null, replayed: true, ride_id: paired[3]!.ride.rideId, ...none },
    ]);
    const again = [
      withDriver('d3', { idempotency }),
      withDriver('d3', { idempotency: { ...idempotency, requestHash: Buffer.from('y') } }),
    ];
    expect(await t.requestRides(sql, region, again)).toMatchObject([
      { refused: null, replayed: true, ...none },
      { refused: 'idempotency_key_reused', ...none },
    ]);
    expect(
      await sql`select ride_id, driver_id, policy_version, decision_ttl_ms from offers where driver_id <> 'd4' order by driver_id`,
    ).toEqual([
      {
        ride_id: paired[3]!.ride.rideId,
        driver_id: 'd1',
        policy_version: 1,
        decision_ttl_ms: leaseTerms.decisionTtlMs,
      },
      { ride_id: paired[1]!.ride.rideId, driver_id: 'd2', policy_version: 2, decision_ttl_ms: 7_000 },
    ]);
    expect(
      await sql`select from rides where queue_at is not null and id = any(${[0, 2].map((n) => paired[n]!.ride.rideId)})`,
    ).toHaveLength(2);
  });

  test('requested with a driver whom somebody holds it is made at once, and waits for a round', async () => {
    await using city = await openCity(1);
    await using holder = connectDatabase(city.url, { hotConnections: 1 });
    await holder.hot.begin(async (held) => {
      await held`select from driver_state where driver_id = 'd1' for update`;
      const ride = newRide(city.region);
      const ask = { ...askFor(city.region, ride.rideId, 'd1'), terms: leaseTerms };
      expect(await t.requestRides(city.sql, city.region, [{ ride, lease: ask }])).toMatchObject([
        { refused: null, lease_refused: 'busy', fence: null },
      ]);
    });
    expect(await city.sql`select from rides where queue_at is not null`).toHaveLength(1);
  });
});
