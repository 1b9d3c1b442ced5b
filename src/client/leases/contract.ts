/**
 * What the lease service answers, over HTTP and straight on the database alike. Durations are milliseconds; nobody's
 * wall clock is part of it: the database's clock judges, and clients count from before they asked.
 */
import type { WorkQueue } from './work.ts';

/** Bounds of what may be asked for; outside them a request is refused before it does anything. */
export const leaseBounds = {
  resourceBytes: { min: 1, max: 256 },
  holderBytes: { min: 1, max: 256 },
  /** Resources of one set, and leases of one renewal or release. */
  setItems: { min: 1, max: 100 },
  ttlMs: { min: 200, max: 86_400_000 },
  waitMs: { min: 0, max: 60_000 },
  priority: { min: -100, max: 100 },
  maxLifetimeMs: { min: 200, max: 2_592_000_000 },
  lockDelayMs: { min: 0, max: 3_600_000 },
  graceMs: { min: 0, max: 3_600_000 },
  softTtlMs: { min: 100, max: 86_400_000 },
  breakAfterMs: { min: 0, max: 86_400_000 },
  dataBytes: { max: 8_192 },
} as const;

/** How a term is to run. */
export interface LeaseTermOptions {
  /** The term's length, from the grant and from each renewal. */
  readonly ttlMs: number;
  /** No renewal moves the term's end past its grant plus this. */
  readonly maxLifetimeMs?: number;
  /** After an end that nobody declared (expired, or recovered), others wait for so long. */
  readonly lockDelayMs?: number;
  /** For so long after the term expired only its own token may take the next. */
  readonly graceMs?: number;
  /** Once so old without a renewal, an acquire by others ends the term after `graceMs`, unless it is renewed by then. */
  readonly softTtlMs?: number;
}

/** Which resources an acquire is about. */
export type LeaseTarget =
  | { readonly resource: string }
  /** The first free one, in this order. */
  | { readonly anyOf: readonly string[] }
  /** All of them, or none. */
  | { readonly allOf: readonly string[] };

export type AcquireRequest = LeaseTarget &
  LeaseTermOptions & {
    /** For people and `held` answers; names no right to anything, so two holders may share one. */
    readonly holder: string;
    /** How long to queue when it is held, first come first served within a priority; 0 unless given. */
    readonly waitMs?: number;
    /** Higher goes first; 0 unless given. */
    readonly priority?: number;
    /** The token of a term that expired, to take the next within its grace. */
    readonly formerToken?: string;
  };

/** One granted term. */
export interface GrantedLease {
  readonly resource: string;
  readonly holder: string;
  /** Proves the term; goes with renew, confirm and release, and nowhere else. */
  readonly token: string;
  /** Orders the terms of a resource for ever: +1 at each grant. */
  readonly fence: number;
  readonly expiresInMs: number;
  /** When to renew: early enough that two renewals may fail, and drawn so that holders drift apart. */
  readonly renewAfterMs: number;
}

/** Who has it, and for how long from now as far as is known; null when it is confirmed, which has no end. */
export interface HeldBy {
  readonly resource: string;
  readonly holder: string;
  readonly fence: number;
  readonly forMs: number | null;
}

export type Acquired =
  | { readonly refused: null; readonly leases: readonly GrantedLease[] }
  /** `held`: by those named, or by nobody yet while others are before us in the queue. `lease_expired`: repeats an acquire whose term is over. */
  | { readonly refused: 'held' | 'lease_expired'; readonly held: readonly HeldBy[] };

export interface LeaseClaim {
  readonly resource: string;
  readonly token: string;
}

/** `lease_expired`: the term ran out and nobody has taken another; `lease_lost`: it is another's, or was ended otherwise. */
export type ClaimRefusal = 'lease_expired' | 'lease_lost';

export type Renewed =
  | {
      readonly refused: null;
      readonly fence: number;
      readonly expiresInMs: number | null;
      readonly renewAfterMs: number;
    }
  | { readonly refused: ClaimRefusal };

export type Released = { readonly refused: null } | { readonly refused: ClaimRefusal };

export type Confirmed =
  | { readonly refused: null; readonly fence: number; readonly confirmedAt: string; readonly data: unknown }
  | { readonly refused: ClaimRefusal };

/**
 * The service, wherever it is. Claims are answered one by one, in their order, in one commit. Throws `Problem` for
 * requests outside `leaseBounds`, and `Unreachable` when no answer could be had: the outcome is open then.
 */
export interface LeaseService {
  /**
   * `key` makes the call repeatable: the same request with it gets the term that the first one was granted, or
   * `lease_expired`, for as long as that is the newest. Asked for the same resources on other terms while it lives, it
   * throws `idempotency_key_reused`.
   */
  acquire(request: AcquireRequest, key: string, signal?: AbortSignal): Promise<Acquired>;
  renew(claims: readonly LeaseClaim[], signal?: AbortSignal): Promise<Renewed[]>;
  release(claims: readonly LeaseClaim[], signal?: AbortSignal): Promise<Released[]>;
  /** Makes the term permanent, until it is released. A repetition gets the first answer. */
  confirm(claim: LeaseClaim, data?: unknown): Promise<Confirmed>;
  /** Work claimed under a lease. */
  readonly work: WorkQueue;
  close(): Promise<void>;
}
