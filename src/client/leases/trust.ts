/**
 * How long a lease may be believed in, in memory that the holder's thread and the renewing one share, on the clock
 * that all threads of a process have in common and that nobody sets (`process.hrtime`). Once lost it stays lost: each
 * change is an exchange against what was seen, so that a renewal that comes too late can't undo the loss.
 */
const LOST = 0n;
/** Two clocks drift apart, and a write begun on the last tick has to arrive. */
const MARGIN_SHARE = 0.01;
const MARGIN_MIN_MS = 5;

export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** When trust ends that began with an attempt at `startedMs` and was answered with `expiresInMs`. */
export const trustedUntilMs = (startedMs: number, expiresInMs: number): number =>
  startedMs + expiresInMs - Math.max(MARGIN_MIN_MS, expiresInMs * MARGIN_SHARE);

export class Trust {
  readonly memory: SharedArrayBuffer;
  readonly #slot: BigInt64Array;

  constructor(memory: SharedArrayBuffer = new SharedArrayBuffer(8)) {
    this.memory = memory;
    this.#slot = new BigInt64Array(memory);
  }

  static until(untilMs: number): Trust {
    const trust = new Trust();
    Atomics.store(trust.#slot, 0, nanoseconds(untilMs));
    return trust;
  }

  /** Milliseconds from now; 0 once lost, or over. */
  leftMs(): number {
    const until = Atomics.load(this.#slot, 0);
    return until === LOST ? 0 : Math.max(0, Number(until) / 1e6 - monotonicMs());
  }

  /** Loses what is over; true if it is lost, by now or before. */
  loseIfOver(): boolean {
    for (;;) {
      const until = Atomics.load(this.#slot, 0);
      if (until === LOST) return true;
      if (nanoseconds(monotonicMs()) < until) return false;
      if (Atomics.compareExchange(this.#slot, 0, until, LOST) === until) return true;
    }
  }

  lose(): void {
    Atomics.store(this.#slot, 0, LOST);
  }

  /** Never shortens, and never revives: false when it was lost or over before. */
  extend(untilMs: number): boolean {
    const to = nanoseconds(untilMs);
    while (!this.loseIfOver()) {
      const until = Atomics.load(this.#slot, 0);
      if (until === LOST) return false;
      if (until >= to || Atomics.compareExchange(this.#slot, 0, until, to) === until) return true;
    }
    return false;
  }
}

const nanoseconds = (ms: number): bigint => BigInt(Math.floor(ms * 1e6));
