/**
 * Work claimed under a lease: items are added once by their key, claimed for a term by whoever works, kept by
 * heartbeats, and ended by whoever still has the claim. What a lost claim asks for is refused.
 */

/** Bounds of what may be asked for; outside them a request is refused before it does anything. */
export const workBounds = {
  /** Of a queue's name, an item's key and its group. */
  nameBytes: { min: 1, max: 256 },
  addItems: { min: 1, max: 100 },
  payloadBytes: { max: 16_384 },
  nextItems: { min: 1, max: 100 },
  claims: { min: 1, max: 100 },
  ttlMs: { min: 200, max: 86_400_000 },
  delayMs: { min: 0, max: 31_536_000_000 },
  attemptsMax: { min: 1, max: 1_000 },
} as const;

export interface NewWork {
  /** Dedups within its queue: adding a key again, while it is known, adds nothing. */
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

export interface WorkFailure {
  /** For people; what is longer than 1,000 characters is cut. */
  readonly error: string;
  readonly retryInMs: number;
  /** Of all its claims: with the last one failed the item is dead. */
  readonly attemptsMax: number;
}

export type WorkOutcome = { readonly refused: null } | { readonly refused: 'claim_lost' };
export type FailOutcome = WorkOutcome & { readonly dead: boolean };

/** Throws `Problem` for requests outside `workBounds`, and `Unreachable` when no answer could be had. */
export interface WorkQueue {
  /** How many were new. In one commit. */
  add(queue: string, items: readonly NewWork[]): Promise<number>;
  /**
   * Up to `max` items that are due, claimed for `ttlMs`; an attempt is counted with each claim. Claims whose answer
   * got lost come back when their term is over.
   */
  next(queue: string, options: { readonly max: number; readonly ttlMs: number }): Promise<ClaimedWork[]>;
  /** Extends each claim to `ttlMs` from now. */
  heartbeat(claims: readonly WorkClaim[], ttlMs: number): Promise<WorkOutcome[]>;
  /** Done: the key is kept for dedup for a day. */
  complete(claims: readonly WorkClaim[]): Promise<WorkOutcome[]>;
  /** Not done: due again after `retryInMs`, or dead when its attempts are used up. */
  fail(claim: WorkClaim, failure: WorkFailure): Promise<FailOutcome>;
  /** Gives a claim back unused, at once and without counting the attempt. */
  putBack(claims: readonly WorkClaim[]): Promise<WorkOutcome[]>;
}
