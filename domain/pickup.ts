/** Watching a driver on the way to the pickup: whether he comes nearer, and what follows when he doesn't. */
import type { Policy } from './policy.ts';

/** Less than this is the noise of positioning. Metres. */
const NEARER_M = 50;
/** So near, nobody has to come nearer. Metres. */
const THERE_M = 100;

export interface PickupWatch {
  /** How near the driver had come; null: not known. Metres. */
  readonly nearestM: number | null;
  /** How long ago that was; null: nobody has looked yet. */
  readonly sinceNearerMs: number | null;
  readonly isStalled: boolean;
}

/** `nearer`: to be remembered; `resumed`: that too, and the flag is taken from him. */
export type PickupVerdict = 'nearer' | 'resumed' | 'stalled' | 'replaced' | 'waiting';

/** `distanceM`: from the pickup, great circle; null: the position isn't known, which is no coming nearer. */
export function judgePickup(
  { nearestM, sinceNearerMs, isStalled }: PickupWatch,
  distanceM: number | null,
  { stalledAfterMs, stalledReplacedAfterMs }: Pick<Policy, 'stalledAfterMs' | 'stalledReplacedAfterMs'>,
): PickupVerdict {
  if (sinceNearerMs === null) return 'nearer';
  const isNearer = distanceM !== null && (distanceM < THERE_M || nearestM === null || distanceM <= nearestM - NEARER_M);
  if (isNearer) return isStalled ? 'resumed' : 'nearer';
  if (!isStalled) return stalledAfterMs > 0 && sinceNearerMs >= stalledAfterMs ? 'stalled' : 'waiting';
  return stalledReplacedAfterMs > 0 && sinceNearerMs >= stalledReplacedAfterMs ? 'replaced' : 'waiting';
}
