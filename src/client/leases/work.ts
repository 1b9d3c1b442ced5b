/**
 * Work claimed under a lease: items are added once by their key, claimed for a term by whoever works, kept by
 * heartbeats, and ended by whoever still has the claim. What a lost claim asks for is refused.
 */
export interface NewWork {
  /** Dedups within its queue: adding a key again, while it is known, adds nothing. 1–256 bytes. */
  readonly key: string;
  /** Items of a group are claimed one at a time and in the order in which they were added; none: no order. */
  readonly group?: string;
  readonly payload: unknown;
  readonly delayMs?: number;
}

export interface WorkClaim {
  readonly queue: string;
  readonly key: string;
  readonly token: string;
}

export interface ClaimedWork extends WorkClaim {
  readonly group: string | null;
  readonly payload: unknown;
  /** From 1. */
  readonly attempt: number;
  readonly expiresInMs: number;
}

export type WorkOutcome = { readonly refused: null } | { readonly refused: 'claim_lost' };

export interface WorkQueue {
  /** How many were new. In one commit; up to 1,000. */
  add(queue: string, items: readonly NewWork[]): Promise<number>;
  /** Up to `max` items that are due, claimed for `ttlMs`; an attempt is counted with each claim. */
  next(queue: string, options: { readonly max: number; readonly ttlMs: number }): Promise<ClaimedWork[]>;
  /** Extends each claim to `ttlMs` from now. */
  heartbeat(claims: readonly WorkClaim[], ttlMs: number): Promise<WorkOutcome[]>;
  /** Done: the key is kept for dedup for a day. */
  complete(claims: readonly WorkClaim[]): Promise<WorkOutcome[]>;
  /** Not done: due again after `retryInMs`, or dead when its attempts are used up (`attemptsMax`). */
  fail(
    claim: WorkClaim,
    failure: { readonly error: string; readonly retryInMs: number; readonly attemptsMax: number },
  ): Promise<WorkOutcome & { readonly dead?: boolean }>;
  /** Gives a claim back unused, at once and without counting the attempt. */
  putBack(claims: readonly WorkClaim[]): Promise<WorkOutcome[]>;
}
