import { type Policy, policyBounds } from '../domain/policy.ts';

/** Positions don't come faster than this however fast the city runs: they are the bulk of the load. */
const POSITION_INTERVAL_MIN_MS = 1_000;
/** A driver is known to be lost only after missing a few. */
const STALE_INTERVALS = 3;
/** A real network carries the offer, and doesn't get faster with the city. */
const DELIVERY_TTL_MIN_MS = 250;
const PUSH_RETRY_MIN_MS = 50;

/**
 * The policy a city runs under when its clock runs `speedup` times as fast as the wall's: durations divided by it,
 * the speed multiplied, distances and counts as they are. What real networks and devices need in wall time stays:
 * positions at least 1 s apart, staleness at least three of those, 250 ms for an offer to arrive. Relations that
 * `policyProblems` demands are kept. Throws `RangeError` on a speedup below 1.
 */
export function scalePolicy(policy: Policy, speedup: number): Policy {
  if (!(speedup >= 1 && speedup < Infinity)) throw new RangeError(`speedup ${speedup} is not 1 or more`);
  if (speedup === 1) return policy;
  const scaled: { -readonly [Setting in keyof Policy]: Policy[Setting] } = { ...policy };
  for (const setting of durations) {
    scaled[setting] = Math.max(policyBounds[setting].min, Math.round(policy[setting] / speedup));
  }
  scaled.speedMps = policy.speedMps * speedup;
  scaled.retryMaxMs = Math.max(scaled.retryMaxMs, scaled.retryMs);

  scaled.positionIntervalMs = Math.max(scaled.positionIntervalMs, POSITION_INTERVAL_MIN_MS);
  scaled.positionStaleMs = Math.max(scaled.positionStaleMs, STALE_INTERVALS * scaled.positionIntervalMs);
  scaled.presenceGraceMs = Math.max(scaled.presenceGraceMs, scaled.positionStaleMs);

  scaled.deliveryTtlMs = Math.max(scaled.deliveryTtlMs, DELIVERY_TTL_MIN_MS);
  // As many pushes within a term as before.
  const pushRetryMs = Math.round((scaled.deliveryTtlMs * policy.pushRetryMs) / policy.deliveryTtlMs);
  scaled.pushRetryMs = Math.min(Math.max(pushRetryMs, PUSH_RETRY_MIN_MS), scaled.deliveryTtlMs - 1);
  scaled.maxLifetimeMs = Math.max(scaled.maxLifetimeMs, scaled.deliveryTtlMs + scaled.decisionTtlMs);
  return scaled;
}

type Duration = Extract<keyof typeof policyBounds, `${string}Ms`>;

const durations = Object.keys(policyBounds).filter((setting): setting is Duration => setting.endsWith('Ms'));
