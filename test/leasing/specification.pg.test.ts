/* oxlint-disable vitest/no-standalone-expect -- the comparison is the test, and it is a class */
/**
 * The SQL against its specification: random sequences of commands go to both, and every answer and, in the end, every
 * row has to agree. CABRANK_SPEC_RUNS is the number of sequences.
 */
import fc from 'fast-check';
import { afterAll, expect, test } from 'vitest';
import { LeaseStore, type Answer } from '../../domain/lease-store.ts';
import { defaultPolicy } from '../../domain/policy.ts';
import type { RideStep } from '../../domain/ride.ts';
import { newId } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { addRegion, moveExpiry, newRide, openCity } from '../support/city.ts';

const RUNS = Number(process.env['CABRANK_SPEC_RUNS'] ?? 600);
const AT_ONCE = 4;
const RIDES = 3;
const DRIVERS = 3;
/** Long enough that only the test ends them. */
const TERMS = {
  ...defaultPolicy,
  policyVersion: 1,
  parallelOffers: 2,
  offersMax: 4,
  deliveryTtlMs: 600_000,
  decisionTtlMs: 1_200_000,
  maxLifetimeMs: 7_200_000,
  patienceMs: 3_600_000,
  givebacksMax: 1,
  noShowAfterMs: 3_600_000,
  holdMs: 3_600_000,
};
const NOW_MS = 0;
const PATIENCE_MS = 3_600_000;
const RESCUE_MS = 7_200_000;

const city = await openCity(0);
afterAll(() => city[Symbol.asyncDispose]());
const { sql } = city;

/** Which of the things there are, by number: of offers the newest is 0. */
const ride = fc.nat(RIDES);
const driver = fc.nat(DRIVERS);
const offer = fc.nat(3);
const claim = {
  offer,
  token: fc.constantFrom('own', 'own', 'own', 'other'),
  by: fc.constantFrom('driver', 'driver', 'other', 'holder'),
};
const by = fc.constantFrom('operator' as const, 'system' as const);
const step = fc.constantFrom<RideStep>('driver_arrived', 'in_progress', 'completed');
const command = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constantFrom('lease' as const, 'lease' as const, 'lease' as const, 'assign' as const),
      ride,
      driver,
      seen: fc.constantFrom('none', 'some', 'all', null),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lift' as const), ride }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('block' as const), driver, isBlocked: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('receive' as const), ...claim }) },
  { weight: 5, arbitrary: fc.record({ kind: fc.constant('confirm' as const), ...claim }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('decline' as const), ...claim }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('release' as const), ...claim }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('lapse' as const), driver }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lookEarly' as const), driver }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('sweep' as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('cancel' as const),
      ride,
      by: fc.constantFrom('rider', 'stranger', null),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('driverCancel' as const),
      ride,
      driver,
      source: fc.constantFrom('driver' as const, 'operator' as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('reassign' as const), ride, driver, to: driver, by }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('hold' as const), ride }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('releaseHold' as const, 'outlastHold' as const), ride }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('flag' as const), ride, offer, isStalled: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('replaceStalled' as const), ride, offer }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('noShow' as const), ride }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('advance' as const), ride, driver, step }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('online' as const), driver }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('offline' as const), driver }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('settle' as const),
      ride,
      isPatient: fc.boolean(),
      rescueMs: fc.constantFrom(0, RESCUE_MS),
    }),
  },
);
type Command = typeof command extends fc.Arbitrary<infer Value> ? Value : never;

class Both {
  readonly #region: number;
  readonly #store = new LeaseStore();
  readonly #rides: string[];
  readonly #drivers: string[];
  readonly #offers: { id: string; token: string }[] = [];

  constructor(region: number) {
    this.#region = region;
    // One of each is nobody's.
    this.#rides = Array.from({ length: RIDES + 1 }, () => newId(region));
    this.#drivers = Array.from({ length: DRIVERS + 1 }, () => `driver-${newId(region)}`);
  }

  async open(): Promise<void> {
    const rides = this.#rides.slice(0, RIDES);
    await transitions.createRides(
      sql,
      this.#region,
      rides.map((rideId) => newRide(this.#region, { rideId, riderId: 'rider', patienceMs: PATIENCE_MS })),
    );
    for (const id of rides) this.#store.requestRide(id, 'rider', NOW_MS + PATIENCE_MS);
    for (const id of this.#drivers.slice(0, DRIVERS)) {
      await sql`insert into drivers (id, region, vehicle_class) values (${id}, ${this.#region}, 'economy')`;
      await sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
        values (${this.#region}, ${id}, 'offline', 'economy', clock_timestamp())`;
      this.#store.registerDriver(id);
      this.#compare(await transitions.bringOnline(sql, this.#region, [id], true), this.#store.bringOnline(id));
    }
  }

  async run(asked: Command): Promise<void> {
    const region = this.#region;
    const rideId = 'ride' in asked ? this.#rides[asked.ride]! : '';
    const driverId = 'driver' in asked ? this.#drivers[asked.driver]! : '';
    switch (asked.kind) {
      case 'assign':
      case 'lease': {
        const ask = {
          rideId,
          driverId,
          offerId: newId(region),
          leaseToken: newId(region),
          pickupEtaS: 60,
          ...this.#seen(rideId, asked.seen),
        };
        const isLease = asked.kind === 'lease';
        const change = isLease ? transitions.leaseDrivers : transitions.assignDrivers;
        const [answer] = await change(sql, region, [ask], TERMS, true);
        const specified = { ...ask, token: ask.leaseToken };
        const said = isLease
          ? this.#store.lease(specified, TERMS, NOW_MS)
          : this.#store.assign(specified, TERMS, NOW_MS);
        this.#compare([{ refused: answer!.refused, applied: answer!.refused === null }], said);
        if (said.applied) this.#offers.unshift({ id: ask.offerId, token: ask.leaseToken });
        return;
      }
      case 'receive':
      case 'confirm':
      case 'decline':
      case 'release':
        return this.#claim(asked);
      case 'lapse': {
        const state = this.#store.drivers.get(driverId);
        if (state?.status !== 'leased') return;
        await moveExpiry(sql, region, [driverId], -10_800_000);
        this.#store.drivers.set(driverId, { ...state, term: { ...state.term, expiresAtMs: NOW_MS - 1 } });
        return;
      }
      case 'lookEarly':
        // The sweeper looks at a term that was renewed since: it isn't over.
        await sql`update offers set due_at = granted_at
          where region = ${region} and driver_id = ${driverId} and due_at is not null`;
        return;
      case 'sweep':
        return this.sweep();
      case 'cancel': {
        const riderId = asked.by;
        const ask = { rideId, riderId, source: 'rider', reason: 'test' } as const;
        return this.#compare(
          await transitions.cancelRides(sql, region, [ask], true),
          this.#store.cancel(rideId, riderId),
        );
      }
      case 'driverCancel': {
        const ask = { rideId, driverId, source: asked.source, reason: 'test' };
        const said = this.#store.driverCancel(rideId, driverId, NOW_MS, TERMS);
        return this.#compare(await transitions.unassignRides(sql, region, [ask], true), said);
      }
      case 'advance': {
        const ask = { rideId, driverId, status: asked.step };
        const said = this.#store.advance(rideId, driverId, asked.step, NOW_MS + TERMS.noShowAfterMs);
        return this.#compare(await transitions.advanceRides(sql, region, [ask], true), said);
      }
      case 'online':
        return this.#compare(
          await transitions.bringOnline(sql, region, [driverId], true),
          this.#store.bringOnline(driverId),
        );
      case 'offline':
        return this.#compare(
          await transitions.takeOffline(sql, region, [driverId], 'test', true),
          this.#store.takeOffline(driverId),
        );
      case 'reassign': {
        const toDriverId = this.#drivers[asked.to]!;
        if (toDriverId === driverId) return;
        const ask = {
          rideId,
          driverId: toDriverId,
          offerId: newId(region),
          leaseToken: newId(region),
          pickupEtaS: 60,
          fromDriverId: driverId,
          source: asked.by,
          reason: asked.by === 'system' ? 'replaced' : 'test',
        };
        const said = this.#store.reassign(driverId, { ...ask, token: ask.leaseToken }, TERMS, NOW_MS, asked.by);
        this.#compare([await transitions.reassignRide(sql, region, ask, TERMS)], said);
        if (said.applied) this.#offers.unshift({ id: ask.offerId, token: ask.leaseToken });
        return;
      }
      case 'hold': {
        const said = this.#store.hold(rideId, TERMS, NOW_MS);
        const { refused, applied } = await transitions.holdRide(sql, region, rideId, 'test');
        return this.#compare([{ refused, applied }], said);
      }
      case 'releaseHold':
        return this.#compare(
          [await transitions.releaseHold(sql, region, rideId, 'test')],
          this.#store.releaseHold(rideId, NOW_MS),
        );
      case 'outlastHold': {
        const state = this.#store.rides.get(rideId);
        if (state === undefined || state.heldUntilMs === null) return;
        await sql`update rides set held_until = updated_at where region = ${region} and id = ${rideId}`;
        this.#store.rides.set(rideId, { ...state, heldUntilMs: NOW_MS });
        return;
      }
      case 'flag':
      case 'replaceStalled': {
        const offerId = this.#offers[asked.offer]?.id ?? newId(region);
        if (asked.kind === 'flag') {
          const stalledMs = asked.isStalled ? 60_000 : null;
          await transitions.flagPickups(sql, region, [{ rideId, offerId, stalledMs }]);
          return this.#store.flagPickup(rideId, offerId, asked.isStalled);
        }
        const replaced = await transitions.replaceStalled(sql, region, [{ rideId, offerId }]);
        expect(replaced.length === 1).toBe(this.#store.replaceStalled(rideId, offerId, NOW_MS, TERMS));
        return;
      }
      case 'noShow': {
        const state = this.#store.rides.get(rideId);
        if (state?.status === 'driver_arrived') {
          await sql`update rides set no_show_at = updated_at where region = ${region} and id = ${rideId}`;
          this.#store.rides.set(rideId, { ...state, noShowAtMs: NOW_MS });
        }
        const cancelled = await transitions.cancelNoShows(sql, region, 10);
        expect(cancelled.map(({ ride_id: id }) => id)).toEqual(this.#store.cancelNoShows(NOW_MS));
        return;
      }
      case 'lift': {
        await transitions.liftExclusions(sql, region, [rideId]);
        return this.#store.lift(rideId, NOW_MS);
      }
      case 'block': {
        const pair = { region, rider_id: 'rider', driver_id: driverId, created_by: 'test' };
        if (asked.isBlocked) {
          await sql`insert into rider_driver_blocks ${sql(pair)} on conflict do nothing`;
          this.#store.blocks.add(`rider ${driverId}`);
        } else {
          await sql`delete from rider_driver_blocks where region = ${region} and driver_id = ${driverId}`;
          this.#store.blocks.delete(`rider ${driverId}`);
        }
        return;
      }
      case 'settle': {
        const state = this.#store.rides.get(rideId);
        if (!asked.isPatient && state !== undefined) {
          await sql`update rides set patience_until = requested_at where region = ${region} and id = ${rideId}`;
          this.#store.rides.set(rideId, { ...state, patienceUntilMs: NOW_MS });
        }
        await transitions.settleRides(sql, region, [{ rideId, waitMs: 0, reason: 'nobody_near' }], {
          offersMax: TERMS.offersMax,
          rescueMs: asked.rescueMs,
          recoveryMs: 0,
        });
        return this.#store.settle(rideId, { offersMax: TERMS.offersMax, rescueMs: asked.rescueMs }, NOW_MS);
      }
    }
  }

  /** How much of a ride's exclusions a matcher had read. */
  #seen(rideId: string, how: 'none' | 'some' | 'all' | null): { seenExclusions?: number } {
    const count = this.#store.rides.get(rideId)?.exclusions.length ?? 0;
    if (how === null) return {};
    return { seenExclusions: { none: 0, some: count >> 1, all: count }[how] };
  }

  async sweep(): Promise<void> {
    const ended = await transitions.expireLeases(sql, this.#region, transitions.FROM_THE_FIRST, 100);
    const ids = ended.filter(({ ended_as: as }) => as !== null).map(({ offer_id: id }) => id);
    expect(ids.toSorted()).toEqual(this.#store.expire(NOW_MS).toSorted());
  }

  async #claim({ kind, offer: number, token, by: who }: Extract<Command, { token: string }>): Promise<void> {
    const known = this.#offers[number] ?? { id: newId(this.#region), token: 'none' };
    const owner = this.#store.offers.get(known.id)?.driverId ?? 'nobody';
    const driverId = who === 'holder' ? null : who === 'driver' ? owner : 'a stranger';
    const held = { offerId: known.id, token: token === 'own' ? known.token : 'guessed', driverId };
    const sent = { offerId: held.offerId, leaseToken: held.token, driverId };
    const region = this.#region;
    if (kind === 'receive')
      this.#compare(await transitions.receiveOffers(sql, region, [sent], true), this.#store.receive(held, NOW_MS));
    else if (kind === 'confirm')
      this.#compare(await transitions.confirmOffers(sql, region, [sent], true), this.#store.confirm(held, NOW_MS));
    else {
      const end = kind === 'decline' ? 'declined' : 'withdrawn';
      const answers = await transitions.returnOffers(sql, region, [{ ...sent, reason: 'test' }], end, true);
      this.#compare(answers, this.#store.giveBackOffer(held, end, NOW_MS));
    }
  }

  #compare(answers: readonly { refused: string | null; applied: boolean }[], said: Answer): void {
    const [{ refused, applied }] = answers as [Answer];
    expect({ refused, applied }).toEqual(said);
  }

  /** Every row, as far as it isn't a time. */
  async compareRows(): Promise<void> {
    const store = this.#store;
    const rides = await sql`select id, status, live_offers, offers_made, empty_rounds, queue_at is not null as queued,
        excluded_driver_ids, excluded_as, rescue_until is not null as rescued, search_try, no_show_at is not null as no_show,
        held_until is not null as held, stalled_since is not null as stalled, event_seq, version, assigned_driver_id, assigned_offer_id,
        (select count(*)::int from ride_events e where e.region = r.region and e.ride_id = r.id) as events
      from rides r where region = ${this.#region} and id = any(${this.#rides}::uuid[]) order by id`;
    expect([...rides]).toEqual(
      [...store.rides.values()]
        .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        .map((known) => ({
          id: known.id,
          status: known.status,
          live_offers: known.liveOffers,
          offers_made: known.offersMade,
          empty_rounds: known.emptyRounds,
          queued: known.isQueued,
          excluded_driver_ids: known.exclusions.map(({ driverId }) => driverId),
          excluded_as: known.exclusions.map(({ cause }) => cause),
          rescued: known.rescueUntilMs !== null,
          search_try: known.searchTry,
          no_show: known.noShowAtMs !== null,
          held: known.heldUntilMs !== null,
          stalled: known.isStalled,
          event_seq: known.events,
          version: known.version,
          assigned_driver_id: known.assignment?.driverId ?? null,
          assigned_offer_id: known.assignment?.offerId ?? null,
          events: known.events,
        })),
    );
    const drivers = await sql`select driver_id, status, fence::int, version::int, offer_id, leased_to_ride_id
      from driver_state where region = ${this.#region} and driver_id = any(${this.#drivers}::text[]) order by driver_id`;
    expect([...drivers]).toEqual(
      [...store.drivers.values()]
        .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        .map((known) => {
          const held = known.status === 'leased' ? known.term : known.status === 'assigned' ? known : null;
          const { id, status, fence, version } = known;
          return {
            driver_id: id,
            status,
            fence,
            version,
            offer_id: held?.offerId ?? null,
            leased_to_ride_id: held?.rideId ?? null,
          };
        }),
    );
    const offers = await sql`select id, status, search_try, fence::int, proof is not null as proven, version
      from offers where region = ${this.#region} and id = any(${this.#offers.map(({ id }) => id)}::uuid[]) order by id`;
    expect([...offers]).toEqual(
      [...store.offers.values()]
        .toSorted((a, b) => (a.id < b.id ? -1 : 1))
        .map(({ id, status, searchTry, fence, isProven, version }) => ({
          id,
          status,
          search_try: searchTry,
          fence,
          proven: isProven,
          version,
        })),
    );
  }
}

test(
  `${RUNS} sequences of commands: the database answers and records as the specification does`,
  { timeout: 1_800_000 },
  async () => {
    const lanes = Array.from({ length: AT_ONCE }, async (_, lane) => {
      const region = await addRegion(sql, `lane-${lane}`, TERMS);
      await sql`insert into presence_epochs (region, since) values (${region}, now() - interval '1 day')`;
      const sequence = fc.asyncProperty(fc.array(command, { minLength: 5, maxLength: 40 }), async (commands) => {
        const both = new Both(region);
        await both.open();
        for (const each of commands) await both.run(each);
        await both.compareRows();
        await both.sweep();
        await both.compareRows();
      });
      await fc.assert(sequence, { numRuns: Math.ceil(RUNS / AT_ONCE) });
    });
    await Promise.all(lanes);
  },
);
