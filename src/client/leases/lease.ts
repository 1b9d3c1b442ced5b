import type { ClaimRefusal, Confirmed, GrantedLease, LeaseClaim } from './contract.ts';
import type { Trust } from './trust.ts';

/**
 * Why a lease is no longer held. `taken`: another has it, or somebody ended it; `expired`: it ran out, and was
 * nobody's when the service was asked; `unreachable`: its time ran out while nobody answered; `released`: by us.
 */
export type LossOutcome = 'taken' | 'expired' | 'unreachable' | 'released';

const said: Readonly<Record<LossOutcome, string>> = {
  taken: 'another has it, or somebody ended it',
  expired: 'it expired',
  unreachable: 'its time ran out while the service didn’t answer',
  released: 'it was released',
};

export class LeaseLost extends Error {
  override name = 'LeaseLost';
  readonly outcome: LossOutcome;
  readonly resources: readonly string[];

  constructor(outcome: LossOutcome, resources: readonly string[]) {
    super(`${resources.join(', ')}: ${said[outcome]}`);
    this.outcome = outcome;
    this.resources = resources;
  }
}

export const outcomeOf = (refused: ClaimRefusal): LossOutcome => (refused === 'lease_lost' ? 'taken' : 'expired');

/** What a lease needs of the client that got it. */
export interface LeaseKeeper {
  renew(lease: Lease): Promise<void>;
  confirm(claim: LeaseClaim, data: unknown): Promise<Confirmed>;
  /** Best effort, bounded; never rejects. */
  release(lease: Lease): Promise<void>;
}

/** Timers may fire a little early. */
const EARLY_MS = 1;

/**
 * A term that this process holds, until `signal` says otherwise.
 *
 * What is believed of it is the process's own: from the moment the last successful call about it began, on a clock
 * that nobody sets, plus the term, less a margin. So the signal fires before others can have it, whether or not the
 * network answers, as long as this process runs at all; a process that was stopped learns of it at `assertHeld`, and
 * what it writes after that is the fence's to refuse.
 */
export class Lease implements AsyncDisposable {
  /** Each resource of the set with its own fence; one for a lease of one resource. */
  readonly grants: readonly GrantedLease[];
  /** What the client knows it by. */
  readonly id: number;
  readonly #trust: Trust;
  readonly #keeper: LeaseKeeper;
  readonly #lost = new AbortController();
  #atRisk = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #termMs: number;
  #released: Promise<void> | null = null;
  #isConfirmed = false;

  constructor(id: number, grants: readonly GrantedLease[], trust: Trust, keeper: LeaseKeeper) {
    this.id = id;
    this.grants = grants;
    this.#trust = trust;
    this.#keeper = keeper;
    this.#termMs = Math.min(...grants.map(({ expiresInMs }) => expiresInMs));
    this.#watch();
  }

  get resource(): string {
    return this.grants[0]!.resource;
  }

  /** Orders the terms of the resource: present it with every write that a later holder could have overtaken. */
  get fence(): number {
    return this.grants[0]!.fence;
  }

  get token(): string {
    return this.grants[0]!.token;
  }

  get resources(): string[] {
    return this.grants.map(({ resource }) => resource);
  }

  /** Whether it was made permanent: the end of its scope, its client or its process doesn't give it back any more. */
  get isConfirmed(): boolean {
    return this.#isConfirmed;
  }

  get claims(): LeaseClaim[] {
    return this.grants.map(({ resource, token }) => ({ resource, token }));
  }

  /** Aborted, with a `LeaseLost`, once the lease can't be believed in any more. */
  get signal(): AbortSignal {
    this.#look();
    return this.#lost.signal;
  }

  /** Aborted while a renewal is overdue, with a third of the term left; a new one once it was renewed after all. */
  get atRisk(): AbortSignal {
    this.#look();
    return this.#atRisk.signal;
  }

  /** Milliseconds for which the lease may still be believed in. */
  get trustedForMs(): number {
    return this.#look() ? 0 : this.#trust.leftMs();
  }

  /** Throws `LeaseLost` when the lease is lost, though nothing has had the time to say so. */
  assertHeld(): void {
    if (this.#look()) throw this.#lost.signal.reason;
  }

  /** By hand, for leases without `autoRenew`. Throws `LeaseLost` when refused, `Unreachable` when nobody answers. */
  async renew(): Promise<void> {
    this.assertHeld();
    await this.#keeper.renew(this);
    this.assertHeld();
  }

  /** Makes the (only) resource's reservation permanent. Throws `LeaseLost` when it is too late. */
  async confirm(
    data?: unknown,
  ): Promise<{ readonly fence: number; readonly confirmedAt: string; readonly data: unknown }> {
    const answer = await this.#keeper.confirm(this.claims[0]!, data);
    if (answer.refused === null) {
      this.#isConfirmed = true;
      return answer;
    }
    this.lose(outcomeOf(answer.refused));
    throw this.#lost.signal.reason;
  }

  /** Gives it back, so that the next can have it at once. Best effort: what can't be given back runs out. */
  release(): Promise<void> {
    this.#released ??= (async () => {
      const isHeld = !this.#look();
      this.lose('released');
      if (isHeld) await this.#keeper.release(this);
    })();
    return this.#released;
  }

  /** The end of its scope: given back, or only let go of when it was confirmed. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#isConfirmed) this.lose('released');
    else await this.release();
  }

  /** The keeper's news: it may be believed in until then. */
  extend(untilMs: number, expiresInMs: number): void {
    if (this.#trust.extend(untilMs)) this.renewed(expiresInMs);
  }

  /** The thread's news, which has extended the trust by itself. */
  renewed(expiresInMs: number | null): void {
    if (expiresInMs !== null) this.#termMs = expiresInMs;
    if (this.#atRisk.signal.aborted && !this.#lost.signal.aborted) this.#atRisk = new AbortController();
    this.#watch();
  }

  lose(outcome: LossOutcome): void {
    if (this.#lost.signal.aborted) return;
    clearTimeout(this.#timer);
    this.#trust.lose();
    const loss = new LeaseLost(outcome, this.resources);
    this.#lost.abort(loss);
    this.#atRisk.abort(loss);
  }

  /** True when it is lost. */
  #look(): boolean {
    if (this.#lost.signal.aborted) return true;
    if (!this.#trust.loseIfOver()) return false;
    this.lose('unreachable');
    return true;
  }

  #watch(): void {
    clearTimeout(this.#timer);
    if (this.#look()) return;
    const leftMs = this.#trust.leftMs();
    const riskInMs = leftMs - this.#termMs / 3;
    if (riskInMs <= 0 && !this.#atRisk.signal.aborted) this.#atRisk.abort(new Error('a renewal is overdue'));
    const nextMs = riskInMs > 0 ? riskInMs : leftMs;
    this.#timer = setTimeout(() => this.#watch(), nextMs + EARLY_MS).unref();
  }
}
