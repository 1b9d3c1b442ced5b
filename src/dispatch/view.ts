/** What was read of a region's drivers within a moment, cell by cell, as rounds needed it. */
import { Fleet } from '../../domain/matching/fleet.ts';
import type { SeenDriver } from '../leasing/transitions.ts';

/** A cell that so many rounds have looked at is likely to be looked at again. */
const BUSY_ROUNDS = 2;
/** Most cells of one read that nobody waits for; 4,096 without anybody in them took up to 20 ms. */
const BUSY_MAX = 1_000;
/** Everybody waits while a shared fleet is made: 3 ms for 4,000 drivers, 9 for 10,000. */
const SHARED_MAX = 4_000;

export type ReadCells = (cells: readonly number[]) => Promise<readonly SeenDriver[]>;

export class View {
  /** All that is in it was read since. */
  readonly readAtMs: number;
  /** Somebody in it is somebody else's by now. */
  isOutdated = false;
  readonly #read: ReadCells;
  readonly #cells = new Map<number, readonly SeenDriver[]>();
  /** Cells that are being read. */
  readonly #coming = new Map<number, Promise<void>>();
  readonly #rounds = new Map<number, number>();
  #drivers = 0;
  #fleet = Fleet.of([]);
  /** Whose drivers are in the fleet. */
  #inFleet: ReadonlySet<number> = new Set();

  constructor(readAtMs: number, read: ReadCells) {
    this.readAtMs = readAtMs;
    this.#read = read;
  }

  /** Resolves when these cells are in it. Each is read once. */
  async complete(cells: readonly number[]): Promise<void> {
    const unknown = cells.filter((cell) => !this.#cells.has(cell) && !this.#coming.has(cell));
    if (unknown.length > 0) {
      const reading = this.#readIn(unknown);
      for (const cell of unknown) this.#coming.set(cell, reading);
    }
    await Promise.all(new Set(cells.flatMap((cell) => this.#coming.get(cell) ?? [])));
  }

  async #readIn(cells: readonly number[]): Promise<void> {
    try {
      const drivers = await this.#read(cells);
      const byCell = Map.groupBy(drivers, ({ cell }) => cell);
      for (const cell of cells) this.#cells.set(cell, byCell.get(cell) ?? []);
      this.#drivers += drivers.length;
    } finally {
      for (const cell of cells) this.#coming.delete(cell);
    }
  }

  /** The drivers in these cells, all of them in it. Who drove from one to another between two reads is in both. */
  driversIn(cells: Iterable<number>): SeenDriver[] {
    const drivers = [...cells].flatMap((cell) =>
      this.#cells.get(cell)!.map((driver) => [driver.driverId, driver] as const),
    );
    return [...new Map(drivers).values()];
  }

  /**
   * The drivers in these cells, all of them in it, and perhaps others. Most rounds find one that was made before: it is made
   * anew of all cells whenever there are twice as many drivers, while they aren't too many; and of the round's own if they aren't all in it.
   */
  fleetOf(cells: readonly number[]): Fleet {
    if (this.#drivers >= 2 * Math.max(1, this.#fleet.cabs.length) && this.#drivers <= SHARED_MAX) {
      this.#fleet = Fleet.of(this.driversIn(this.#cells.keys()));
      this.#inFleet = new Set(this.#cells.keys());
    }
    const isIn = (cell: number): boolean => this.#inFleet.has(cell) || this.#count(cell) === 0;
    return cells.every(isIn) ? this.#fleet : Fleet.of(this.driversIn(cells));
  }

  /** A round has looked at these cells. */
  noteLook(cells: Iterable<number>): void {
    for (const cell of cells) this.#rounds.set(cell, (this.#rounds.get(cell) ?? 0) + 1);
  }

  /**
   * Cells that rounds have looked at, those of most rounds first, as far as there aren't more than so many drivers in them all: such as
   * several looked at, and such as cost little because nobody is there.
   */
  busyCells(driversMax: number): number[] {
    const busy = [...this.#rounds].filter(([cell, rounds]) => rounds >= BUSY_ROUNDS || this.#count(cell) === 0);
    busy.sort(([, a], [, b]) => b - a);
    let drivers = 0;
    const fits = (cell: number): boolean => {
      const more = this.#count(cell);
      if (drivers + more > driversMax) return false;
      drivers += more;
      return true;
    };
    const fitting = busy.map(([cell]) => cell).filter(fits);
    return fitting.slice(0, BUSY_MAX);
  }

  /** Drivers in these cells, as far as they are in it. */
  countIn(cells: readonly number[]): number {
    return cells.reduce((sum, cell) => sum + this.#count(cell), 0);
  }

  #count(cell: number): number {
    return this.#cells.get(cell)?.length ?? 0;
  }
}
