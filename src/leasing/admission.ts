/**
 * Sheds load: new rides are refused while a whole round's worth of rides has been due for a second and no round has come
 * to them. A service that took them all the same made everybody wait longer, until offers lapsed before they were
 * answered and each ride was leased again and again: once it had been asked for 1,120 rides a second, which it didn't
 * carry, it failed at 1,041, 968 and 900 as well. What is refused may be asked again, and was never promised anything.
 */
import type { Sql } from '../database/connection.ts';
import * as transitions from './transitions.ts';

/** A matcher that was restarted has as many waiting, too; a city of 10 requests a second only after most of a minute. */
const OVERDUE_RIDES = 500;
const OVERDUE_MS = 1_000;
/** While requests come, the records are looked at this often. */
const LOOK_EVERY_MS = 250;

interface Look {
  readonly atMs: number;
  readonly isOverloaded: boolean;
}

export class Admission {
  readonly #sql: Sql;
  readonly #nowMs: () => number;
  readonly #looks = new Map<number, Look>();
  readonly #looking = new Map<number, Promise<void>>();

  constructor(sql: Sql, nowMs: () => number = () => performance.now()) {
    this.#sql = sql;
    this.#nowMs = nowMs;
  }

  /** Whether the region takes another ride. Only a region's first request waits for the answer. */
  async admits(region: number): Promise<boolean> {
    const known = this.#looks.get(region);
    const looking = known === undefined || this.#nowMs() - known.atMs >= LOOK_EVERY_MS ? this.#lookOnce(region) : null;
    if (known === undefined) await looking;
    return this.#looks.get(region)?.isOverloaded !== true;
  }

  #lookOnce(region: number): Promise<void> {
    const underWay = this.#looking.get(region);
    if (underWay !== undefined) return underWay;
    const look = this.#look(region).finally(() => this.#looking.delete(region));
    this.#looking.set(region, look);
    return look;
  }

  async #look(region: number): Promise<void> {
    const overdue = await transitions
      .overdueRides(this.#sql, region, OVERDUE_MS, OVERDUE_RIDES)
      // The request itself will say what is wrong.
      .catch(() => 0);
    this.#looks.set(region, { atMs: this.#nowMs(), isOverloaded: overdue >= OVERDUE_RIDES });
  }
}
