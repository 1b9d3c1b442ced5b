/** How far and how often a ride looks for a driver, from what its earlier rounds found. */
import type { Policy } from './policy.ts';

/** The search radius after `emptyRounds` rounds that found nobody, metres. */
export const searchRadiusM = (policy: Policy, emptyRounds: number): number =>
  Math.min(policy.searchRadiusM + emptyRounds * policy.searchRadiusStepM, policy.searchRadiusMaxM);

/** How long a ride that found nobody waits for its next round: doubling, and never past the end of its patience. */
export function retryWaitMs(policy: Policy, emptyRounds: number, patienceLeftMs: number): number {
  // 2^20 is past any bound that a policy can set.
  const waitMs = Math.min(policy.retryMs * 2 ** Math.min(emptyRounds, 20), policy.retryMaxMs);
  return Math.round(Math.min(waitMs, Math.max(patienceLeftMs, 0)));
}

/** How many more offers a ride may hold now. */
export const openPlaces = (
  policy: Pick<Policy, 'parallelOffers' | 'offersMax'>,
  liveOffers: number,
  offersMade: number,
): number => Math.max(0, Math.min(policy.parallelOffers - liveOffers, policy.offersMax - offersMade));
