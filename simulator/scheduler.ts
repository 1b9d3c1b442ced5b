/** Something to be done at a time; `cancel` takes it back. */
export interface Scheduled {
  readonly dueMs: number;
  cancel(): void;
}

export interface SchedulerOptions {
  /** Monotonic milliseconds. */
  readonly now: () => number;
  /** A task threw: a mistake in the simulator, which ends the run. */
  readonly failed: (error: unknown) => void;
}

/** Due times are met within a tick: fine enough for people, coarse enough to serve many of them at each wake-up. */
const TICK_MS = 4;

class Entry implements Scheduled {
  readonly dueMs: number;
  readonly order: number;
  task: (() => void) | null;

  constructor(dueMs: number, order: number, task: () => void) {
    this.dueMs = dueMs;
    this.order = order;
    this.task = task;
  }

  cancel(): void {
    this.task = null;
  }
}

/**
 * One timer for a whole city: thousands of drivers and riders wait in a binary heap, and a single timeout sleeps until
 * the next of them is due. Tasks run in the order of their times, and of their making when those are equal.
 */
export class Scheduler {
  readonly #options: SchedulerOptions;
  readonly #heap: Entry[] = [];
  #made = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #wakesAtMs = Infinity;
  #stopped = false;

  constructor(options: SchedulerOptions) {
    this.#options = options;
  }

  now(): number {
    return this.#options.now();
  }

  at(dueMs: number, task: () => void): Scheduled {
    const entry = new Entry(dueMs, this.#made++, task);
    if (this.#stopped) return entry;
    this.#push(entry);
    this.#arm();
    return entry;
  }

  after(delayMs: number, task: () => void): Scheduled {
    return this.at(this.now() + delayMs, task);
  }

  /** Never settles once the scheduler is stopped: whoever waits here is part of what ended. */
  pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => this.after(delayMs, resolve));
  }

  /** Forgets everything that was still to come. */
  stop(): void {
    this.#stopped = true;
    this.#heap.length = 0;
    clearTimeout(this.#timer);
  }

  #arm(): void {
    const next = this.#heap[0];
    if (next === undefined || next.dueMs >= this.#wakesAtMs) return;
    clearTimeout(this.#timer);
    this.#wakesAtMs = next.dueMs;
    this.#timer = setTimeout(() => this.#wake(), Math.max(TICK_MS, Math.ceil(next.dueMs - this.now())));
  }

  #wake(): void {
    this.#wakesAtMs = Infinity;
    // What is put in meanwhile waits for the next tick, or a task that always puts in another would never let go.
    const nowMs = this.now();
    const made = this.#made;
    for (
      let next = this.#heap[0];
      next !== undefined && next.dueMs <= nowMs && next.order < made;
      next = this.#heap[0]
    ) {
      this.#pop();
      this.#run(next);
    }
    if (!this.#stopped) this.#arm();
  }

  #run(entry: Entry): void {
    try {
      entry.task?.();
    } catch (error) {
      this.#options.failed(error);
    }
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let at = heap.length;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Entry;
      if (!before(entry, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = entry;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (let child = 1; child < heap.length; child = 2 * at + 1) {
      const right = heap[child + 1];
      if (right !== undefined && before(right, heap[child] as Entry)) child++;
      const below = heap[child] as Entry;
      if (!before(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
  }
}

const before = (a: Entry, b: Entry): boolean => a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.order < b.order);
