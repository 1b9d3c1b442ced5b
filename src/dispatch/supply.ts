/**
 * The drivers near a round's rides. Reading everybody within the search radius is most of a round where drivers are many
 * (2,000 of them took 10 ms of the database and 4 ms of this process), and only the nearest few become candidates. So a
 * round looks first where, by the density seen last, there should be several times as many as it needs, and farther only
 * for rides that found fewer. The candidates are the same ones.
 */
import type { DriverProfile } from '../../domain/eligibility.ts';
import { CELL_AREA_M2 } from '../../domain/geo.ts';
import { haveCandidates, type MatchingContext, type Pairing, type WaitingRide } from '../../domain/matching.ts';
import type { Sql } from '../database/connection.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Region } from '../regions.ts';
import { cellsAround } from './seeking.ts';

/** Expected within the first look, for each candidate that is needed. */
const FIRST_LOOK = 3;
/**
 * For so long the available drivers of a cell are taken for those who were read. Positions are seconds old as it is; who
 * isn't available any more is refused by the database, and who became so is seen a little later. With a read for each
 * round it was a quarter of the database's time.
 */
const TRUSTED_MS = 250;
/** No read takes longer that anybody waits for. */
const ASKED_MS = 10_000;

export interface Seen {
  readonly drivers: readonly DriverProfile[];
  /** Everybody within the rides' radius at this moment, and not only the nearest. */
  readonly isAll: boolean;
  readonly readAtMs: number;
}

/** What was read of a region since `readAtMs`. */
interface View {
  readonly readAtMs: number;
  readonly cells: Map<number, transitions.SeenDriver[]>;
}

export class Supply {
  readonly #sql: Sql;
  readonly #nowMs: () => number;
  /** Available drivers of a region for each square metre, as seen last. */
  readonly #densities = new Map<number, number>();
  readonly #views = new Map<number, View>();
  /**
   * Drivers whom a round here asked for lately, and when it had its answer, Infinity while it waits for that: what was
   * read before says nothing of them.
   */
  readonly #asked = new Map<number, Map<string, number>>();
  #forgetsAtMs = 0;

  constructor(sql: Sql, nowMs: () => number = () => performance.now()) {
    this.#sql = sql;
    this.#nowMs = nowMs;
  }

  /**
   * Everybody available within the rides' search radius, read now. Also whom another round is asking for: a ride that has
   * nobody else isn't without a driver yet.
   */
  async all(region: Region, rides: readonly WaitingRide[]): Promise<Seen> {
    const cells = cellsAround(rides);
    const { drivers, readAtMs } = await this.#now(region, cells);
    this.#learn(region, drivers.length, cells?.length ?? 0);
    return { drivers, isAll: true, readAtMs };
  }

  /** At least every ride's candidates, of those who were available lately. */
  async nearest(region: Region, rides: readonly WaitingRide[], context: MatchingContext): Promise<Seen> {
    const density = this.#densities.get(region.number) ?? 0;
    const radiusM = Math.sqrt((FIRST_LOOK * context.candidatesMax) / (Math.PI * density));
    if (!rides.some(({ searchRadiusM }) => radiusM < searchRadiusM)) return this.all(region, rides);
    const near = rides.map((ride) => ({ ...ride, searchRadiusM: Math.min(ride.searchRadiusM, radiusM) }));
    const cells = cellsAround(near);
    const read = cells === null ? await this.#now(region, null) : await this.#lately(region, cells);
    const { readAtMs } = read;
    const drivers = this.#unasked(region, read.drivers, readAtMs);
    const have = haveCandidates(near, drivers, context);
    const short = rides.filter((ride) => ride.searchRadiusM > radiusM && !have.has(ride.rideId));
    if (short.length === 0) return { drivers, isAll: false, readAtMs };
    const farther = await this.#read(region, cellsAround(short));
    const known = new Set(read.drivers.map(({ driverId }) => driverId));
    const all = [...read.drivers, ...farther.filter(({ driverId }) => !known.has(driverId))];
    return { drivers: this.#unasked(region, all, readAtMs), isAll: false, readAtMs };
  }

  /** Drivers were read who are somebody else's by now: the next round looks for itself. */
  forget(region: Region): void {
    this.#views.delete(region.number);
  }

  /** Whom a round may ask for: nobody else here has asked for them since they were read. They are its own until `asked`. */
  take(region: Region, pairings: readonly Pairing[], readAtMs: number): Pairing[] {
    const asked = this.#askedIn(region);
    const free = pairings.filter(({ driverId }) => !(asked.get(driverId)! >= readAtMs));
    for (const { driverId } of free) asked.set(driverId, Infinity);
    return free;
  }

  /** The database has answered, or failed. */
  asked(region: Region, pairings: readonly Pairing[]): void {
    const asked = this.#askedIn(region);
    const nowMs = this.#nowMs();
    for (const { driverId } of pairings) asked.set(driverId, nowMs);
    if (nowMs < this.#forgetsAtMs) return;
    this.#forgetsAtMs = nowMs + ASKED_MS;
    for (const all of this.#asked.values())
      for (const [driverId, atMs] of all) if (atMs < nowMs - ASKED_MS) all.delete(driverId);
  }

  #askedIn({ number }: Region): Map<string, number> {
    const asked = this.#asked.get(number) ?? new Map<string, number>();
    this.#asked.set(number, asked);
    return asked;
  }

  #unasked<Driver extends DriverProfile>(region: Region, drivers: readonly Driver[], readAtMs: number): Driver[] {
    const asked = this.#askedIn(region);
    return drivers.filter(({ driverId }) => !(asked.get(driverId)! >= readAtMs));
  }

  async #now(region: Region, cells: readonly number[] | null): Promise<{ drivers: DriverProfile[]; readAtMs: number }> {
    const readAtMs = this.#nowMs();
    return { drivers: await this.#read(region, cells), readAtMs };
  }

  async #lately(region: Region, cells: readonly number[]): Promise<{ drivers: DriverProfile[]; readAtMs: number }> {
    const nowMs = this.#nowMs();
    let view = this.#views.get(region.number);
    if (view === undefined || nowMs - view.readAtMs >= TRUSTED_MS) {
      view = { readAtMs: nowMs, cells: new Map() };
      this.#views.set(region.number, view);
    }
    const { cells: known } = view;
    const unknown = cells.filter((cell) => !known.has(cell));
    if (unknown.length > 0) {
      const read = Map.groupBy(await this.#read(region, unknown), ({ cell }) => cell);
      for (const cell of unknown) known.set(cell, read.get(cell) ?? []);
      this.#learn(region, [...known.values()].flat().length, known.size);
    }
    return { drivers: cells.flatMap((cell) => known.get(cell)!), readAtMs: view.readAtMs };
  }

  #read({ number, policy }: Region, cells: readonly number[] | null): Promise<transitions.SeenDriver[]> {
    return transitions.driversNear(this.#sql, number, 'available', cells, policy.positionStaleMs);
  }

  #learn({ number }: Region, drivers: number, cells: number): void {
    if (cells > 0) this.#densities.set(number, drivers / (cells * CELL_AREA_M2));
  }
}
