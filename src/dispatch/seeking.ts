/** What match rounds and the watch over pickups ask of a ride that looks for a driver. */
import type { Exclusion } from '../../domain/eligibility.ts';
import { cellsWithin } from '../../domain/geo.ts';
import type { WaitingRide } from '../../domain/matching.ts';
import type { DueRide } from '../leasing/transitions.ts';

/** Up to so many cells are looked at near the rides; beyond, the region's drivers are read whole. */
const CELLS_MAX = 4_096;

export const exclusionsOf = (
  ride: Pick<DueRide, 'excluded_driver_ids' | 'excluded_as' | 'excluded_ages_ms'>,
): Exclusion[] =>
  ride.excluded_driver_ids.map((driverId, i) => ({
    driverId,
    cause: ride.excluded_as[i]!,
    ageMs: ride.excluded_ages_ms[i]!,
  }));

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
