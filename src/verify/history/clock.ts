/**
 * Where the database's wall clock stands on the monotonic clock of a history. A ride's request was recorded between its
 * first ask and its first answer: each such pair bounds the offset from both sides. The wall clock may be set, so an
 * offset holds only between pairs shortly before and shortly after that agree with each other, and not while a fault
 * was at the clock. What can't be bounded isn't judged.
 */
export interface Bounds {
  /** Database time minus monotonic time, milliseconds: at least, and at most. */
  readonly lowMs: number;
  readonly highMs: number;
}

interface Pair extends Bounds {
  readonly fromMs: number;
  readonly toMs: number;
}

export interface Interval {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Pairs farther away than this say too little about now. */
const REACH_MS = 10_000;
/** Of the pairs on each side so many are looked at. */
const PAIRS = 8;
/** How fast a clock that is slewed may run away (twice what an adjtime does). */
const DRIFT = 0.001;

export class DatabaseClock {
  readonly #pairs: Pair[] = [];
  #byAsk: Pair[] | null = null;
  #byAnswer: Pair[] = [];
  readonly #steps: readonly Interval[];

  /** `steps`: when somebody set the clock. */
  constructor(steps: readonly Interval[]) {
    this.#steps = steps;
  }

  /** What was asked and answered at these monotonic times was recorded at `atMs`. */
  add(askedMs: number, answeredMs: number, atMs: number): void {
    this.#pairs.push({ fromMs: askedMs, toMs: answeredMs, lowMs: atMs - answeredMs, highMs: atMs - askedMs });
    this.#byAsk = null;
  }

  /** Bounds that hold all the time from `fromMs` to `toMs`; null when there are none to trust. */
  during(fromMs: number, toMs: number): Bounds | null {
    const before = this.#before(fromMs).filter((pair) => pair.toMs >= fromMs - REACH_MS);
    const after = this.#after(toMs).filter((pair) => pair.fromMs <= toMs + REACH_MS);
    if (before.length === 0 || after.length === 0) return null;
    const near = [...before, ...after];
    const spanned = {
      fromMs: Math.min(...near.map((pair) => pair.fromMs)),
      toMs: Math.max(...near.map((pair) => pair.toMs)),
    };
    if (this.wasSet(spanned.fromMs, spanned.toMs)) return null;
    const driftMs = DRIFT * (spanned.toMs - spanned.fromMs);
    if (lowOf(near) > highOf(near) + driftMs) return null;
    // Had the clock been set in between, once, it would be one side's or the other's.
    return {
      lowMs: Math.min(lowOf(before), lowOf(after)) - driftMs,
      highMs: Math.max(highOf(before), highOf(after)) + driftMs,
    };
  }

  /** Whether somebody set it between these monotonic times. */
  wasSet(fromMs: number, toMs: number): boolean {
    return this.#steps.some((step) => step.fromMs <= toMs && step.toMs >= fromMs);
  }

  /** Bounds for a moment, from whatever is nearest on either side, however far: wide where the clock was set. */
  around(atMs: number): Bounds | null {
    const sides = [this.#before(atMs), this.#after(atMs)].filter((pairs) => pairs.length > 0);
    if (sides.length === 0) return null;
    const bounds = sides.map((pairs) => {
      const driftMs = DRIFT * Math.max(...pairs.map((pair) => Math.abs(pair.fromMs - atMs)));
      const [lowMs, highMs] = [lowOf(pairs), highOf(pairs)];
      if (lowMs <= highMs + driftMs) return { lowMs: lowMs - driftMs, highMs: highMs + driftMs };
      return {
        lowMs: Math.min(...pairs.map((pair) => pair.lowMs)),
        highMs: Math.max(...pairs.map((pair) => pair.highMs)),
      };
    });
    return {
      lowMs: Math.min(...bounds.map(({ lowMs }) => lowMs)),
      highMs: Math.max(...bounds.map(({ highMs }) => highMs)),
    };
  }

  /** The last pairs that were over by then. */
  #before(atMs: number): Pair[] {
    this.#sort();
    const end = firstIndex(this.#byAnswer, (pair) => pair.toMs > atMs);
    return this.#byAnswer.slice(Math.max(0, end - PAIRS), end);
  }

  /** The first pairs that began after it. */
  #after(atMs: number): Pair[] {
    this.#sort();
    const start = firstIndex(this.#byAsk!, (pair) => pair.fromMs >= atMs);
    return this.#byAsk!.slice(start, start + PAIRS);
  }

  #sort(): void {
    if (this.#byAsk !== null) return;
    this.#byAsk = this.#pairs.toSorted((a, b) => a.fromMs - b.fromMs);
    this.#byAnswer = this.#pairs.toSorted((a, b) => a.toMs - b.toMs);
  }
}

const lowOf = (pairs: readonly Pair[]): number => Math.max(...pairs.map(({ lowMs }) => lowMs));
const highOf = (pairs: readonly Pair[]): number => Math.min(...pairs.map(({ highMs }) => highMs));

/** The first index of a sorted array from which on it is so; its length when nowhere. */
function firstIndex(pairs: readonly Pair[], isSo: (pair: Pair) => boolean): number {
  let [low, high] = [0, pairs.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (isSo(pairs[middle]!)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** How much of an interval lies in none of these. */
export function uncoveredMs({ fromMs, toMs }: Interval, covers: readonly Interval[]): number {
  let leftMs = 0;
  let atMs = fromMs;
  for (const cover of covers.toSorted((a, b) => a.fromMs - b.fromMs)) {
    if (cover.toMs <= atMs || cover.fromMs >= toMs) continue;
    leftMs += Math.max(0, cover.fromMs - atMs);
    atMs = cover.toMs;
  }
  return leftMs + Math.max(0, toMs - atMs);
}
