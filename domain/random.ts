/**
 * Seeded randomness for the simulator and the tests: the same seed gives the same run. Uniform draws are the same
 * everywhere; those that need a logarithm or a cosine are as equal as the JavaScript engines' Math.
 * The generator is sfc32 (Chris Doty-Humphrey's PractRand: 128 bits of state, passes its own battery), seeded through
 * MurmurHash3 mixing. Not for secrets: lease tokens come from the system.
 */
export interface Random {
  /** Uniform in [0, 1), 53 bits. */
  next(): number;
  /** Uniform whole number, both ends included. Throws `RangeError` unless they are safe integers in order. */
  int(min: number, max: number): number;
  /** Standard normal. */
  normal(): number;
  exponential(mean: number): number;
  /** Half of the draws lie below `median`; `sigma` is the standard deviation of the logarithm. */
  logNormal(median: number, sigma: number): number;
  /** Throws `RangeError` on an empty list. */
  pick<T>(items: readonly T[]): T;
  /** True with probability `p`. */
  chance(p: number): boolean;
  /**
   * A stream of its own, decided by this stream's seed and the name alone, not by what was drawn before: another draw
   * in one place shifts nothing elsewhere. The same name gives the same stream again.
   */
  fork(name: string): Random;
}

/** `42` and `'42'` are the same seed, for it may come from a command line. */
export function createRandom(seed: number | string): Random {
  return randomAt([String(seed)]);
}

function randomAt(path: readonly string[]): Random {
  // JSON keeps fork('a').fork('b') apart from fork('a/b'), whatever the names hold.
  const next = unitNumbers(sfc32(JSON.stringify(path)));
  // No spare of Box–Muller's pair is kept: every normal costs two draws, so draws can be counted.
  const normal = () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next());
  const int = (min: number, max: number) => {
    const span = max - min + 1;
    if (!Number.isSafeInteger(min) || !Number.isSafeInteger(max) || !(span >= 1 && span <= 2 ** 53)) {
      throw new RangeError(`no whole numbers from ${min} to ${max}`);
    }
    return min + Math.floor(next() * span);
  };
  return {
    next,
    int,
    normal,
    exponential: (mean) => -mean * Math.log(1 - next()),
    logNormal: (median, sigma) => median * Math.exp(sigma * normal()),
    pick: <T>(items: readonly T[]) => {
      if (items.length === 0) throw new RangeError('nothing to pick from');
      return items[int(0, items.length - 1)] as T;
    },
    chance: (p) => next() < p,
    fork: (name) => randomAt([...path, name]),
  };
}

function unitNumbers(next32: () => number): () => number {
  return () => {
    const high = next32() >>> 5;
    const low = next32() >>> 6;
    return (high * 2 ** 26 + low) / 2 ** 53;
  };
}

/** Whole numbers in [0, 2³²). */
function sfc32(key: string): () => number {
  let a = murmur3(key, 1);
  let b = murmur3(key, 2);
  let c = murmur3(key, 3);
  let counter = 1;
  const next32 = () => {
    const drawn = (a + b + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + drawn) | 0;
    return drawn >>> 0;
  };
  // PractRand's own warm-up: as many rounds as it takes for every seed bit to reach every state bit.
  for (let round = 0; round < 15; round++) next32();
  return next32;
}

/** MurmurHash3 x86_32 of the UTF-16 units, each as a block of four bytes. */
function murmur3(text: string, seed: number): number {
  let hash = seed;
  for (let at = 0; at < text.length; at++) {
    const block = Math.imul(text.charCodeAt(at), 0xcc9e2d51);
    hash ^= Math.imul((block << 15) | (block >>> 17), 0x1b873593);
    hash = (hash << 13) | (hash >>> 19);
    hash = (Math.imul(hash, 5) + 0xe6546b64) | 0;
  }
  hash ^= text.length * 4;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}
