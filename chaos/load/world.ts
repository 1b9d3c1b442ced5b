/** What all clients of a run share. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../../domain/random.ts';
import type { Policy } from '../../domain/policy.ts';
import type { Asker, Heard } from './ask.ts';

export interface World {
  readonly asker: Asker;
  readonly random: Random;
  readonly policy: Policy;
  readonly regionId: string;
  readonly gatewayUrl: string;
  readonly driverIds: readonly string[];
  /** No new rides, no new pranks: what is under way comes to its end. */
  readonly isEnding: () => boolean;
  /** Everything stops, now. */
  readonly stopped: AbortSignal;
  /** The database's clock was put back: a term that nobody had touched since may be live again. */
  readonly mayTermsStretch: () => boolean;
  /** Told to the ride's rider just before a driver's confirm is sent. */
  readonly accepting: Map<string, () => void>;
}

const SETTLE_ATTEMPTS_MAX = 200;
const SETTLE_PAUSE_MS = 150;

/**
 * Asks until the answer is the service's own word, as a careful client does: each repetition names the first ask.
 * Null when it never was one.
 */
export async function settle(
  world: World,
  ask: (repeats: string | undefined) => Promise<Heard>,
  repeats?: string,
): Promise<Heard | null> {
  let first = repeats;
  for (let attempt = 1; attempt <= SETTLE_ATTEMPTS_MAX && !world.stopped.aborted; attempt++) {
    const heard = await ask(first);
    if (heard.outcome !== 'unknown') return heard;
    first ??= heard.id;
    await pause(SETTLE_PAUSE_MS * Math.min(attempt, 4), undefined, { signal: world.stopped }).catch(() => {});
  }
  return null;
}

/** Sleeps, unless the run stops; false when it did. */
export async function sleep(world: World, ms: number): Promise<boolean> {
  return pause(ms, true, { signal: world.stopped }).catch(() => false);
}
