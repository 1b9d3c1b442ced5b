/**
 * One match round of a region: free what is over, look at the rides that are due and the drivers near them, pair,
 * lease, and put back the rides that found nobody. Every step is guarded in the database, so that a round may be
 * killed at any line and two may run at once: what one leases, the other is refused.
 */
import { cellsWithin } from '../../domain/geo.ts';
import { matchings, type Pairing, type WaitingRide } from '../../domain/matching.ts';
import { openPlaces, retryWaitMs, searchRadiusM } from '../../domain/search.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';
import type { Policy } from '../../domain/policy.ts';
import type { Sql } from '../database/connection.ts';
import type { Leasing } from '../leasing/leasing.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Region, Regions } from '../regions.ts';
import type { Faults } from './faults.ts';

/** Rides of one round; the rest is for the next, which follows at once. */
const ROUND_RIDES_MAX = 500;
/** Up to so many cells a round looks near its rides; beyond, it reads the region's drivers whole. */
const ROUND_CELLS_MAX = 4_096;

export interface RoundDeps {
  readonly sql: Sql;
  readonly leasing: Leasing;
  readonly regions: Regions;
  readonly metrics: Metrics;
  readonly faults: Faults;
}

export interface RoundOutcome {
  readonly looked: number;
  readonly offered: number;
  readonly givenUp: number;
  /** How long until a ride is due again; 0: at once; null: no ride waits. */
  readonly nextInMs: number | null;
}

interface Due {
  readonly ride: transitions.DueRide;
  readonly policy: Policy;
  readonly places: number;
}

export async function runRound(deps: RoundDeps, region: Region): Promise<RoundOutcome> {
  await deps.leasing.expire(region.number);
  const rows = await transitions.dueRides(deps.sql, region.number, ROUND_RIDES_MAX);
  if (rows.length === 0) {
    return { looked: 0, offered: 0, givenUp: 0, nextInMs: await transitions.nextRideDueInMs(deps.sql, region.number) };
  }
  const due = await Promise.all(
    rows.map(async (ride): Promise<Due> => {
      const policy = await deps.regions.policy(region.number, ride.policy_version);
      const places = ride.patience_left_ms > 0 ? openPlaces(policy, ride.live_offers, ride.offers_made) : 0;
      return { ride, policy, places };
    }),
  );
  const pairings = await findPairings(
    deps,
    region,
    due.filter(({ places }) => places > 0),
  );
  await deps.faults.beforeLease(region.policy.deliveryTtlMs);
  const leased = await leasePairings(deps, region, due, pairings);
  const givenUp = await settle(
    deps,
    region,
    due.filter(({ ride }) => !leased.contested.has(ride.ride_id)),
  );
  const isMore = rows.length === ROUND_RIDES_MAX || leased.contested.size > 0;
  return {
    looked: rows.length,
    offered: leased.count,
    givenUp,
    nextInMs: isMore ? 0 : await transitions.nextRideDueInMs(deps.sql, region.number),
  };
}

async function findPairings({ sql }: RoundDeps, region: Region, due: readonly Due[]): Promise<Pairing[]> {
  if (due.length === 0) return [];
  const rides = due.map(({ ride, policy, places }): WaitingRide => ({
    rideId: ride.ride_id,
    pickup: { lat: ride.pickup_lat, lng: ride.pickup_lng },
    vehicleClass: ride.vehicle_class,
    searchRadiusM: searchRadiusM(policy, ride.empty_rounds),
    excludedDriverIds: ride.excluded_driver_ids,
    places,
    queuedAtMs: ride.requested_at_ms,
  }));
  const drivers = await transitions.availableDrivers(
    sql,
    region.number,
    cellsAround(rides),
    region.policy.positionStaleMs,
  );
  if (drivers.length === 0) return [];
  return matchings[region.policy.matching](rides, drivers, {
    travelTime: greatCircleTravelTime(region.policy),
    candidatesMax: region.policy.candidatesMax,
  });
}

/** The cells in which a driver may be near enough to any of the rides; null: too many to name. */
function cellsAround(rides: readonly WaitingRide[]): number[] | null {
  const cells = new Set<number>();
  for (const { pickup, searchRadiusM: radiusM } of rides) {
    const around = cellsWithin(pickup, radiusM);
    if (around === 'everywhere') return null;
    for (const cell of around) cells.add(cell);
    if (cells.size > ROUND_CELLS_MAX) return null;
  }
  return [...cells];
}

/** Leases what was paired, by the policy version of each ride. Contested: somebody else was quicker. */
async function leasePairings(
  { leasing, faults }: RoundDeps,
  region: Region,
  due: readonly Due[],
  pairings: readonly Pairing[],
): Promise<{ count: number; contested: Set<string> }> {
  const byRide = new Map(due.map((one) => [one.ride.ride_id, one]));
  const byVersion = Map.groupBy(pairings, ({ rideId }) => byRide.get(rideId)!.ride.policy_version);
  const contested = new Set<string>();
  let count = 0;
  for (const [policyVersion, set] of byVersion) {
    const { policy } = byRide.get(set[0]!.rideId)!;
    const asks = set.map(({ rideId, driverId, pickupEtaS }) => {
      const { ride } = byRide.get(rideId)!;
      return {
        rideId,
        driverId,
        pickupEtaS,
        pickup: { lat: ride.pickup_lat, lng: ride.pickup_lng },
        dropoff: { lat: ride.dropoff_lat, lng: ride.dropoff_lng },
      };
    });
    for (const outcome of await leasing.offer(
      region.number,
      asks,
      { ...policy, policyVersion },
      faults.beforeTelling,
    )) {
      if ('refused' in outcome) contested.add(outcome.rideId);
      else count += 1;
    }
  }
  return { count, contested };
}

/** Puts rides back, or gives them up; those that now hold all the offers they may are left alone by the database. */
async function settle({ sql, metrics }: RoundDeps, region: Region, due: readonly Due[]): Promise<number> {
  let givenUp = 0;
  for (const set of Map.groupBy(due, ({ ride }) => ride.policy_version).values()) {
    const { policy } = set[0]!;
    const rides = set.map(({ ride }) => ({
      rideId: ride.ride_id,
      waitMs: retryWaitMs(policy, ride.empty_rounds, ride.patience_left_ms),
    }));
    const settled = await transitions.settleRides(sql, region.number, rides, {
      offersMax: policy.offersMax,
      recoveryMs: policy.positionStaleMs,
    });
    const over = settled.filter(({ given_up }) => given_up).length;
    metrics.countTransition('give_up', 'applied', over);
    givenUp += over;
  }
  return givenUp;
}
