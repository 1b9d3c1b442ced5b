/**
 * Renewals, in a thread of their own: a holder whose event loop is busy for longer than a term keeps its leases all the
 * same. All that are due together share a call. What was learnt is in shared memory at once (`Trust`), and told by
 * message besides.
 */
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { Unreachable, isTransient } from '../problem.ts';
import { type ClaimRefusal, leaseBounds, type LeaseClaim, type LeaseService, type Renewed } from './contract.ts';
import { monotonicMs, Trust, trustedUntilMs } from './trust.ts';

export type ToThread =
  | {
      readonly kind: 'hold';
      readonly id: number;
      readonly claims: readonly LeaseClaim[];
      readonly trust: SharedArrayBuffer;
      readonly renewAtMs: number;
    }
  | { readonly kind: 'drop'; readonly id: number }
  | { readonly kind: 'token'; readonly token: string }
  /** Release these, and say so in this memory: whoever waits for it can't hear messages. */
  | { readonly kind: 'exit'; readonly claims: readonly LeaseClaim[]; readonly done: SharedArrayBuffer };

export type FromThread =
  | { readonly kind: 'ready' }
  | { readonly kind: 'renewed'; readonly id: number; readonly expiresInMs: number | null }
  | { readonly kind: 'lost'; readonly id: number; readonly refused: ClaimRefusal }
  | { readonly kind: 'failed'; readonly id: number; readonly error: string };

interface Held {
  readonly id: number;
  readonly claims: readonly LeaseClaim[];
  readonly trust: Trust;
  renewAtMs: number;
  /** Tries without an answer since the last success. */
  failures: number;
}

/** What is due within this goes along. */
const TOGETHER_MS = 20;
/** A try's share of what trust is left: two more have to fit in. */
const TRY_SHARE = 1 / 4;
const TRY_MIN_MS = 20;
const RETRY_BASE_MS = 25;
const RETRY_MAX_MS = 2_000;

/** The body of a renewing thread; `open` connects it to its service. */
export function renewInThread(open: (options: never, token: () => string) => LeaseService): void {
  const { options, token: firstToken } = workerData as { options: never; token: string };
  let token = firstToken;
  const renewals = new Renewals(
    open(options, () => token),
    (message) => parentPort!.postMessage(message),
  );
  (parentPort as MessagePort).on('message', (message: ToThread) => {
    if (message.kind === 'token') token = message.token;
    else renewals.take(message);
  });
  parentPort!.postMessage({ kind: 'ready' } satisfies FromThread);
}

export class Renewals {
  readonly #service: LeaseService;
  readonly #tell: (message: FromThread) => void;
  readonly #held = new Map<number, Held>();
  #timer: NodeJS.Timeout | undefined;

  constructor(service: LeaseService, tell: (message: FromThread) => void) {
    this.#service = service;
    this.#tell = tell;
  }

  take(message: Exclude<ToThread, { kind: 'token' }>): void {
    if (message.kind === 'exit') {
      void this.#releaseAll(message.claims).finally(() => {
        const done = new Int32Array(message.done);
        Atomics.store(done, 0, 1);
        Atomics.notify(done, 0);
      });
      return;
    }
    if (message.kind === 'drop') this.#held.delete(message.id);
    else {
      const { id, claims, trust, renewAtMs } = message;
      this.#held.set(id, { id, claims, trust: new Trust(trust), renewAtMs, failures: 0 });
    }
    this.#arm();
  }

  #arm(): void {
    clearTimeout(this.#timer);
    let nextMs = Infinity;
    for (const { renewAtMs } of this.#held.values()) nextMs = Math.min(nextMs, renewAtMs);
    if (nextMs === Infinity) return;
    this.#timer = setTimeout(() => this.#renewDue(), Math.max(0, nextMs - monotonicMs()));
  }

  #renewDue(): void {
    const untilMs = monotonicMs() + TOGETHER_MS;
    let set: Held[] = [];
    let items = 0;
    for (const held of this.#held.values()) {
      if (held.renewAtMs > untilMs) continue;
      // Past its trust a lease is lost for its holder: whatever the service may think, nobody renews it any more.
      if (held.trust.loseIfOver()) {
        this.#held.delete(held.id);
        continue;
      }
      if (items + held.claims.length > leaseBounds.setItems.max) {
        void this.#renew(set);
        [set, items] = [[], 0];
      }
      set.push(held);
      items += held.claims.length;
    }
    if (set.length > 0) void this.#renew(set);
    this.#arm();
  }

  async #renew(set: readonly Held[]): Promise<void> {
    const startedMs = monotonicMs();
    const tryMs = Math.max(TRY_MIN_MS, Math.min(...set.map(({ trust }) => trust.leftMs())) * TRY_SHARE);
    // Until then no other try of these begins; a late answer still counts from where its try began.
    for (const held of set) held.renewAtMs = startedMs + tryMs;
    try {
      const answers = await this.#service.renew(
        set.flatMap(({ claims }) => claims),
        AbortSignal.timeout(Math.ceil(2 * tryMs)),
      );
      let next = 0;
      for (const held of set) {
        this.#answered(held, startedMs, answers.slice(next, next + held.claims.length));
        next += held.claims.length;
      }
    } catch (error) {
      for (const held of set) this.#failed(held, error);
    }
    this.#arm();
  }

  /** Of a set of resources the shortest counts, and one lost loses all. */
  #answered(held: Held, startedMs: number, answers: readonly Renewed[]): void {
    if (this.#held.get(held.id) !== held) return;
    held.failures = 0;
    held.renewAtMs = Infinity;
    let shortestMs = Infinity;
    for (const answer of answers) {
      if (answer.refused !== null) return this.#lost(held, answer.refused);
      shortestMs = Math.min(shortestMs, answer.expiresInMs ?? Infinity);
      held.renewAtMs = Math.min(held.renewAtMs, startedMs + answer.renewAfterMs);
    }
    // Confirmed, without an end: as good as for ever, and looked at again when the service says so.
    const expiresInMs = shortestMs === Infinity ? leaseBounds.ttlMs.max : shortestMs;
    if (!held.trust.extend(trustedUntilMs(startedMs, expiresInMs))) this.#held.delete(held.id);
    else this.#tell({ kind: 'renewed', id: held.id, expiresInMs: shortestMs === Infinity ? null : shortestMs });
  }

  #lost(held: Held, refused: ClaimRefusal): void {
    held.trust.lose();
    this.#held.delete(held.id);
    this.#tell({ kind: 'lost', id: held.id, refused });
  }

  /** Tried again, with a random pause, for as long as there is trust: so the number of tries is bounded. */
  #failed(held: Held, error: unknown): void {
    held.failures += 1;
    const pauseMs = Math.random() * Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** held.failures);
    held.renewAtMs = monotonicMs() + Math.max(RETRY_BASE_MS, Math.min(pauseMs, held.trust.leftMs() * TRY_SHARE));
    const isExpected = error instanceof Unreachable || isTransient(error);
    this.#tell({ kind: 'failed', id: held.id, error: isExpected ? (error as Error).message : String(error) });
  }

  async #releaseAll(claims: readonly LeaseClaim[]): Promise<void> {
    this.#held.clear();
    const { max } = leaseBounds.setItems;
    const sets = Array.from({ length: Math.ceil(claims.length / max) }, (_, i) => claims.slice(i * max, (i + 1) * max));
    await Promise.allSettled(sets.map((set) => this.#service.release(set)));
  }
}
