/**
 * The transitions as the rest of the service calls them: one item at a time, gathered into sets here, with what
 * follows from each (drivers told, matchers woken, outcomes counted) done once, after its commit.
 */
import type { Point } from '../../domain/geo.ts';
import type { Pairing } from '../../domain/matching.ts';
import type { RefusalCode } from '../../domain/refusals.ts';
import { type Database, isUnreachable } from '../database/connection.ts';
import type { DriverNotice, OfferMessage } from '../gateway/notices.ts';
import type { Metrics, TransitionName } from '../ops/metrics.ts';
import { Admission } from './admission.ts';
import { GroupCommit, OverloadedError, type Refusable } from './group-commit.ts';
import { newId, newLeaseToken } from './ids.ts';
import * as transitions from './transitions.ts';

export interface Effects {
  /** Tells drivers, on whichever gateway they are. May lose what it is given. */
  readonly tell: (region: number, notices: DriverNotice[]) => void;
  /** A round of this region may now find something to do. May be lost as well. */
  readonly wake: (region: number) => void;
  /** What its operators call a region. */
  readonly regionId: (region: number) => string;
  /** Drivers for rides that are being requested, if a matcher here may look for them now; absent: there is none. */
  readonly pair?: (region: number, rides: readonly transitions.NewRide[]) => Promise<Paired | null>;
}

export interface ShiftAsk {
  readonly driverId: string;
  /** Asked for by the device's own socket, which hears the answer. */
  readonly overSocket: boolean;
}

export interface Paired {
  /** By the ride. */
  readonly pairs: ReadonlyMap<string, Pairing>;
  readonly termsOf: (policyVersion: number) => transitions.LeaseTerms;
  /**
   * To be called once they were asked for, whatever came of it. `areServed`: no round need look at any of the rides;
   * `isContested`: a driver is somebody else's by now.
   */
  readonly done: (outcome: { readonly areServed: boolean; readonly isContested: boolean }) => void;
}

/** A pair that a round, or a fleet's own matcher, wants leased. */
export interface OfferAsk {
  readonly rideId: string;
  readonly driverId: string;
  readonly pickup: Point;
  readonly dropoff: Point;
  readonly pickupEtaS: number;
  /** As in `transitions.LeaseAsk`. */
  readonly seenExclusions?: number;
}

export type Leasing = ReturnType<typeof createLeasing>;

/** What a lease ask came to. */
export type OfferOutcome =
  | (OfferMessage & { readonly driverId: string })
  | { readonly rideId: string; readonly driverId: string; readonly refused: RefusalCode };

/** A ride that was requested, and leased at once if `leased_at` says when. `isServed`: no round need look at it. */
export type RequestedRide = transitions.CreatedRide &
  Pick<transitions.RequestedRide, 'leased_at'> & { readonly isServed: boolean };

/** The driver is somebody else's, or about to be. */
const GONE: ReadonlySet<string> = new Set<RefusalCode>(['driver_unavailable', 'busy']);
/**
 * For an offer somebody waits; the steps of a trip come three times a ride, and nobody looks at their milliseconds. With 3
 * for the ones and then 12 for the others, instead of 6, offers came after 11 ms instead of 18 (p50, 524 rides/s), and a ride
 * cost a tenth less.
 */
const REQUESTS_REST_MS = 3;
const STEPS_REST_MS = 20;
const LEASE_SET_MAX = 50;
const SWEEP_SET_MAX = 100;
/** What is over beyond so many sets is for the next sweep; of a herd, beyond so many for the next of its passes. */
const SWEEP_SETS_MAX = 500;
const PASS_SETS_MAX = 100;
/** A round frees as many leases as it looks at rides, and doesn't wait for a herd of them to end. */
const ROUND_SETS_MAX = 5;
/**
 * Sets at once of a herd: 50,000 leases that end together take the database 4 to 5 s of a core, and drivers confirm meanwhile.
 * On 2 cores their p99 was 30 ms beside one lane, 42 beside two, 51 beside three, and all were free after 3 to 5, 2, and 2 s.
 */
const SWEEP_LANES = 2;

const claimKey = ({ offerId, leaseToken, driverId }: transitions.TermClaim): string =>
  `${offerId} ${leaseToken} ${driverId ?? ''}`;

export function createLeasing({ hot }: Pick<Database, 'hot'>, metrics: Metrics, effects: Effects) {
  /** A lane of sets for one kind of command; `after` sees what each set changed, once. */
  function lane<Item, Answer extends Refusable & { readonly applied: boolean }>(
    name: TransitionName | ((item: Item) => TransitionName),
    keyOf: (item: Item) => string | null,
    change: (region: number, items: Item[], wait: boolean) => Promise<Answer[]>,
    after: (region: number, applied: { item: Item; answer: Answer }[]) => void = () => {},
    rest: { readonly restMs?: number } = {},
  ): GroupCommit<Item, Answer> {
    const nameOf = typeof name === 'function' ? name : () => name;
    return new GroupCommit({
      ...rest,
      keyOf,
      run: async (region, items, wait) => {
        const answers = await change(region, items, wait);
        items.forEach((item, i) => {
          const { refused, applied } = answers[i]!;
          // A set that meets a held row asks again for it alone: that answer counts.
          if (refused === 'busy' && !wait) return;
          metrics.countTransition(nameOf(item), refused ?? (applied ? 'applied' : 'repeated'));
        });
        metrics.setSize.observe({ transition: nameOf(items[0]!) }, items.length);
        const applied = items.map((item, i) => ({ item, answer: answers[i]! })).filter(({ answer }) => answer.applied);
        if (applied.length > 0) after(region, applied);
        return answers;
      },
    });
  }

  const countWithdrawn = ({ withdrawn_held_ms: heldMs }: { readonly withdrawn_held_ms: number[] | null }): void => {
    for (const ms of heldMs ?? []) metrics.leaseHold.observe({ ended_as: 'withdrawn' }, ms / 1000);
  };

  const requests = lane(
    'request',
    () => null,
    async (region, rides: transitions.NewRide[]) =>
      (await requestSet(region, rides)).map((answer) => ({
        ...answer,
        applied: answer.refused === null && !answer.replayed,
      })),
    (region, applied) => {
      if (!applied.every(({ answer }) => answer.isServed)) effects.wake(region);
    },
    { restMs: REQUESTS_REST_MS },
  );

  async function requestSet(region: number, rides: readonly transitions.NewRide[]): Promise<RequestedRide[]> {
    const create = async (): Promise<RequestedRide[]> =>
      (await transitions.createRides(hot, region, rides)).map((ride) => ({
        ...ride,
        leased_at: null,
        isServed: false,
      }));
    const paired = await effects.pair?.(region, rides);
    if (!paired) return create();
    // Whose driver is whose isn't known of a set that failed.
    let outcome = { areServed: false, isContested: paired.pairs.size > 0 };
    try {
      if (paired.pairs.size === 0) return await create();
      const { requested, isContested } = await requestPaired(region, rides, paired);
      outcome = { areServed: requested.every(({ isServed }) => isServed), isContested };
      return requested;
    } catch (error) {
      // It may be the leases that fail: no ride is refused for that.
      if (paired.pairs.size === 0 || isUnreachable(error)) throw error;
      return await create();
    } finally {
      paired.done(outcome);
    }
  }

  /** Makes the rides, and leases the drivers who were found for them; tells those. */
  async function requestPaired(
    region: number,
    rides: readonly transitions.NewRide[],
    { pairs, termsOf }: Paired,
  ): Promise<{ requested: RequestedRide[]; isContested: boolean }> {
    const asks = rides.map((ride) => {
      const pair = pairs.get(ride.rideId);
      const terms = termsOf(ride.policyVersion);
      return { ride, lease: pair && { ...pair, offerId: newId(region), leaseToken: newLeaseToken(), terms } };
    });
    const answers = await transitions.requestRides(hot, region, asks);
    const asked = answers.filter(({ lease_refused: refused, fence }) => refused !== null || fence !== null);
    metrics.setSize.observe({ transition: 'lease' }, asked.length);
    for (const { lease_refused: refused } of asked) metrics.countTransition('lease', refused ?? 'applied');
    const offers: DriverNotice[] = [];
    const requested = asks.map(({ ride: { rideId, pickup, dropoff }, lease }, i) => {
      const { fence, first_offer_after_ms: afterMs } = answers[i]!;
      if (fence === null) return { ...answers[i]!, isServed: false };
      metrics.requestToOffer.observe(afterMs! / 1000);
      const { terms, ...made } = lease!;
      offers.push(offerNotice({ ...made, rideId, pickup, dropoff, fence, expiresInMs: terms.decisionTtlMs }));
      return { ...answers[i]!, isServed: terms.parallelOffers === 1 };
    });
    effects.tell(region, offers);
    return { requested, isContested: asked.some(({ lease_refused: refused }) => GONE.has(refused ?? '')) };
  }

  const admission = new Admission(hot);
  /** Rejects with OverloadedError while the region's rides wait too long already. */
  async function request(region: number, ride: transitions.NewRide): Promise<RequestedRide> {
    if (await admission.admits(region)) return requests.submit(region, ride);
    metrics.countTransition('request', 'overloaded');
    throw new OverloadedError('too many rides wait for a match round');
  }

  const receipts = lane('received', claimKey, (region, claims: transitions.TermClaim[], wait) =>
    transitions.receiveOffers(hot, region, claims, wait),
  );

  const assignedAfter = (region: number, answer: { policy_version: number; since_request_ms: number }): void => {
    const labels = { region: effects.regionId(region), policy: answer.policy_version };
    metrics.requestToAssigned.observe(labels, answer.since_request_ms / 1000);
  };

  const confirms = lane(
    'confirm',
    claimKey,
    (region, claims: transitions.TermClaim[], wait) => transitions.confirmOffers(hot, region, claims, wait),
    (region, applied) => {
      for (const { answer } of applied) {
        assignedAfter(region, answer);
        metrics.offerToAnswer.observe(answer.held_ms / 1000);
        metrics.leaseHold.observe({ ended_as: 'accepted' }, answer.held_ms / 1000);
        countWithdrawn(answer);
      }
      effects.tell(
        region,
        applied.flatMap(({ item, answer }) => [
          assignmentNotice(item.offerId, answer),
          ...withdrawnNotices(answer, 'ride_taken'),
        ]),
      );
    },
  );

  const returns = (status: 'declined' | 'withdrawn') =>
    lane(
      status === 'declined' ? 'decline' : 'release',
      claimKey,
      (region, claims: (transitions.TermClaim & { reason: string })[], wait) =>
        transitions.returnOffers(hot, region, claims, status, wait),
      (region, applied) => {
        for (const { answer } of applied) {
          if (status === 'declined') metrics.offerToAnswer.observe(answer.held_ms / 1000);
          metrics.leaseHold.observe({ ended_as: status }, answer.held_ms / 1000);
        }
        if (status === 'withdrawn') {
          effects.tell(
            region,
            applied.map(({ item, answer }) => withdrawn(answer.driver_id, item.offerId, item.reason)),
          );
        }
        effects.wake(region);
      },
    );
  const declines = returns('declined');
  const releases = returns('withdrawn');

  const cancels = lane(
    'cancel',
    ({ rideId, riderId }: transitions.CancelAsk) => `${rideId} ${riderId ?? ''}`,
    (region, asks, wait) => transitions.cancelRides(hot, region, asks, wait),
    (region, applied) => {
      for (const { answer } of applied) countWithdrawn(answer);
      const notices = applied.flatMap(({ item, answer }) => [
        ...withdrawnNotices(answer, 'ride_cancelled'),
        ...(answer.released_driver_id === null ? [] : [cancelledNotice(answer.released_driver_id, item)]),
      ]);
      effects.tell(region, notices);
      // A freed driver may serve another ride.
      if (notices.length > 0) effects.wake(region);
    },
  );

  const unassigns = lane(
    'driver_cancel',
    ({ rideId, driverId }: transitions.UnassignAsk) => `${rideId} ${driverId}`,
    (region, asks, wait) => transitions.unassignRides(hot, region, asks, wait),
    (region, applied) => {
      // A driver who gave the ride back knows.
      const others = applied.flatMap(({ item }) => (item.source === undefined ? [] : [takenNotice(item)]));
      effects.tell(region, others);
      effects.wake(region);
    },
  );

  const stepNames = { driver_arrived: 'arrive', in_progress: 'start', completed: 'complete' } as const;
  // A driver is free again when a ride is completed, and wakes nobody: a ride that found nobody is looked at when it is due.
  const advances = lane(
    ({ status }: transitions.AdvanceAsk) => stepNames[status],
    ({ rideId, driverId, status }) => `${rideId} ${driverId} ${status}`,
    (region, asks, wait) => transitions.advanceRides(hot, region, asks, wait),
    undefined,
    { restMs: STEPS_REST_MS },
  );

  const idsOf = (asks: readonly ShiftAsk[]): string[] => asks.map(({ driverId }) => driverId);
  /** A request that comes twice may end a shift that was begun in between: the device hears of each change that its socket didn't ask for. */
  const tellShifts = (region: number, applied: readonly { item: ShiftAsk }[]): void => {
    const unheard = applied.filter(({ item }) => !item.overSocket);
    if (unheard.length === 0) return;
    effects.tell(
      region,
      unheard.map(({ item: { driverId } }) => ({ driverId, event: 'shift' })),
    );
  };

  const onlines = lane(
    'online',
    ({ driverId }: ShiftAsk) => driverId,
    (region, asks, wait) => transitions.bringOnline(hot, region, idsOf(asks), wait),
    (region, applied) => {
      tellShifts(region, applied);
      effects.wake(region);
    },
  );

  const offlines = lane(
    'offline',
    ({ driverId }: ShiftAsk) => driverId,
    (region, asks, wait) => transitions.takeOffline(hot, region, idsOf(asks), 'driver_offline', wait),
    (region, applied) => {
      tellShifts(region, applied);
      const ended = applied.filter(({ answer }) => answer.ended_offer_id !== null);
      for (const { answer } of ended) metrics.leaseHold.observe({ ended_as: 'declined' }, answer.held_ms! / 1000);
      if (ended.length === 0) return;
      effects.tell(
        region,
        ended.map(({ item, answer }) => withdrawn(item.driverId, answer.ended_offer_id!, 'driver_offline')),
      );
      effects.wake(region);
    },
  );

  async function leaseSet(
    region: number,
    asks: readonly OfferAsk[],
    terms: transitions.LeaseTerms,
    wait: boolean,
  ): Promise<OfferOutcome[]> {
    const made = asks.map((ask) => ({ ...ask, offerId: newId(region), leaseToken: newLeaseToken() }));
    const answers = await transitions.leaseDrivers(hot, region, made, terms, wait);
    metrics.setSize.observe({ transition: 'lease' }, asks.length);
    return made.map((ask, i) => {
      const { refused, fence, first_offer_after_ms } = answers[i]!;
      metrics.countTransition('lease', refused ?? 'applied');
      if (refused !== null) return { rideId: ask.rideId, driverId: ask.driverId, refused };
      if (first_offer_after_ms !== null) metrics.requestToOffer.observe(first_offer_after_ms / 1000);
      return { ...ask, fence, expiresInMs: terms.decisionTtlMs };
    });
  }

  /** Leases the pairs of a round in sets, never waiting, and tells the drivers; answers in the order asked. */
  async function offer(
    region: number,
    asks: readonly OfferAsk[],
    terms: transitions.LeaseTerms,
    beforeTelling: () => void,
  ): Promise<OfferOutcome[]> {
    const sets: OfferAsk[][] = [];
    for (let i = 0; i < asks.length; i += LEASE_SET_MAX) sets.push(asks.slice(i, i + LEASE_SET_MAX));
    const outcomes = (await Promise.all(sets.map((set) => leaseSet(region, set, terms, false)))).flat();
    beforeTelling();
    tellOffers(region, outcomes);
    return outcomes;
  }

  async function assignSet(
    region: number,
    asks: readonly OfferAsk[],
    terms: transitions.LeaseTerms,
    wait: boolean,
  ): Promise<OfferOutcome[]> {
    const made = asks.map((ask) => ({ ...ask, offerId: newId(region), leaseToken: newLeaseToken() }));
    const answers = await transitions.assignDrivers(hot, region, made, terms, wait);
    metrics.setSize.observe({ transition: 'assign' }, asks.length);
    const notices: DriverNotice[] = [];
    const outcomes = made.map((ask, i): OfferOutcome => {
      const { refused, fence, first_offer_after_ms, assigned_at } = answers[i]!;
      metrics.countTransition('assign', refused ?? 'applied');
      if (refused !== null) return { rideId: ask.rideId, driverId: ask.driverId, refused };
      if (first_offer_after_ms !== null) metrics.requestToOffer.observe(first_offer_after_ms / 1000);
      assignedAfter(region, answers[i]!);
      const { rideId, driverId, offerId, pickup, dropoff } = ask;
      const assignedAt = assigned_at.toISOString();
      notices.push({
        driverId,
        event: 'assignment',
        data: { rideId, driverId, offerId, fence, assignedAt, pickup, dropoff },
        accepted: false,
      });
      return { ...ask, fence, expiresInMs: 0 };
    });
    effects.tell(region, notices);
    return outcomes;
  }

  /** Leases and confirms the pairs of a round in sets, never waiting; answers in the order asked. */
  async function assign(
    region: number,
    asks: readonly OfferAsk[],
    terms: transitions.LeaseTerms,
  ): Promise<OfferOutcome[]> {
    const sets: OfferAsk[][] = [];
    for (let i = 0; i < asks.length; i += LEASE_SET_MAX) sets.push(asks.slice(i, i + LEASE_SET_MAX));
    return (await Promise.all(sets.map((set) => assignSet(region, set, terms, false)))).flat();
  }

  /** One pair, by an operator: waits for a held row within the deadline. */
  const assignOne = async (region: number, ask: OfferAsk, terms: transitions.LeaseTerms): Promise<OfferOutcome> =>
    (await assignSet(region, [ask], terms, true))[0]!;

  /** From one driver to another, or nothing; tells both. */
  async function reassign(
    region: number,
    ask: OfferAsk & Pick<transitions.ReassignAsk, 'fromDriverId' | 'source' | 'reason'>,
    terms: transitions.LeaseTerms,
  ): Promise<transitions.ReassignAnswer> {
    const made = { ...ask, offerId: newId(region), leaseToken: newLeaseToken() };
    const answer = await transitions.reassignRide(hot, region, made, terms);
    metrics.countTransition('reassign', answer.refused ?? (answer.applied ? 'applied' : 'repeated'));
    if (!answer.applied) return answer;
    const { rideId, driverId, offerId, pickup, dropoff } = made;
    const { fence } = answer;
    const assignedAt = answer.assigned_at.toISOString();
    effects.tell(region, [
      takenNotice({ ...ask, driverId: ask.fromDriverId }),
      {
        driverId,
        event: 'assignment',
        data: { rideId, driverId, offerId, fence, assignedAt, pickup, dropoff },
        accepted: false,
      },
    ]);
    // The freed driver may serve another ride.
    effects.wake(region);
    return answer;
  }

  async function hold(region: number, rideId: string, reason: string): Promise<transitions.HoldAnswer> {
    const answer = await transitions.holdRide(hot, region, rideId, reason);
    metrics.countTransition('hold', answer.refused ?? (answer.applied ? 'applied' : 'repeated'));
    if (!answer.applied) return answer;
    countWithdrawn(answer);
    effects.tell(region, withdrawnNotices(answer, 'ride_held'));
    if (answer.withdrawn_offer_ids !== null) effects.wake(region);
    return answer;
  }

  async function releaseHold(
    region: number,
    rideId: string,
    reason: string,
  ): Promise<Pick<transitions.HoldAnswer, 'refused' | 'applied'>> {
    const answer = await transitions.releaseHold(hot, region, rideId, reason);
    metrics.countTransition('release_hold', answer.refused ?? (answer.applied ? 'applied' : 'repeated'));
    if (answer.applied) effects.wake(region);
    return answer;
  }

  /** Takes flagged rides from the drivers who don't come; tells those. Returns how many. */
  async function replaceStalled(
    region: number,
    pickups: readonly { readonly rideId: string; readonly offerId: string }[],
  ): Promise<number> {
    const replaced = await transitions.replaceStalled(hot, region, pickups);
    metrics.countTransition('replace_stalled', 'applied', replaced.length);
    if (replaced.length === 0) return 0;
    effects.tell(
      region,
      replaced.map(({ ride_id: rideId, driver_id: driverId }) =>
        takenNotice({ rideId, driverId, reason: 'stalled', source: 'system' }),
      ),
    );
    effects.wake(region);
    return replaced.length;
  }

  /** Cancels the rides whose riders didn't come in time, in bounded sets; returns how many. */
  async function cancelNoShows(region: number): Promise<number> {
    let cancelled = 0;
    for (let sets = 0; sets < SWEEP_SETS_MAX; sets += 1) {
      const over = await transitions.cancelNoShows(hot, region, LEASE_SET_MAX);
      metrics.countTransition('no_show', 'applied', over.length);
      if (over.length > 0) {
        const why = { reason: 'no_show', source: 'system' } as const;
        effects.tell(
          region,
          over.map(({ ride_id: rideId, driver_id: driverId }) => takenNotice({ rideId, driverId, ...why })),
        );
        effects.wake(region);
      }
      cancelled += over.length;
      if (over.length < LEASE_SET_MAX) break;
    }
    return cancelled;
  }

  /** One pair, for a fleet's own matcher: waits for a held row within the deadline. */
  async function offerOne(region: number, ask: OfferAsk, terms: transitions.LeaseTerms): Promise<OfferOutcome> {
    const outcomes = await leaseSet(region, [ask], terms, true);
    tellOffers(region, outcomes);
    return outcomes[0]!;
  }

  function tellOffers(region: number, outcomes: readonly OfferOutcome[]): void {
    effects.tell(
      region,
      outcomes.flatMap((outcome) => ('refused' in outcome ? [] : [offerNotice(outcome)])),
    );
  }

  /** The same for one pair under an idempotency key; a repetition hears the id of the offer made then. */
  async function offerOnce(
    region: number,
    ask: OfferAsk,
    terms: transitions.LeaseTerms,
    idempotency: { subject: string; key: string; requestHash: Buffer },
  ): Promise<
    | { readonly offerId: string; readonly replayed: boolean }
    | { readonly refused: RefusalCode | 'idempotency_key_reused' }
  > {
    const made = { ...ask, offerId: newId(region), leaseToken: newLeaseToken() };
    const answer = await transitions.leaseDriverOnce(hot, region, made, terms, idempotency);
    metrics.countTransition('lease', answer.refused ?? (answer.replayed ? 'repeated' : 'applied'));
    if (answer.refused !== null) return { refused: answer.refused };
    if (!answer.replayed) {
      if (answer.first_offer_after_ms !== null) metrics.requestToOffer.observe(answer.first_offer_after_ms / 1000);
      effects.tell(region, [offerNotice({ ...made, fence: answer.fence, expiresInMs: terms.decisionTtlMs })]);
    }
    return { offerId: answer.offer_id, replayed: answer.replayed };
  }

  function tellLapsed(region: number, over: readonly transitions.EndedTerm[]): void {
    if (over.length === 0) return;
    for (const { ended_as, held_ms } of over) {
      metrics.leaseHold.observe({ ended_as }, held_ms / 1000);
      metrics.countTransition('expire', ended_as);
    }
    effects.tell(
      region,
      over.map(({ driver_id, offer_id, ended_as }) => withdrawn(driver_id, offer_id, ended_as)),
    );
    effects.wake(region);
  }

  /** Frees leases that are over, the next set behind `after`; returns how many ended, and where to go on. */
  async function expireSet(
    region: number,
    after: transitions.DuePlace,
  ): Promise<{ ended: number; last: transitions.DuePlace | null }> {
    const due = await transitions.expireLeases(hot, region, after, SWEEP_SET_MAX);
    const over = due.filter((each) => each.ended_as !== null);
    for (const { late_ms } of over) metrics.sweeperLag.observe(late_ms / 1000);
    tellLapsed(region, over);
    return { ended: over.length, last: due.length < SWEEP_SET_MAX ? null : due.at(-1)! };
  }

  /** Frees leases of the region that are over, in order of their ends, as many as a round may wait for; returns how many. */
  async function expireSome(region: number): Promise<number> {
    let ended = 0;
    let last: transitions.DuePlace | null = transitions.FROM_THE_FIRST;
    for (let sets = 0; sets < ROUND_SETS_MAX && last !== null; sets += 1) {
      const set = await expireSet(region, last);
      ended += set.ended;
      last = set.last;
    }
    return ended;
  }

  /**
   * Frees the leases of the region that are over, in bounded sets, except those that others hold; returns how many. Of a herd
   * it looks where the sets begin, so that several are freed at once and hardly look at each other's, again and again: while
   * one half is freed the other ends.
   */
  async function expire(region: number): Promise<number> {
    const first = await expireSet(region, transitions.FROM_THE_FIRST);
    let all = first.ended;
    for (let pass = 0, more = first.last !== null; more && pass < SWEEP_SETS_MAX / PASS_SETS_MAX; pass += 1) {
      const ended = await expireHerd(region);
      all += ended;
      more = ended >= SWEEP_SET_MAX;
    }
    return all;
  }

  async function expireHerd(region: number): Promise<number> {
    const places = await transitions.duePlaces(hot, region, SWEEP_SET_MAX, PASS_SETS_MAX * SWEEP_SET_MAX);
    const starts = [transitions.FROM_THE_FIRST, ...places];
    let all = 0;
    const freeInTurn = async (): Promise<void> => {
      for (let start = starts.shift(); start !== undefined; start = starts.shift()) {
        const { ended } = await expireSet(region, start);
        all += ended;
      }
    };
    const lanes = Array.from({ length: SWEEP_LANES }, freeInTurn);
    await Promise.all(lanes).finally(() => {
      // Of one that failed the others end with their sets.
      starts.length = 0;
    });
    return all;
  }

  /** Frees leases that begin in the future by the database's clock, of which the caller knows that they are over. */
  async function endTermsAhead(region: number, offerIds: readonly string[]): Promise<void> {
    tellLapsed(region, await transitions.endTermsAhead(hot, region, offerIds));
  }

  return {
    request,
    offer,
    offerOne,
    offerOnce,
    assign,
    assignOne,
    reassign,
    hold,
    releaseHold,
    replaceStalled,
    cancelNoShows,
    received: (region: number, claim: transitions.TermClaim) => receipts.submit(region, claim),
    /** The same; rejects with TakenBackError when it is left out. */
    receivedUnlessAccepted: (region: number, claim: transitions.TermClaim) => receipts.submit(region, claim, false),
    /** Accepting implies having received: a receipt that still waits for its set needn't go to the records. */
    leaveOutReceipt: (region: number, claim: transitions.TermClaim) => receipts.takeBack(region, claim),
    confirm: (region: number, claim: transitions.TermClaim) => confirms.submit(region, claim),
    decline: (region: number, claim: transitions.TermClaim, reason: string) =>
      declines.submit(region, { ...claim, reason }),
    release: (region: number, claim: transitions.TermClaim, reason: string) =>
      releases.submit(region, { ...claim, reason }),
    cancel: (region: number, ask: transitions.CancelAsk) => cancels.submit(region, ask),
    unassign: (region: number, ask: transitions.UnassignAsk) => unassigns.submit(region, ask),
    advance: (region: number, ask: transitions.AdvanceAsk) => advances.submit(region, ask),
    online: (region: number, ask: ShiftAsk) => onlines.submit(region, ask),
    offline: (region: number, ask: ShiftAsk) => offlines.submit(region, ask),
    expire,
    expireSome,
    endTermsAhead,
  };
}

const withdrawn = (driverId: string, offerId: string, reason: string): DriverNotice => ({
  driverId,
  event: 'offer:withdrawn',
  data: { offerId, reason },
});

const withdrawnNotices = (
  answer: { withdrawn_offer_ids: string[] | null; withdrawn_driver_ids: string[] | null },
  reason: string,
): DriverNotice[] =>
  (answer.withdrawn_offer_ids ?? []).map((offerId, i) => withdrawn(answer.withdrawn_driver_ids![i]!, offerId, reason));

/** The ride isn't this driver's any more. */
const takenNotice = ({
  driverId,
  rideId,
  reason,
  source = 'system',
}: Pick<transitions.UnassignAsk, 'driverId' | 'rideId' | 'reason' | 'source'>): DriverNotice => ({
  driverId,
  event: 'ride:cancelled',
  data: { rideId, reasonCode: reason, source },
});

const cancelledNotice = (driverId: string, ask: transitions.CancelAsk): DriverNotice => ({
  driverId,
  event: 'ride:cancelled',
  data: { rideId: ask.rideId, reasonCode: ask.reason, source: ask.source },
});

const offerNotice = (offer: OfferMessage & { driverId: string }): DriverNotice => ({
  driverId: offer.driverId,
  event: 'offer',
  data: {
    offerId: offer.offerId,
    rideId: offer.rideId,
    leaseToken: offer.leaseToken,
    fence: offer.fence,
    expiresInMs: offer.expiresInMs,
    pickup: offer.pickup,
    dropoff: offer.dropoff,
    pickupEtaS: offer.pickupEtaS,
  },
});

const assignmentNotice = (offerId: string, answer: transitions.ConfirmAnswer): DriverNotice => ({
  driverId: answer.driver_id,
  event: 'assignment',
  data: {
    rideId: answer.ride_id,
    driverId: answer.driver_id,
    offerId,
    fence: answer.fence,
    assignedAt: answer.assigned_at.toISOString(),
    pickup: { lat: answer.pickup_lat, lng: answer.pickup_lng },
    dropoff: { lat: answer.dropoff_lat, lng: answer.dropoff_lng },
  },
  accepted: true,
});
