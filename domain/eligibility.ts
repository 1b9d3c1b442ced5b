/** Whom a ride may be given to: what it needs, what a driver offers, and the name of whatever keeps them apart. */
import { greatCircleM, type Point } from './geo.ts';
import type { Policy } from './policy.ts';
import type { TravelTime } from './travel-time.ts';

/** Why a driver isn't asked for a ride, in the order in which it is checked. */
export const UNSUITABLE = [
  'vehicle_class',
  'seats',
  'attributes',
  'blocked',
  'cancelled',
  'declined',
  'lapsed',
  'pickup_too_far',
  'shift_ends',
] as const;
export type Unsuitable = (typeof UNSUITABLE)[number];

/** What keeps a driver from being asked for one ride again; `lifted` keeps nobody. */
export type ExclusionCause = 'declined' | 'expired' | 'undeliverable' | LossCause | 'lifted';

/** How a driver lost a ride that he had: gave it back (or an operator took it), didn't come, or a better one was found. */
export type LossCause = 'cancelled' | 'stalled' | 'replaced';

export interface Exclusion {
  readonly driverId: string;
  readonly cause: ExclusionCause;
  /** How long ago. */
  readonly ageMs: number;
}

/** A driver who had the ride and lost it stays excluded; the others for as long as the policy says. */
function nameOf({ cause, ageMs }: Exclusion, policy: Policy): Unsuitable | null {
  if (cause === 'cancelled' || cause === 'stalled' || cause === 'replaced') return 'cancelled';
  if (cause === 'declined') return ageMs < policy.declinedExclusionMs ? 'declined' : null;
  return cause !== 'lifted' && ageMs < policy.lapsedExclusionMs ? 'lapsed' : null;
}

/** The drivers whom a ride isn't offered to, each with the reason that counts. */
export function excludedDrivers(
  exclusions: readonly Exclusion[],
  blockedDriverIds: readonly string[],
  policy: Policy,
): ReadonlyMap<string, Unsuitable> {
  const excluded = new Map<string, Unsuitable>(blockedDriverIds.map((driverId) => [driverId, 'blocked']));
  for (const exclusion of exclusions) {
    const name = nameOf(exclusion, policy);
    const known = excluded.get(exclusion.driverId);
    if (name !== null && (known === undefined || UNSUITABLE.indexOf(name) < UNSUITABLE.indexOf(known)))
      excluded.set(exclusion.driverId, name);
  }
  return excluded;
}

/** Of whose exclusion for a lapsed offer a ride may be relieved: each driver once. */
export function liftable(exclusions: readonly Omit<Exclusion, 'ageMs'>[]): ReadonlySet<string> {
  const lapsed = exclusions.filter(({ cause }) => cause === 'expired' || cause === 'undeliverable');
  const lifted = new Set(exclusions.flatMap(({ driverId, cause }) => (cause === 'lifted' ? [driverId] : [])));
  return new Set(lapsed.map(({ driverId }) => driverId).filter((driverId) => !lifted.has(driverId)));
}

/** The classes of vehicle that a ride may be given by now, its own first. */
export function vehicleClassesFor(
  { vehicleClass, acceptsLowerClass }: { readonly vehicleClass: string; readonly acceptsLowerClass: boolean },
  { vehicleClasses, higherClassAfterMs }: Pick<Policy, 'vehicleClasses' | 'higherClassAfterMs'>,
  waitedMs: number,
): readonly string[] {
  const rank = vehicleClasses.indexOf(vehicleClass);
  if (rank < 0) return [vehicleClass];
  const higher = vehicleClasses.slice(rank + 1).filter((_, step) => waitedMs >= (step + 1) * higherClassAfterMs);
  const lower = acceptsLowerClass ? vehicleClasses.slice(0, rank).toReversed() : [];
  return [vehicleClass, ...higher, ...lower];
}

export interface Needs {
  readonly pickup: Point;
  readonly dropoff: Point;
  /** Any of these. */
  readonly vehicleClasses: readonly string[];
  readonly seats: number;
  /** All of these. */
  readonly attributes: readonly string[];
  readonly excluded: ReadonlyMap<string, Unsuitable>;
}

export interface DriverProfile {
  readonly driverId: string;
  readonly position: Point;
  readonly vehicleClass: string;
  readonly seats: number;
  readonly attributes: readonly string[];
  /** Great circle, metres; `Infinity`: any distance. */
  readonly maxPickupM: number;
  /** Until the shift ends; `Infinity`: it doesn't. */
  readonly shiftLeftS: number;
}

/** What keeps this driver from this ride; null: nothing. */
export function unsuitability(ride: Needs, driver: DriverProfile, travelTime: TravelTime): Unsuitable | null {
  if (!ride.vehicleClasses.includes(driver.vehicleClass)) return 'vehicle_class';
  if (ride.seats > driver.seats) return 'seats';
  if (!ride.attributes.every((attribute) => driver.attributes.includes(attribute))) return 'attributes';
  const excluded = ride.excluded.size > 0 ? ride.excluded.get(driver.driverId) : undefined;
  if (excluded !== undefined) return excluded;
  // Few have limits, and only theirs are worth a distance.
  if (driver.maxPickupM < Infinity && greatCircleM(driver.position, ride.pickup) > driver.maxPickupM)
    return 'pickup_too_far';
  return endsInTime(ride, driver, travelTime) ? null : 'shift_ends';
}

function endsInTime(ride: Needs, { position, shiftLeftS }: DriverProfile, travelTime: TravelTime): boolean {
  if (shiftLeftS === Infinity) return true;
  return travelTime.etaS(position, ride.pickup) + travelTime.etaS(ride.pickup, ride.dropoff) <= shiftLeftS;
}
