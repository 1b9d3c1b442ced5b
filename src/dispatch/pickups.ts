/**
 * Watches the drivers who are on their way to a pickup: flags those who don't come nearer, takes their rides from them,
 * and finds rides a clearly better driver, each as the ride's policy says. The rides that wait come first: nobody is
 * moved while a round has something to do. Every step is judged again in the database, under the ride's lock.
 */
import { greatCircleM } from '../../domain/geo.ts';
import { matchings, type WaitingRide } from '../../domain/matching.ts';
import { Fleet } from '../../domain/matching/fleet.ts';
import { judgePickup, type PickupVerdict } from '../../domain/pickup.ts';
import type { Policy } from '../../domain/policy.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';
import type { Sql } from '../database/connection.ts';
import type { Leasing } from '../leasing/leasing.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Region, Regions } from '../regions.ts';
import { cellsAround, needsOf } from './seeking.ts';

const STEP = 500;
/** Steps of one walk along a region's rides: a region of so many drivers on their way and no more. */
const STEPS_MAX = 200;
/** Rides that go to a better driver in one walk: each is a transaction. */
const BETTER_MAX = 50;
const FIRST_RIDE = '00000000-0000-0000-0000-000000000000';

export interface PickupDeps {
  readonly sql: Sql;
  readonly leasing: Leasing;
  readonly regions: Regions;
  readonly metrics: Metrics;
}

interface OnPickup {
  readonly ride: transitions.RideOnPickup;
  readonly policy: Policy;
  /** From the pickup, great circle; null: not known. */
  readonly distanceM: number | null;
}

/** Looks once at every driver of the region who is on the way; nothing to do where no policy in force asks for it. */
export async function watchPickups(deps: PickupDeps, region: Region): Promise<void> {
  if (!(await isWatched(deps.regions, region))) return;
  const { sql } = deps;
  const improvable: OnPickup[] = [];
  let after = FIRST_RIDE;
  for (let step = 0; step < STEPS_MAX; step += 1) {
    const rows = await transitions.ridesOnPickup(sql, region.number, after, STEP, region.policy.positionStaleMs);
    const seen = await Promise.all(rows.map((ride) => onPickup(deps, region, ride)));
    await judge(deps, region, seen);
    improvable.push(...seen.filter((one) => mayImprove(one)));
    if (rows.length < STEP) break;
    after = rows.at(-1)!.ride_id;
  }
  await transitions.dropPickups(sql, region.number, STEP);
  if (improvable.length > 0) await findBetter(deps, region, improvable);
}

async function isWatched(regions: Regions, { number, policy, canary }: Region): Promise<boolean> {
  const inForce = canary === null ? [policy] : [policy, await regions.policy(number, canary.version)];
  return inForce.some(({ stalledAfterMs, betterDriverSavesMs }) => stalledAfterMs > 0 || betterDriverSavesMs > 0);
}

async function onPickup(
  { regions }: PickupDeps,
  { number }: Region,
  ride: transitions.RideOnPickup,
): Promise<OnPickup> {
  const { driver_lat: lat, driver_lng: lng, pickup_lat: pickupLat, pickup_lng: pickupLng } = ride;
  const isKnown = lat !== null && lng !== null;
  return {
    ride,
    policy: await regions.policy(number, ride.policy_version),
    distanceM: isKnown ? greatCircleM({ lat, lng }, { lat: pickupLat, lng: pickupLng }) : null,
  };
}

async function judge({ sql, leasing, metrics }: PickupDeps, region: Region, seen: readonly OnPickup[]): Promise<void> {
  const verdicts = Map.groupBy(seen, ({ ride, policy, distanceM }): PickupVerdict =>
    judgePickup(
      { nearestM: ride.nearest_m, sinceNearerMs: ride.since_nearer_ms, isStalled: ride.stalled },
      distanceM,
      policy,
    ),
  );
  const of = (...names: PickupVerdict[]) =>
    names.flatMap((name) =>
      (verdicts.get(name) ?? []).map(({ ride, distanceM }) => ({
        rideId: ride.ride_id,
        offerId: ride.offer_id,
        distanceM,
        stalledMs: name === 'stalled' ? ride.since_nearer_ms : null,
      })),
    );
  const nearer = of('nearer', 'resumed');
  if (nearer.length > 0) await transitions.recordPickups(sql, region.number, nearer);
  const flags = of('stalled', 'resumed');
  if (flags.length > 0) {
    const flagged = await transitions.flagPickups(sql, region.number, flags);
    metrics.countTransition('stall', 'applied', flagged.filter(({ stalled }) => stalled).length);
  }
  const late = of('replaced');
  if (late.length > 0) await leasing.replaceStalled(region.number, late);
}

/** Each ride goes to a better driver once at most. */
const mayImprove = ({ ride, policy, distanceM }: OnPickup): boolean =>
  policy.betterDriverSavesMs > 0 &&
  distanceM !== null &&
  ride.offers_made < policy.offersMax &&
  !ride.excluded_as.includes('replaced');

async function findBetter(deps: PickupDeps, region: Region, rides: readonly OnPickup[]): Promise<void> {
  const { sql, leasing } = deps;
  if (await transitions.isRideOverdue(sql, region.number, 0)) return;
  const travelTime = greatCircleTravelTime(region.policy);
  const seeking = rides.map((one) => seekingBetter(one, region)).filter(({ searchRadiusM }) => searchRadiusM > 0);
  if (seeking.length === 0) return;
  const { positionStaleMs, candidatesMax, matching } = region.policy;
  const cells = cellsAround(seeking);
  const drivers = await transitions.driversNear(sql, region.number, 'available', cells, positionStaleMs);
  const pairings = matchings[matching](seeking, Fleet.of(drivers), { travelTime, candidatesMax });
  const byRide = new Map(rides.map((one) => [one.ride.ride_id, one]));
  for (const { rideId, driverId, pickupEtaS } of pairings.slice(0, BETTER_MAX)) {
    const { ride, policy } = byRide.get(rideId)!;
    const { pickup, dropoff } = seeking.find((one) => one.rideId === rideId)!;
    await leasing.reassign(
      region.number,
      {
        rideId,
        driverId,
        pickup,
        dropoff,
        pickupEtaS,
        fromDriverId: ride.driver_id,
        source: 'system',
        reason: 'replaced',
      },
      { ...policy, policyVersion: ride.policy_version },
    );
  }
}

/** The ride as a match round would see it, looking no farther than where a driver saves so much of the wait. */
function seekingBetter(
  { ride, policy, distanceM }: OnPickup,
  { policy: { speedMps, detourFactor } }: Region,
): WaitingRide {
  const savedM = ((policy.betterDriverSavesMs / 1000) * speedMps) / detourFactor;
  return {
    ...needsOf(ride, policy),
    searchRadiusM: Math.max(0, distanceM! - savedM),
    places: 1,
  };
}
