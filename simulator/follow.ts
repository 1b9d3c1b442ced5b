import type { Ride } from '../src/client/contract.ts';
import { isOver, type RideLedger, type RideRecord } from './ledger.ts';
import type { Scheduler } from './scheduler.ts';
import type { Tally } from './tally.ts';

export interface FollowerOptions {
  readonly scheduler: Scheduler;
  readonly ledger: RideLedger;
  readonly tally: Tally;
  readonly readRide: (rideId: string) => Promise<Ride>;
  /** First pause between two looks at the same ride, wall milliseconds; each is longer than the one before. */
  readonly firstPauseMs: number;
  readonly failed: (error: unknown) => void;
}

const AT_ONCE_MAX = 8;
const GAP_MS = 10;
const PAUSE_GROWTH = 1.5;
const PAUSE_MAX_MS = 10_000;

/**
 * Riders looking at their phones: asks the service about rides of which the drivers' side has had no news for longer
 * than expected, at most 100 a second in all.
 */
export class RideFollower {
  readonly #options: FollowerOptions;
  readonly #waiting: { record: RideRecord; pauseMs: number }[] = [];
  #asking = 0;
  #nextAtMs = 0;

  constructor(options: FollowerOptions) {
    this.#options = options;
  }

  /** From here to its end. */
  follow(record: RideRecord): void {
    this.#lookLater(record, this.#options.firstPauseMs);
  }

  #lookLater(record: RideRecord, pauseMs: number): void {
    this.#options.scheduler.at(record.quietUntilMs, () => {
      if (isOver(record)) return;
      const { scheduler, firstPauseMs } = this.#options;
      if (record.quietUntilMs > scheduler.now()) return this.#lookLater(record, firstPauseMs);
      this.#waiting.push({ record, pauseMs });
      this.#askNext();
    });
  }

  #askNext(): void {
    const { scheduler, failed } = this.#options;
    const nowMs = scheduler.now();
    if (this.#asking >= AT_ONCE_MAX || nowMs < this.#nextAtMs) return;
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#asking++;
    this.#nextAtMs = nowMs + GAP_MS;
    scheduler.at(this.#nextAtMs, () => this.#askNext());
    this.#ask(next.record, next.pauseMs)
      .catch(failed)
      .finally(() => {
        this.#asking--;
        this.#askNext();
      });
  }

  async #ask(record: RideRecord, pauseMs: number): Promise<void> {
    const { scheduler, ledger, tally, readRide } = this.#options;
    const heardMs = record.heardMs;
    try {
      const { status } = await readRide(record.rideId);
      // News that came while we asked is newer than the answer.
      if (record.heardMs === heardMs) ledger.told(record.rideId, status, pauseMs);
    } catch (error) {
      tally.failed('ride', error);
      record.quietUntilMs = scheduler.now() + pauseMs;
    }
    this.#lookLater(record, Math.min(pauseMs * PAUSE_GROWTH, PAUSE_MAX_MS));
  }
}
