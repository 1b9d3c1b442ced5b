/** How often a caller may ask. Each process counts for itself, in memory: what is counted here holds no promise. */
import type { Identity, Role } from './auth.ts';

/** Requests a second, for a caller of each kind; a second's worth may come at once. */
export interface RateLimits {
  /** Of one rider or driver, REST and socket together. */
  readonly devicePerS: number;
  /** Of one `service` or `ops`: it may speak for a whole city. */
  readonly servicePerS: number;
}

export const defaultRateLimits: RateLimits = { devicePerS: 100, servicePerS: 5_000 };

const BURST_MS = 1_000;
/** A second's worth of thirds of a millisecond is a second, and what adding them up left. */
const ROUNDING_MS = 0.001;

/** Counts a request of the caller when it may go ahead. Returns whether it may. */
export type RateLimiter = (caller: string) => boolean;

/**
 * For each caller one number: when all it has asked would be worked off at its rate (GCRA). That is never more than a
 * burst ahead, so a caller who was quiet for a burst is one never seen, and goes with its whole generation: nothing is
 * looked through, and no more is held than was asked in two bursts. Under 1 µs a request.
 */
export function createRateLimiter(perS: number, nowMs: () => number = () => performance.now()): RateLimiter {
  const costMs = 1_000 / perS;
  let newer = new Map<string, number>();
  let older = newer;
  let turnsAtMs = Number.NEGATIVE_INFINITY;
  return (caller) => {
    const now = nowMs();
    if (now >= turnsAtMs) {
      older = newer;
      newer = new Map();
      turnsAtMs = now + BURST_MS;
    }
    const doneAtMs = Math.max(newer.get(caller) ?? older.get(caller) ?? now, now) + costMs;
    if (doneAtMs > now + BURST_MS + ROUNDING_MS) return false;
    newer.set(caller, doneAtMs);
    return true;
  };
}

/** Counts a request of its sender when it may go ahead. Returns whether it may. */
export type CallerLimiter = (identity: Identity) => boolean;

export function createCallerLimiter(
  { devicePerS, servicePerS }: RateLimits,
  nowMs: () => number = () => performance.now(),
): CallerLimiter {
  const limiters: Readonly<Record<Role, RateLimiter>> = {
    rider: createRateLimiter(devicePerS, nowMs),
    driver: createRateLimiter(devicePerS, nowMs),
    service: createRateLimiter(servicePerS, nowMs),
    ops: createRateLimiter(servicePerS, nowMs),
  };
  return ({ role, sub }) => limiters[role](sub);
}
