/** What match rounds and the watch over pickups ask of a ride that looks for a driver. */
import { type Exclusion, excludedDrivers, vehicleClassesFor } from '../../domain/eligibility.ts';
import { cellsWithin } from '../../domain/geo.ts';
import type { MatchingContext, WaitingRide } from '../../domain/matching.ts';
import type { Policy } from '../../domain/policy.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';
import type { DueRide } from '../leasing/transitions.ts';
import type { Region } from '../regions.ts';

/** Up to so many cells are looked at near the rides; beyond, the region's drivers are read whole. */
const CELLS_MAX = 4_096;

type RideExclusions = Pick<DueRide, 'excluded_driver_ids' | 'excluded_as' | 'excluded_ages_ms'>;
type RideNeeds = RideExclusions &
  Pick<
    DueRide,
    | 'ride_id'
    | 'pickup_lat'
    | 'pickup_lng'
    | 'dropoff_lat'
    | 'dropoff_lng'
    | 'vehicle_class'
    | 'accepts_lower_class'
    | 'seats'
    | 'attributes'
    | 'blocked_driver_ids'
    | 'waited_ms'
    | 'requested_at_ms'
  >;

export const exclusionsOf = (ride: RideExclusions): Exclusion[] =>
  ride.excluded_driver_ids.map((driverId, i) => ({
    driverId,
    cause: ride.excluded_as[i]!,
    ageMs: ride.excluded_ages_ms[i]!,
  }));

/** What a ride asks of a driver by now, wherever and however many it may ask. */
export const needsOf = (ride: RideNeeds, policy: Policy): Omit<WaitingRide, 'searchRadiusM' | 'places'> => ({
  rideId: ride.ride_id,
  pickup: { lat: ride.pickup_lat, lng: ride.pickup_lng },
  dropoff: { lat: ride.dropoff_lat, lng: ride.dropoff_lng },
  vehicleClasses: vehicleClassesFor(
    { vehicleClass: ride.vehicle_class, acceptsLowerClass: ride.accepts_lower_class },
    policy,
    ride.waited_ms,
  ),
  seats: ride.seats,
  attributes: ride.attributes,
  excluded: excludedDrivers(exclusionsOf(ride), ride.blocked_driver_ids, policy),
  queuedAtMs: ride.requested_at_ms,
});

/** What a region's rounds match by. */
export const contextOf = ({ policy }: Region): MatchingContext => ({
  travelTime: greatCircleTravelTime(policy),
  candidatesMax: policy.candidatesMax,
});

/** The cells in which a driver may be near enough to any of the rides; null: too many to name. */
export function cellsAround(rides: readonly WaitingRide[]): number[] | null {
  const cells = new Set<number>();
  for (const { pickup, searchRadiusM: radiusM } of rides) {
    const around = cellsWithin(pickup, radiusM);
    if (around === 'everywhere') return null;
    for (const cell of around) cells.add(cell);
    if (cells.size > CELLS_MAX) return null;
  }
  return [...cells];
}
