/** Leader election: of all who run this, one works at a time. */
import { setTimeout as pause } from 'node:timers/promises';
import type { LeaseClient } from './client.ts';
import { LeaseNotAcquired } from './client.ts';
import type { Lease } from './lease.ts';
import { monotonicMs } from './trust.ts';

export interface SingletonOptions {
  /** How long after its holder's death the job stands still, at most. */
  readonly ttlMs: number;
  readonly holder?: string;
  /** Ends the candidacy; whoever holds the job then hands it over at once. */
  readonly signal: AbortSignal;
  /** Called with each election: after how long a wait. */
  readonly onElected?: (lease: Lease, waitedMs: number) => void;
  /** What ended a turn, or kept it from beginning, and is tried again. */
  readonly onError?: (error: unknown) => void;
}

const WAIT_MS = 60_000;
const RETRY_MIN_MS = 100;
const RETRY_MAX_MS = 5_000;

/**
 * Runs `run` whenever this process is elected, until the signal is aborted; then resolves. `run` has to end soon after
 * `lease.signal` has fired, and to write under the lease's fence whatever a successor could have overtaken. One that
 * returns or throws while it still leads gives the lead away, and stands again after a pause.
 */
export async function singleton(
  client: LeaseClient,
  name: string,
  run: (lease: Lease) => Promise<void>,
  options: SingletonOptions,
): Promise<void> {
  const { signal, onError = () => {} } = options;
  for (let failures = 0; !signal.aborted;) {
    try {
      await turn(client, name, run, options);
      failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      // Nobody gave it up for a minute: there is no better place to be than the end of the queue.
      if (error instanceof LeaseNotAcquired) continue;
      onError(error);
      failures += 1;
    }
    const pauseMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** failures) * (0.5 + Math.random() / 2);
    await pause(pauseMs, undefined, { signal }).catch(() => {});
  }
}

async function turn(
  client: LeaseClient,
  name: string,
  run: (lease: Lease) => Promise<void>,
  { ttlMs, holder, signal, onElected }: SingletonOptions,
): Promise<void> {
  const startedMs = monotonicMs();
  const options = { ttlMs, waitMs: WAIT_MS, signal, ...(holder !== undefined && { holder }) };
  await using lease = await client.acquire(name, options);
  // Told to stop: the signal of the lease fires, and the next candidate has it at once.
  const resign = (): void => void lease.release();
  signal.addEventListener('abort', resign);
  try {
    onElected?.(lease, monotonicMs() - startedMs);
    await run(lease);
  } finally {
    signal.removeEventListener('abort', resign);
  }
}
