/**
 * Matchers that fail on purpose, for rehearsals: `MATCHER_FAULT_RATE` of the rounds either stall for longer than a
 * lease's first term between pairing and leasing, or crash right after leasing, before any driver is told.
 */
export interface Faults {
  /** `stallMs`: longer than the term of what is about to be leased. */
  readonly beforeLease: (stallMs: number) => Promise<void>;
  /** Throws MatcherCrash in a round that shall crash. */
  readonly beforeTelling: () => void;
}

export class MatcherCrash extends Error {
  override name = 'MatcherCrash';
}

export const noFaults: Faults = { beforeLease: async () => {}, beforeTelling: () => {} };

export function createFaults(options: {
  readonly rate: number;
  readonly random: () => number;
  readonly delay: (ms: number) => Promise<void>;
}): Faults {
  const { rate, random, delay } = options;
  return {
    beforeLease: async (stallMs) => {
      if (random() < rate / 2) await delay(stallMs);
    },
    beforeTelling: () => {
      if (random() < rate / 2) throw new MatcherCrash('a rehearsed crash between leasing and telling');
    },
  };
}
