/**
 * Matchers that fail on purpose, for rehearsals: `MATCHER_FAULT_RATE` of the rounds either stall for longer than a
 * lease's first term between pairing and leasing, or crash right after leasing, before any driver is told.
 */
export interface Faults {
  readonly beforeLease: () => Promise<void>;
  /** Throws MatcherCrash in a round that shall crash. */
  readonly beforeTelling: () => void;
}

export class MatcherCrash extends Error {
  override name = 'MatcherCrash';
}

export const noFaults: Faults = { beforeLease: async () => {}, beforeTelling: () => {} };

export function createFaults(options: {
  readonly rate: number;
  readonly stallMs: number;
  readonly random: () => number;
  readonly delay: (ms: number) => Promise<void>;
}): Faults {
  const { rate, stallMs, random, delay } = options;
  return {
    beforeLease: async () => {
      if (random() < rate / 2) await delay(stallMs);
    },
    beforeTelling: () => {
      if (random() < rate / 2) throw new MatcherCrash('a rehearsed crash between leasing and telling');
    },
  };
}
