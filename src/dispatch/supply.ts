/**
 * The drivers near a round's rides. Reading everybody within the search radius is most of a round where drivers are many
 * (2,000 of them took 10 ms of the database and 4 ms of this process), and only the nearest few become candidates. So a
 * round looks first where, by the density seen last, there should be several times as many as it needs, and farther only
 * for rides that found fewer. The candidates are the same ones.
 */
import type { DriverProfile } from '../../domain/eligibility.ts';
import { CELL_AREA_M2 } from '../../domain/geo.ts';
import { haveCandidates, type MatchingContext, type WaitingRide } from '../../domain/matching.ts';
import type { Sql } from '../database/connection.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Region } from '../regions.ts';
import { cellsAround } from './seeking.ts';

/** Expected within the first look, for each candidate that is needed. */
const FIRST_LOOK = 3;

export interface Seen {
  readonly drivers: readonly DriverProfile[];
  /** Everybody within the rides' radius, and not only the nearest. */
  readonly isAll: boolean;
}

export class Supply {
  readonly #sql: Sql;
  /** Available drivers of a region for each square metre, as seen last. */
  readonly #densities = new Map<number, number>();

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** Everybody available within the rides' search radius. */
  async all(region: Region, rides: readonly WaitingRide[]): Promise<Seen> {
    return { drivers: await this.#read(region, cellsAround(rides)), isAll: true };
  }

  /** At least every ride's candidates. */
  async nearest(region: Region, rides: readonly WaitingRide[], context: MatchingContext): Promise<Seen> {
    const density = this.#densities.get(region.number) ?? 0;
    const radiusM = Math.sqrt((FIRST_LOOK * context.candidatesMax) / (Math.PI * density));
    if (!rides.some(({ searchRadiusM }) => radiusM < searchRadiusM)) return this.all(region, rides);
    const near = rides.map((ride) => ({ ...ride, searchRadiusM: Math.min(ride.searchRadiusM, radiusM) }));
    const drivers = await this.#read(region, cellsAround(near));
    const have = haveCandidates(near, drivers, context);
    const short = rides.filter((ride) => ride.searchRadiusM > radiusM && !have.has(ride.rideId));
    if (short.length === 0) return { drivers, isAll: false };
    const farther = await this.#read(region, cellsAround(short));
    const known = new Set(drivers.map(({ driverId }) => driverId));
    return { drivers: [...drivers, ...farther.filter(({ driverId }) => !known.has(driverId))], isAll: false };
  }

  async #read(region: Region, cells: readonly number[] | null): Promise<DriverProfile[]> {
    const { number, policy } = region;
    const drivers = await transitions.driversNear(this.#sql, number, 'available', cells, policy.positionStaleMs);
    if (cells !== null && cells.length > 0) this.#densities.set(number, drivers.length / (cells.length * CELL_AREA_M2));
    return drivers;
  }
}
