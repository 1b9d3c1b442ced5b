/** How far, how often and how many at a time a ride looks for a driver, from what its search has come to. */
import type { Policy } from './policy.ts';

/** What escalates a search. */
export interface Search {
  readonly emptyRounds: number;
  readonly liveOffers: number;
  readonly offersMade: number;
  readonly waitedMs: number;
}

/** How often the search has escalated: by offers that came to nothing, or by time, whichever is further. */
export function escalation(policy: Policy, { liveOffers, offersMade, waitedMs }: Omit<Search, 'emptyRounds'>): number {
  const byOffers = Math.floor((offersMade - liveOffers) / policy.escalateAfterOffers);
  return Math.max(byOffers, Math.floor(waitedMs / policy.escalateAfterMs));
}

/** Who may hold an offer of the ride at a time. Assigning, there is nobody to wait for. */
export function parallelOffers(policy: Policy, search: Omit<Search, 'emptyRounds'>): number {
  if (policy.asking === 'assign') return 1;
  return escalation(policy, search) < 1
    ? policy.parallelOffers
    : Math.max(policy.parallelOffers, policy.escalatedParallelOffers);
}

/** The search radius: a step more after each round that found nobody, and at least the escalated one in the end; metres. */
export function searchRadiusM(policy: Policy, search: Search): number {
  const radiusM = Math.min(
    policy.searchRadiusM + search.emptyRounds * policy.searchRadiusStepM,
    policy.searchRadiusMaxM,
  );
  return escalation(policy, search) < 2 ? radiusM : Math.max(radiusM, policy.escalatedRadiusM);
}

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
