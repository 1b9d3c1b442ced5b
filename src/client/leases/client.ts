import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { Worker } from 'node:worker_threads';
import type {
  ClaimRefusal,
  Confirmed,
  HeldBy,
  LeaseClaim,
  LeaseService,
  LeaseTarget,
  LeaseTermOptions,
  Renewed,
} from './contract.ts';
import { leaseBounds } from './contract.ts';
import { Lease, type LeaseKeeper, outcomeOf } from './lease.ts';
import type { FromThread, ToThread } from './renewals.ts';
import type { LeaseSource } from './source.ts';
import { monotonicMs, Trust, trustedUntilMs } from './trust.ts';

export interface AcquireOptions extends LeaseTermOptions {
  /** For people; the client's own name unless given. */
  readonly holder?: string;
  /** How long to queue, of any length: the service is asked again and again. */
  readonly waitMs?: number;
  readonly priority?: number;
  /** Gives up waiting; rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** False: only `lease.renew()` renews. */
  readonly autoRenew?: boolean;
  readonly formerToken?: string;
}

/** Others have it: `held` says who, and for how long as far as is known. */
export class LeaseNotAcquired extends Error {
  override name = 'LeaseNotAcquired';
  readonly held: readonly HeldBy[];

  constructor(held: readonly HeldBy[]) {
    const holders = held.map(
      ({ resource, holder, forMs }) => `${resource} by ${holder}${forMs === null ? '' : ` for ${forMs} ms`}`,
    );
    super(`held: ${holders.join(', ') || 'others are before us'}`);
    this.held = held;
  }
}
import type { WorkQueue } from './work.ts';

export interface LeaseClientOptions {
  /** How the holder is called unless an acquire says otherwise: host and process by default. */
  readonly holder?: string;
}

const TOKEN_EVERY_MS = 20_000;
const RELEASE_DEADLINE_MS = 2_000;
const EXIT_RELEASE_MS = 2_000;
/** A grant that took longer than this share of its term is renewed before it is handed out. */
const STALE_GRANT_SHARE = 0.1;

/**
 * Leases of any resource, for this process: got, renewed in the background, and given back.
 *
 *     await using lease = await leases.acquire('report/nightly', { ttlMs: 10_000, waitMs: 60_000 });
 *
 * Renewals run in a thread of their own, so that a busy event loop doesn't starve them. At the end of the process, by
 * `process.exit`, its natural end, or SIGTERM if nobody else handles it, what is held is released.
 */
export class LeaseClient implements AsyncDisposable {
  readonly #source: LeaseSource;
  readonly #service: LeaseService;
  /** Work claimed under a lease: the same service, and no thread. */
  readonly work: WorkQueue;
  readonly #holder: string;
  readonly #leases = new Map<number, Lease>();
  readonly #keeper: LeaseKeeper = {
    renew: (lease) => this.#renew(lease),
    confirm: (claim, data) => this.#confirm(claim, data),
    release: (lease) => this.#release(lease),
  };
  /** Opened with the first lease that it is to renew. */
  #thread: Promise<Worker> | null = null;
  /** The same, once it is there. */
  #worker: Worker | null = null;
  #nextId = 1;
  #isClosed = false;

  constructor(source: LeaseSource, options: LeaseClientOptions = {}) {
    this.#source = source;
    this.#service = source.open();
    this.work = this.#service.work;
    this.#holder = options.holder ?? `${hostname()}/${process.pid}`;
  }

  /**
   * Throws `LeaseNotAcquired` when it is held and the wait is over, `Unreachable` when the service couldn't be asked,
   * `Problem` for what it refuses otherwise, and the signal's reason when aborted.
   */
  async acquire(target: string | LeaseTarget, options: AcquireOptions): Promise<Lease> {
    const { signal, autoRenew = true, waitMs = 0, holder = this.#holder, ...terms } = options;
    const what = typeof target === 'string' ? { resource: target } : target;
    const endsAtMs = monotonicMs() + waitMs;
    // Before the term begins: a thread's start is long for a short one.
    if (autoRenew) await (this.#thread ??= this.#startThread());
    for (;;) {
      signal?.throwIfAborted();
      const startedMs = monotonicMs();
      const leftMs = Math.min(leaseBounds.waitMs.max, Math.max(0, Math.ceil(endsAtMs - startedMs)));
      const request = { ...what, ...terms, holder, waitMs: leftMs };
      const answer = await this.#service.acquire(request, randomUUID(), signal);
      if (answer.refused === null) {
        const lease = await this.#held(answer.leases, startedMs, options.ttlMs, autoRenew);
        // Told to give up while the grant was on its way: it goes back.
        if (lease !== null && signal?.aborted === true) await lease.release();
        else if (lease !== null) return lease;
      } else if (monotonicMs() >= endsAtMs) throw new LeaseNotAcquired(answer.held);
    }
  }

  /** Runs `work` while the lease is held, and releases it. Rejects with `LeaseLost` when it was lost meanwhile. */
  async withLease<Result>(
    target: string | LeaseTarget,
    options: AcquireOptions,
    work: (lease: Lease) => Promise<Result>,
  ): Promise<Result> {
    await using lease = await this.acquire(target, options);
    const result = await work(lease);
    lease.assertHeld();
    return result;
  }

  /** Releases what is held and not confirmed, and ends the thread. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await Promise.all([...this.#leases.values()].map((lease) => lease[Symbol.asyncDispose]()));
    const thread = await this.#thread;
    process.off('exit', this.#onExit).off('SIGTERM', this.#onTerm);
    await thread?.terminate();
    await this.#service.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Null when it was over before it could be handed out. */
  async #held(grants: Lease['grants'], startedMs: number, ttlMs: number, autoRenew: boolean): Promise<Lease | null> {
    let fromMs = startedMs;
    let expiresInMs = Math.min(...grants.map((each) => each.expiresInMs));
    if (monotonicMs() - startedMs > ttlMs * STALE_GRANT_SHARE) {
      // The call waited, and the term began at some time since it did: only a call that doesn't wait says when.
      fromMs = monotonicMs();
      const renewed = shortest(await this.#service.renew(grants));
      if (typeof renewed === 'string') return null;
      expiresInMs = renewed;
    }
    const trust = Trust.until(trustedUntilMs(fromMs, expiresInMs));
    const lease = new Lease(this.#nextId++, grants, trust, this.#keeper);
    this.#leases.set(lease.id, lease);
    lease.signal.addEventListener('abort', () => this.#forget(lease), { once: true });
    if (autoRenew) {
      const renewAtMs = fromMs + Math.min(...grants.map((each) => each.renewAfterMs));
      await this.#tell({ kind: 'hold', id: lease.id, claims: lease.claims, trust: trust.memory, renewAtMs });
    }
    return lease;
  }

  #forget({ id }: Lease): void {
    this.#leases.delete(id);
    this.#worker?.postMessage({ kind: 'drop', id } satisfies ToThread);
  }

  async #renew(lease: Lease): Promise<void> {
    const startedMs = monotonicMs();
    const renewed = shortest(await this.#service.renew(lease.claims));
    if (typeof renewed === 'string') lease.lose(outcomeOf(renewed));
    else lease.extend(trustedUntilMs(startedMs, renewed), renewed);
  }

  #confirm(claim: LeaseClaim, data: unknown): Promise<Confirmed> {
    return this.#service.confirm(claim, data);
  }

  async #release(lease: Lease): Promise<void> {
    await this.#service.release(lease.claims, AbortSignal.timeout(RELEASE_DEADLINE_MS)).catch(() => {});
  }

  // --- the thread

  async #tell(message: ToThread): Promise<void> {
    (await (this.#thread ??= this.#startThread())).postMessage(message);
  }

  async #startThread(): Promise<Worker> {
    const { thread, options, token } = this.#source;
    const worker = new Worker(thread, { workerData: { options, token: (await token?.()) ?? '' } });
    const ready = new Promise<void>((resolve, reject) => worker.once('message', resolve).once('error', reject));
    worker.on('message', (message: FromThread) => this.#hear(message));
    // Without its thread nothing is renewed: the leases run out, and say so.
    worker.once('error', () => {
      this.#thread = this.#worker = null;
      process.off('exit', this.#onExit).off('SIGTERM', this.#onTerm);
    });
    // First in the row: a `once` of somebody else's is gone from the count when it has been called.
    process.on('exit', this.#onExit).prependListener('SIGTERM', this.#onTerm);
    this.#worker = worker;
    if (token !== undefined) this.#keepTokenFresh(worker, token);
    await ready;
    // Until here it had kept the process alive, for whoever awaits it; leases alone don't.
    worker.unref();
    return worker;
  }

  #keepTokenFresh(worker: Worker, token: () => string | Promise<string>): void {
    const timer = setInterval(() => {
      Promise.resolve(token()).then(
        (fresh) => worker.postMessage({ kind: 'token', token: fresh } satisfies ToThread),
        // The old one may last; when it doesn't, renewals are refused, and that is heard.
        () => {},
      );
    }, TOKEN_EVERY_MS).unref();
    worker.once('exit', () => clearInterval(timer));
  }

  #hear(message: FromThread): void {
    const lease = message.kind === 'ready' ? undefined : this.#leases.get(message.id);
    if (lease === undefined) return;
    if (message.kind === 'renewed') lease.renewed(message.expiresInMs);
    if (message.kind === 'lost') lease.lose(outcomeOf(message.refused));
  }

  /** Nothing asynchronous happens any more in this thread, but it can wait for the other. */
  readonly #onExit = (): void => {
    if (this.#leases.size === 0 || this.#worker === null) return;
    const done = new SharedArrayBuffer(4);
    const claims = [...this.#leases.values()].flatMap((lease) => (lease.isConfirmed ? [] : lease.claims));
    this.#worker.postMessage({ kind: 'exit', claims, done } satisfies ToThread);
    Atomics.wait(new Int32Array(done), 0, 0, EXIT_RELEASE_MS);
  };

  readonly #onTerm = (): void => {
    // Who else listens decides when the process ends, and `exit` follows.
    if (process.listenerCount('SIGTERM') > 1) return;
    process.off('SIGTERM', this.#onTerm);
    void this.close().finally(() => process.kill(process.pid, 'SIGTERM'));
  };
}

/** What is left of the shortest of a set, or how one of it was refused. Confirmed ones have no end. */
function shortest(answers: readonly Renewed[]): number | ClaimRefusal {
  let leftMs: number = leaseBounds.ttlMs.max;
  for (const answer of answers) {
    if (answer.refused !== null) return answer.refused;
    leftMs = Math.min(leftMs, answer.expiresInMs ?? Infinity);
  }
  return leftMs;
}
