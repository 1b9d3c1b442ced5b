/**
 * Work that comes in bursts, in order and a little with each turn of the event loop, so that what follows from the first
 * pieces isn't kept waiting by the last.
 */
export class Turns {
  readonly #atOnce: number;
  #waiting: (() => void)[] = [];

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  take(work: () => void): void {
    this.#waiting.push(work);
    if (this.#waiting.length === 1) setImmediate(() => this.#turn());
  }

  #turn(): void {
    for (const work of this.#waiting.splice(0, this.#atOnce)) work();
    if (this.#waiting.length > 0) setImmediate(() => this.#turn());
  }
}
