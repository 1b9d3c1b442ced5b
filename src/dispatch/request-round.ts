/**
 * The round of rides that are being requested. Where a match round could start now, it needn't wait until they are in the
 * database: they are paired first, and made and leased in one transaction. That spares a ride a transaction, the read of
 * what is due, and the wait for both.
 *
 * Only the nearest drivers are looked at, as they were read lately: a ride without a pair here is the next round's.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { vehicleClassesFor } from '../../domain/eligibility.ts';
import { type MatchingContext, matchings, type Pairing, type WaitingRide } from '../../domain/matching.ts';
import type { Policy } from '../../domain/policy.ts';
import type { LeaseTerms, NewRide } from '../leasing/transitions.ts';
import type { Region, Regions } from '../regions.ts';
import { contextOf } from './seeking.ts';
import type { Seen, Supply } from './supply.ts';

/** For so long a request waits for the drivers near it to be read. */
const LOOK_DEADLINE_MS = 50;

export interface PairedRequests {
  readonly pairings: readonly Pairing[];
  readonly termsOf: (policyVersion: number) => LeaseTerms;
}

/** One driver for each ride at most, who is the ride's own until `supply.answered`: second places are the next round's. */
export async function pairRequests(
  { supply, regions }: { readonly supply: Supply; readonly regions: Regions },
  region: Region,
  rides: readonly NewRide[],
): Promise<PairedRequests> {
  const versions = new Map<number, Policy>();
  for (const { policyVersion: version } of rides)
    if (!versions.has(version)) versions.set(version, await regions.policy(region.number, version));
  const waiting = rides.flatMap((ride, n) => waitingRide(ride, versions.get(ride.policyVersion)!, n));
  const termsOf = (version: number): LeaseTerms => ({ ...versions.get(version)!, policyVersion: version });
  const context = contextOf(region);
  const seen = waiting.length === 0 ? null : await nearestInTime(supply, region, waiting, context);
  if (seen === null) return { pairings: [], termsOf };
  const pairings = matchings[region.policy.matching](waiting, seen.fleet, context);
  return { pairings: supply.take(region, pairings, seen.readAtMs), termsOf };
}

async function nearestInTime(
  supply: Supply,
  region: Region,
  rides: readonly WaitingRide[],
  context: MatchingContext,
): Promise<Seen | null> {
  return Promise.race([supply.nearest(region, rides, context), delay(LOOK_DEADLINE_MS, null, { ref: false })]);
}

/** As its first round will see it. Whom its rider has blocked is looked up where it is leased; an assignment is the round's. */
function waitingRide(ride: NewRide, policy: Policy, n: number): WaitingRide[] {
  if (policy.asking === 'assign') return [];
  const { rideId, pickup, dropoff, seats, attributes } = ride;
  return [
    {
      rideId,
      pickup,
      dropoff,
      vehicleClasses: vehicleClassesFor(ride, policy, 0),
      seats,
      attributes,
      excluded: new Map(),
      searchRadiusM: policy.searchRadiusM,
      places: 1,
      // Whoever asked first is first.
      queuedAtMs: n,
    },
  ];
}
