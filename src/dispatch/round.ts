/**
 * One match round of a region: free what is over, look at the rides that are due and the drivers near them, pair,
 * lease, and put back the rides that found nobody. Every step is guarded in the database, so that a round may be
 * killed at any line and two may run at once: what one leases, the other is refused.
 */
import { type Exclusion, liftable } from '../../domain/eligibility.ts';
import type { Fleet } from '../../domain/matching/fleet.ts';
import {
  countServable,
  matchings,
  type NobodyFound,
  type Pairing,
  type WaitingRide,
  whyNobody,
} from '../../domain/matching.ts';
import { openPlaces, parallelOffers, retryWaitMs, searchRadiusM } from '../../domain/search.ts';
import type { Policy } from '../../domain/policy.ts';
import type { Sql } from '../database/connection.ts';
import type { Leasing, OfferOutcome } from '../leasing/leasing.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Region, Regions } from '../regions.ts';
import type { Faults } from './faults.ts';
import { cellsAround, contextOf, exclusionsOf, needsOf } from './seeking.ts';
import type { Seen, Supply } from './supply.ts';

/** Rides of one round; the rest is for the next, which follows at once. */
const ROUND_RIDES_MAX = 500;

export interface RoundDeps {
  readonly sql: Sql;
  readonly supply: Supply;
  readonly leasing: Leasing;
  readonly regions: Regions;
  readonly metrics: Metrics;
  readonly faults: Faults;
}

export interface RoundOutcome {
  readonly looked: number;
  /** As many as a round takes: there may be more. */
  readonly isFull: boolean;
  readonly offered: number;
  readonly givenUp: number;
  /** How long until a ride is due again; 0: at once; null: no ride waits. */
  readonly nextInMs: number | null;
}

interface Due {
  readonly ride: transitions.DueRide;
  /** What it was requested under, with as many parallel offers as its search has escalated to. */
  readonly policy: Policy;
  readonly exclusions: readonly Exclusion[];
  readonly waiting: WaitingRide;
}

/** Of a ride without a pair: why, or that there was nothing to look for. */
type Found = ReadonlyMap<string, NobodyFound>;

export async function runRound(deps: RoundDeps, region: Region): Promise<RoundOutcome> {
  const { rides: rows, next_in_ms: nextInMs } = await openRound(deps, region);
  const due = await Promise.all(
    rows.map(async (ride) => dueRide(ride, await deps.regions.policy(region.number, ride.policy_version))),
  );
  if (due.length === 0) return { looked: 0, isFull: false, offered: 0, givenUp: 0, nextInMs };
  const { pairings, readAtMs, nobody } = await findPairings(deps, region, due);
  const leased = await leasePairings(deps, region, due, pairings, readAtMs);
  const lifted = await lift(deps, region, due, nobody);
  const left = due.filter(
    ({ ride: { ride_id: id }, waiting }) =>
      !leased.contested.has(id) && !lifted.has(id) && (leased.granted.get(id) ?? 0) < Math.max(waiting.places, 1),
  );
  const settled = await settle(deps, region, left, nobody);
  const isFull = rows.length === ROUND_RIDES_MAX;
  const isMore = isFull || leased.contested.size + lifted.size > 0;
  return {
    looked: rows.length,
    isFull,
    offered: [...leased.granted.values()].reduce((all, count) => all + count, 0),
    givenUp: settled.givenUp,
    nextInMs: isMore ? 0 : earlier(nextInMs, settled.againInMs),
  };
}

/** Mostly nothing is over, and one statement says all. */
async function openRound({ sql, leasing }: RoundDeps, { number }: Region): Promise<transitions.OpenRound> {
  const round = await transitions.openRound(sql, number, ROUND_RIDES_MAX);
  if (!round.is_overdue) return round;
  await leasing.expireSome(number);
  await leasing.cancelNoShows(number);
  return transitions.openRound(sql, number, ROUND_RIDES_MAX);
}

const earlier = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.min(a, b);

function dueRide(ride: transitions.DueRide, policy: Policy): Due {
  const search = {
    emptyRounds: ride.empty_rounds,
    liveOffers: ride.live_offers,
    offersMade: ride.offers_made,
    waitedMs: ride.waited_ms,
  };
  const terms = { ...policy, parallelOffers: parallelOffers(policy, search) };
  const waiting = {
    ...needsOf(ride, policy),
    searchRadiusM: searchRadiusM(policy, search),
    places: ride.patience_left_ms > 0 ? openPlaces(terms, ride.live_offers, ride.offers_made) : 0,
  };
  return { ride, policy: terms, exclusions: exclusionsOf(ride), waiting };
}

async function findPairings(
  { sql, supply, metrics }: RoundDeps,
  region: Region,
  due: readonly Due[],
): Promise<{ pairings: Pairing[]; readAtMs: number; nobody: Found }> {
  const rides = due.map(({ waiting }) => waiting);
  const { positionStaleMs, matching } = region.policy;
  const context = contextOf(region);
  const seeking = rides.filter(({ places }) => places > 0);
  const match = ({ fleet }: Seen): Pairing[] => {
    const pair = (some: readonly WaitingRide[], among: Fleet): Pairing[] => matchings[matching](some, among, context);
    const isHeld = supply.whoIsHeld();
    if (isHeld === null) return pair(seeking, fleet);
    const pairings = pair(
      seeking,
      fleet.only((driver) => !isHeld(driver)),
    );
    return [
      ...pairings,
      ...pair(
        unpaired(pairings).filter(({ places }) => places > 0),
        fleet.only(isHeld),
      ),
    ];
  };
  const unpaired = (pairings: readonly Pairing[]): WaitingRide[] => {
    const paired = new Set(pairings.map(({ rideId }) => rideId));
    return rides.filter(({ rideId }) => !paired.has(rideId));
  };

  const wanted = seeking.reduce((sum, { places }) => sum + places, 0);
  let seen = await supply.nearest(region, rides, context);
  let pairings = match(seen);
  if (!seen.isAll && pairings.length < wanted) {
    // Many rides at one place, and farther drivers whom nobody looked at.
    seen = await supply.all(region, rides);
    pairings = match(seen);
  }
  const without = unpaired(pairings);
  const starving = without.filter(({ places }) => places > 0);
  if (starving.length > 0) {
    const cells = cellsAround(starving);
    const hidden = await transitions.driversNear(sql, region.number, 'leased', cells, positionStaleMs);
    metrics.hiddenSupply.inc(countServable(starving, hidden, context));
  }
  const nobody: Found = without.length === 0 ? new Map() : whyNobody(without, seen.fleet.drivers, context);
  return { pairings, readAtMs: seen.readAtMs, nobody };
}

/** Leases what was paired, under the terms of each ride: how many offers each got. Contested: somebody else was quicker. */
async function leasePairings(
  deps: RoundDeps,
  region: Region,
  due: readonly Due[],
  pairings: readonly Pairing[],
  readAtMs: number,
): Promise<{ granted: Map<string, number>; contested: Set<string> }> {
  const taken = deps.supply.take(region, pairings, readAtMs);
  const isTaken = new Set(taken);
  const outcomes = await leaseTaken(deps, region, due, taken).finally(() => deps.supply.answered(region, taken));
  const refused = outcomes.filter((outcome) => 'refused' in outcome);
  if (refused.length > 0) deps.supply.forget(region);
  deps.supply.held(refused.filter((outcome) => outcome.refused === 'busy').map(({ driverId }) => driverId));
  const granted = new Map<string, number>();
  for (const outcome of outcomes)
    if (!('refused' in outcome)) granted.set(outcome.rideId, (granted.get(outcome.rideId) ?? 0) + 1);
  const untaken = pairings.filter((pairing) => !isTaken.has(pairing));
  return { granted, contested: new Set([...untaken, ...refused].map(({ rideId }) => rideId)) };
}

async function leaseTaken(
  { leasing, faults }: RoundDeps,
  region: Region,
  due: readonly Due[],
  pairings: readonly Pairing[],
): Promise<OfferOutcome[]> {
  await faults.beforeLease(region.policy.deliveryTtlMs);
  const byRide = new Map(due.map((one) => [one.ride.ride_id, one]));
  const byTerms = Map.groupBy(pairings, ({ rideId }) => {
    const { ride, policy } = byRide.get(rideId)!;
    return `${ride.policy_version} ${policy.parallelOffers}`;
  });
  const outcomes: OfferOutcome[] = [];
  for (const set of byTerms.values()) {
    const { policy, ride } = byRide.get(set[0]!.rideId)!;
    const terms = { ...policy, policyVersion: ride.policy_version };
    const asks = set.map(({ rideId, driverId, pickupEtaS }) => {
      const { waiting, exclusions } = byRide.get(rideId)!;
      const { pickup, dropoff } = waiting;
      return { rideId, driverId, pickupEtaS, pickup, dropoff, seenExclusions: exclusions.length };
    });
    outcomes.push(
      ...(policy.asking === 'assign'
        ? await leasing.assign(region.number, asks, terms)
        : await leasing.offer(region.number, asks, terms, faults.beforeTelling)),
    );
  }
  return outcomes;
}

/** Rides whom only lapsed offers keep from the drivers near them may ask those again; which. */
async function lift(
  { sql, metrics }: RoundDeps,
  region: Region,
  due: readonly Due[],
  nobody: Found,
): Promise<Set<string>> {
  const dry = due.filter(
    ({ ride, waiting, exclusions }) =>
      waiting.places > 0 && nobody.get(ride.ride_id) === 'lapsed' && liftable(exclusions).size > 0,
  );
  if (dry.length === 0) return new Set();
  const lifted = await transitions.liftExclusions(
    sql,
    region.number,
    dry.map(({ ride }) => ride.ride_id),
  );
  metrics.exclusionsLifted.inc(lifted.reduce((sum, each) => sum + each.lifted, 0));
  return new Set(lifted.map(({ ride_id }) => ride_id));
}

/** Puts rides back, or gives them up: how many, and when the first of the others is due again. */
async function settle(
  { sql, metrics }: RoundDeps,
  region: Region,
  due: readonly Due[],
  nobody: Found,
): Promise<{ givenUp: number; againInMs: number | null }> {
  let givenUp = 0;
  let againInMs: number | null = null;
  for (const set of Map.groupBy(due, ({ ride }) => ride.policy_version).values()) {
    const { policy } = set[0]!;
    const rides = set.map(({ ride }) => ({
      rideId: ride.ride_id,
      waitMs: retryWaitMs(policy, ride.empty_rounds, ride.patience_left_ms),
      // One that has a pair, and room for more, isn't asked why.
      reason: nobody.get(ride.ride_id) ?? 'taken',
    }));
    const settled = await transitions.settleRides(sql, region.number, rides, {
      offersMax: policy.offersMax,
      rescueMs: policy.rescueMs,
      recoveryMs: policy.positionStaleMs,
    });
    for (const { given_up, to_rescue, reason, again_in_ms } of settled) {
      againInMs = earlier(againInMs, again_in_ms);
      if (given_up) metrics.ridesGivenUp.inc({ reason, region: region.id, policy: set[0]!.ride.policy_version });
      else if (to_rescue) metrics.ridesToRescue.inc({ reason });
      else metrics.emptyLooks.inc({ reason });
    }
    const over = settled.filter(({ given_up }) => given_up).length;
    metrics.countTransition('give_up', 'applied', over);
    givenUp += over;
  }
  return { givenUp, againInMs };
}
