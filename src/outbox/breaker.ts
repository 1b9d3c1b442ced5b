/** A circuit breaker: after some failures in a row it lets nothing through for a while, then one to try. */
const FAILURES = 5;
const OPEN_MIN_MS = 5_000;
const OPEN_MAX_MS = 300_000;

export class Breaker {
  readonly #now: () => number;
  #failures = 0;
  #openUntilMs = 0;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get state(): 'closed' | 'open' | 'half_open' {
    if (this.#failures < FAILURES) return 'closed';
    return this.#now() < this.#openUntilMs ? 'open' : 'half_open';
  }

  /** How many may go through now. */
  room(atOnce: number): number {
    return { closed: atOnce, open: 0, half_open: 1 }[this.state];
  }

  succeeded(): void {
    this.#failures = 0;
  }

  /** What was under way when it opened says nothing new. */
  failed(): void {
    if (this.state === 'open') return;
    this.#failures += 1;
    if (this.#failures < FAILURES) return;
    const openMs = Math.min(OPEN_MAX_MS, OPEN_MIN_MS * 2 ** (this.#failures - FAILURES));
    this.#openUntilMs = this.#now() + openMs;
  }
}
