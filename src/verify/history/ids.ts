/**
 * The ids of all asks, in 20 bytes each: what a repetition points to, and that no id is there twice. Ids are kept as 64
 * bits of hash: of five million, two are taken for one with a probability of less than one in a million.
 */
const FIRST_CAPACITY = 1 << 12;
const FULL_AT = 0.7;

export interface Asked {
  /** A hash of what was asked: command, ids, token, key. */
  readonly what: number;
  readonly atMs: number;
}

export class AskIds {
  #size = 0;
  #capacity = 0;
  #high = new Uint32Array();
  #low = new Uint32Array();
  #what = new Uint32Array();
  #atMs = new Float64Array();

  constructor() {
    this.#allocate(FIRST_CAPACITY);
  }

  get size(): number {
    return this.#size;
  }

  /** False when the id is there already. */
  add(id: string, { what, atMs }: Asked): boolean {
    if (this.#size >= this.#capacity * FULL_AT) this.#grow();
    const [high, low] = hash64(id);
    const at = this.#find(high, low);
    if (this.#atMs[at]! >= 0) return false;
    this.#put(at, high, low, what, atMs);
    this.#size++;
    return true;
  }

  get(id: string): Asked | null {
    const [high, low] = hash64(id);
    const at = this.#find(high, low);
    return this.#atMs[at]! < 0 ? null : { what: this.#what[at]!, atMs: this.#atMs[at]! };
  }

  /** Where it is, or the free place where it would be. */
  #find(high: number, low: number): number {
    let at = low % this.#capacity;
    while (this.#atMs[at]! >= 0 && (this.#high[at] !== high || this.#low[at] !== low)) at = (at + 1) % this.#capacity;
    return at;
  }

  #put(at: number, high: number, low: number, what: number, atMs: number): void {
    this.#high[at] = high;
    this.#low[at] = low;
    this.#what[at] = what;
    this.#atMs[at] = atMs;
  }

  #allocate(capacity: number): void {
    this.#capacity = capacity;
    this.#high = new Uint32Array(capacity);
    this.#low = new Uint32Array(capacity);
    this.#what = new Uint32Array(capacity);
    this.#atMs = new Float64Array(capacity).fill(-1);
  }

  #grow(): void {
    const [highs, lows, whats, times] = [this.#high, this.#low, this.#what, this.#atMs];
    this.#allocate(this.#capacity * 2);
    for (let i = 0; i < times.length; i++) {
      if (times[i]! < 0) continue;
      this.#put(this.#find(highs[i]!, lows[i]!), highs[i]!, lows[i]!, whats[i]!, times[i]!);
    }
  }
}

/** Two multiplicative hashes that are mixed into each other at the end (as in MurmurHash3's finish). */
function hash64(text: string): readonly [number, number] {
  let a = 0xdeadbeef;
  let b = 0x41c6ce57;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    a = Math.imul(a ^ c, 0x9e3779b1);
    b = Math.imul(b ^ c, 0x5f356495);
  }
  a = Math.imul(a ^ (a >>> 16), 0x85ebca6b) ^ Math.imul(b ^ (b >>> 13), 0xc2b2ae35);
  b = Math.imul(b ^ (b >>> 16), 0x85ebca6b) ^ Math.imul(a ^ (a >>> 13), 0xc2b2ae35);
  return [a >>> 0, b >>> 0];
}

export const hash32 = (text: string): number => hash64(text)[0];
