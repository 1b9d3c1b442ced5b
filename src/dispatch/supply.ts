/**
 * The drivers near a round's rides. Reading everybody within the search radius is most of a round where drivers are many
 * (2,000 of them took 10 ms of the database and 4 ms of this process), and only the nearest few become candidates. So a
 * round looks first where, by the density seen last, there should be several times as many as it needs, and farther only
 * for rides that found fewer. The candidates are the same ones, of those who were read lately.
 */
import { CELL_AREA_M2 } from '../../domain/geo.ts';
import { haveCandidates, type MatchingContext, type Pairing, type WaitingRide } from '../../domain/matching.ts';
import { Fleet } from '../../domain/matching/fleet.ts';
import type { Sql } from '../database/connection.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Region } from '../regions.ts';
import { cellsAround } from './seeking.ts';
import { View } from './view.ts';

/** Expected within the first look, for each candidate that is needed. */
const FIRST_LOOK = 3;
/**
 * For so long the available drivers of a cell are taken for those who were read. Positions are seconds old as it is; who
 * isn't available any more is refused by the database, and who became so is seen a little later. With a read for each
 * round it was a quarter of the database's time.
 */
const TRUSTED_MS = 250;
/** Whom the next view is filled with before a round asks for them: drivers of cells that several rounds of the last one looked at. */
const FILLED_MAX = 2_000;
/** The density is the mean of about so many looks. */
const LOOKS_REMEMBERED = 4;
/** A driver whom somebody held is asked meanwhile only for rides that have nobody else. */
const HELD_MS = 1_000;
/** No read takes longer that anybody waits for. */
const ASKED_MS = 10_000;

export interface Seen {
  readonly fleet: Fleet;
  /** Everybody within the rides' radius at this moment, and not only the nearest. */
  readonly isAll: boolean;
  readonly readAtMs: number;
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
  /** Drivers whom somebody held, by their ids, and until when that is remembered. */
  readonly #held = new Map<string, number>();

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
    const readAtMs = this.#nowMs();
    const drivers = await this.#read(region, cells);
    this.#learn(region, drivers.length, cells?.length ?? 0);
    return { fleet: Fleet.of(drivers), isAll: true, readAtMs };
  }

  /** At least every ride's candidates, of those who were available lately. */
  async nearest(region: Region, rides: readonly WaitingRide[], context: MatchingContext): Promise<Seen> {
    const density = this.#densities.get(region.number) ?? 0;
    const radiusM = Math.sqrt((FIRST_LOOK * context.candidatesMax) / (Math.PI * density));
    if (!rides.some(({ searchRadiusM }) => radiusM < searchRadiusM)) return this.all(region, rides);
    const near = rides.map((ride) => ({ ...ride, searchRadiusM: Math.min(ride.searchRadiusM, radiusM) }));
    const cells = cellsAround(near);
    if (cells === null) return this.all(region, rides);
    const view = await this.#viewWith(region, cells);
    this.#learn(region, view.countIn(cells), cells.length);
    const fleet = this.#free(region, view, cells);
    const have = haveCandidates(near, fleet, context);
    const short = rides.filter((ride) => ride.searchRadiusM > radiusM && !have.has(ride.rideId));
    const farther = cellsAround(short);
    if (farther === null) return this.all(region, rides);
    await view.complete(farther);
    const looked = [...new Set([...cells, ...farther])];
    view.noteLook(looked);
    const seen = { isAll: false, readAtMs: view.readAtMs };
    return { ...seen, fleet: short.length === 0 ? fleet : this.#free(region, view, looked) };
  }

  /** Drivers were read who are somebody else's by now: the next round looks for itself. */
  forget(region: Region): void {
    const view = this.#views.get(region.number);
    if (view !== undefined) view.isOutdated = true;
  }

  /** Whom a round may ask for: nobody else here has asked for them since they were read. They are its own until `answered`. */
  take(region: Region, pairings: readonly Pairing[], readAtMs: number): Pairing[] {
    const asked = this.#askedIn(region);
    const free = pairings.filter(({ driverId }) => !(asked.get(driverId)! >= readAtMs));
    for (const { driverId } of free) asked.set(driverId, Infinity);
    return free;
  }

  /** The database has answered, or failed. */
  answered(region: Region, pairings: readonly Pairing[]): void {
    const asked = this.#askedIn(region);
    const nowMs = this.#nowMs();
    for (const { driverId } of pairings) asked.set(driverId, nowMs);
    if (nowMs < this.#forgetsAtMs) return;
    this.#forgetsAtMs = nowMs + ASKED_MS;
    for (const all of this.#asked.values())
      for (const [driverId, atMs] of all) if (atMs < nowMs - ASKED_MS) all.delete(driverId);
  }

  /** They were refused as busy: somebody held them, or their rides. */
  held(driverIds: readonly string[]): void {
    const nowMs = this.#nowMs();
    for (const [driverId, untilMs] of this.#held) if (untilMs <= nowMs) this.#held.delete(driverId);
    for (const driverId of driverIds) this.#held.set(driverId, nowMs + HELD_MS);
  }

  /** Null: of none is that known. */
  whoIsHeld(): ((driver: { readonly driverId: string }) => boolean) | null {
    if (this.#held.size === 0) return null;
    const nowMs = this.#nowMs();
    return ({ driverId }) => this.#held.get(driverId)! > nowMs;
  }

  #askedIn({ number }: Region): Map<string, number> {
    const asked = this.#asked.get(number) ?? new Map<string, number>();
    this.#asked.set(number, asked);
    return asked;
  }

  /** The drivers of a view whom nobody here has asked for since. */
  #free(region: Region, view: View, cells: readonly number[]): Fleet {
    const asked = this.#askedIn(region);
    return view.fleetOf(cells).only(({ driverId }) => !(asked.get(driverId)! >= view.readAtMs));
  }

  /** The latest, or one that begins with these cells, and is filled with what is likely to be asked for. */
  async #viewWith(region: Region, cells: readonly number[]): Promise<View> {
    const nowMs = this.#nowMs();
    const last = this.#views.get(region.number);
    const ageMs = last === undefined ? Infinity : nowMs - last.readAtMs;
    if (last?.isOutdated === false && ageMs < TRUSTED_MS) {
      await last.complete(cells);
      return last;
    }
    const view = new View(nowMs, (some) => this.#read(region, some));
    this.#views.set(region.number, view);
    const own = view.complete(cells);
    // Who needs one of these waits for it, and hears if it can't be read.
    if (ageMs < 2 * TRUSTED_MS) view.complete(last!.busyCells(FILLED_MAX)).catch(() => {});
    await own;
    return view;
  }

  #read({ number, policy }: Region, cells: readonly number[] | null): Promise<transitions.SeenDriver[]> {
    return transitions.driversNear(this.#sql, number, 'available', cells, policy.positionStaleMs);
  }

  #learn({ number }: Region, drivers: number, cells: number): void {
    if (cells === 0) return;
    const density = drivers / (cells * CELL_AREA_M2);
    const known = this.#densities.get(number) ?? 0;
    this.#densities.set(number, known === 0 ? density : known + (density - known) / LOOKS_REMEMBERED);
  }
}
