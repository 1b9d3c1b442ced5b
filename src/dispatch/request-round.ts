/**
 * The round of rides that are being requested. Where a match round could start now, it needn't wait until they are in the
 * database: they are paired first, and made and leased in one transaction. That spares a ride a transaction, the read of
 * what is due, and the wait for both.
 *
 * Only what is known without asking is looked at, and no ride waits for it: one without a pair here is the next round's.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { type MatchingContext, matchings, type WaitingRide } from '../../domain/matching.ts';
import { openPlaces, searchRadiusM } from '../../domain/search.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';
import type { Paired } from '../leasing/leasing.ts';
import type { NewRide } from '../leasing/transitions.ts';
import type { Region, Regions } from '../regions.ts';
import { needsOf } from './seeking.ts';
import type { Supply } from './supply.ts';

/** For so long requests wait for the drivers near them to be read. */
const LOOK_DEADLINE_MS = 50;

/** One driver for each ride at most: second places are given once every ride has had its first. */
export async function pairRequests(
  { supply, regions }: { readonly supply: Supply; readonly regions: Regions },
  region: Region,
  rides: readonly NewRide[],
): Promise<Paired> {
  const versions = new Map(
    await Promise.all(
      [...new Set(rides.map(({ policyVersion }) => policyVersion))].map(
        async (version) => [version, await regions.policy(region.number, version)] as const,
      ),
    ),
  );
  const waiting = rides.flatMap((ride, n): WaitingRide[] => {
    const policy = versions.get(ride.policyVersion)!;
    // An assignment isn't an offer, and is made by the round.
    if (policy.asking === 'assign' || openPlaces(policy, 0, 0) === 0) return [];
    return [
      {
        ...needsOf(asDue(ride, n), policy),
        searchRadiusM: searchRadiusM(policy, { emptyRounds: 0, liveOffers: 0, offersMade: 0, waitedMs: 0 }),
        places: 1,
      },
    ];
  });
  const context = { travelTime: greatCircleTravelTime(region.policy), candidatesMax: region.policy.candidatesMax };
  const drivers = waiting.length === 0 ? [] : await nearestInTime(supply, region, waiting, context);
  const pairings = drivers.length === 0 ? [] : matchings[region.policy.matching](waiting, drivers, context);
  const taken = supply.take(region, pairings);
  return {
    pairs: new Map(taken.map((pairing) => [pairing.rideId, pairing])),
    termsOf: (version) => ({ ...versions.get(version)!, policyVersion: version }),
    done: (isContested) => {
      supply.asked(region, taken);
      if (isContested) supply.forget(region);
    },
  };
}

async function nearestInTime(supply: Supply, region: Region, rides: readonly WaitingRide[], context: MatchingContext) {
  const seen = await Promise.race([
    supply.nearest(region, rides, context),
    delay(LOOK_DEADLINE_MS, null, { ref: false }),
  ]).catch(() => null);
  return seen?.drivers ?? [];
}

/** A new ride as a round will see it. Whom its rider has blocked is looked up where it is leased. */
const asDue = (
  { rideId, vehicleClass, acceptsLowerClass, pickup, dropoff, seats, attributes }: NewRide,
  n: number,
) => ({
  ride_id: rideId,
  pickup_lat: pickup.lat,
  pickup_lng: pickup.lng,
  dropoff_lat: dropoff.lat,
  dropoff_lng: dropoff.lng,
  vehicle_class: vehicleClass,
  accepts_lower_class: acceptsLowerClass,
  seats,
  attributes: [...attributes],
  blocked_driver_ids: [],
  excluded_driver_ids: [],
  excluded_as: [],
  excluded_ages_ms: [],
  waited_ms: 0,
  // Whoever asked first is first.
  requested_at_ms: n,
});
