/** The lease service straight on the database: what the REST routes call, and what a process near the database may. */
import { createHmac } from 'node:crypto';
import type {
  Acquired,
  AcquireRequest,
  Confirmed,
  GrantedLease,
  HeldBy,
  LeaseClaim,
  LeaseService,
  Released,
  Renewed,
} from '../client/leases/contract.ts';
import { refuse, requestProblem } from '../client/leases/bounds.ts';
import type { LeaseSource } from '../client/leases/source.ts';
import { Problem } from '../client/problem.ts';
import { connectDatabase, type Database } from '../database/connection.ts';
import { GroupCommit } from '../leasing/group-commit.ts';
import { type Attempt, Queue } from './queue.ts';
import * as transitions from './transitions.ts';
import { DatabaseWork } from './work.ts';

export interface LeaseObserver {
  /** Commands judged; `outcome` is `applied`, `repeated` or the refusal. */
  readonly judged: (command: 'acquire' | 'renew' | 'release' | 'confirm' | 'break', outcome: string) => void;
  /** From the end of the time others had to wait for to the grant of a queued acquire, or the whole wait. */
  readonly waited: (ms: number) => void;
  /** A claim of work that was lost asked for something, and was refused. */
  readonly lostClaim: (queue: string) => void;
  readonly setSize: (command: 'acquire' | 'renew' | 'release', items: number) => void;
}

const unobserved: LeaseObserver = { judged: () => {}, waited: () => {}, lostClaim: () => {}, setSize: () => {} };

/** Leases know no regions: one lane of sets for each command. */
const LANE = 0;
/** A renewal is advised within these shares of the term: two more may fail before its end, and holders drift apart. */
const RENEW_FROM = 1 / 4;
const RENEW_TO = 1 / 3;

export interface DatabaseLeasesOptions {
  readonly database: Database;
  /** Makes tokens from keys: whoever knows a key and this can find the token, so it is the service's own. */
  readonly secret: string;
  readonly observer?: LeaseObserver;
  readonly onError?: (error: unknown) => void;
  readonly random?: () => number;
}

/** Leases straight on the database, for processes that may have its URL and the service's secret. */
export const databaseLeases = (url: string, secret: string): LeaseSource => ({
  open: () => connectLeases(url, secret),
  thread: new URL('database-thread.ts', import.meta.url),
  options: { url, secret },
});

/** On a database of the URL, with connections of its own. */
export function connectLeases(url: string, secret: string, onError: (error: unknown) => void = () => {}): LeaseService {
  const database = connectDatabase(url, { applicationName: 'cabrank leases', hotConnections: 2, coldConnections: 1 });
  const leases = new DatabaseLeases({ database, secret, onError });
  return {
    acquire: (...asked) => leases.acquire(...asked),
    renew: (claims) => leases.renew(claims),
    release: (claims) => leases.release(claims),
    confirm: (...asked) => leases.confirm(...asked),
    work: leases.work,
    close: async () => {
      await leases.close();
      await database.close();
    },
  };
}

export class DatabaseLeases implements LeaseService {
  readonly work: DatabaseWork;
  readonly #options: DatabaseLeasesOptions;
  readonly #observer: LeaseObserver;
  readonly #onError: (error: unknown) => void;
  readonly #queue: Queue;
  readonly #acquires: GroupCommit<transitions.AcquireAsk, AcquireAnswer>;
  readonly #renewals: GroupCommit<LeaseClaim, transitions.RenewRow>;
  readonly #releases: GroupCommit<LeaseClaim, transitions.ReleaseRow>;

  constructor(options: DatabaseLeasesOptions) {
    const { hot, cold } = options.database;
    const observer = options.observer ?? unobserved;
    this.#options = options;
    this.#observer = observer;
    this.#onError = options.onError ?? (() => {});
    this.work = new DatabaseWork(hot, { lost: observer.lostClaim });
    this.#queue = new Queue(cold, this.#onError);
    this.#acquires = new GroupCommit({
      keyOf: () => null,
      run: async (_lane, asks, wait) => {
        observer.setSize('acquire', asks.length);
        return answersOf(await transitions.acquireLeases(hot, asks, wait), asks.length);
      },
    });
    const keyOf = ({ resource, token }: LeaseClaim): string => `${token} ${resource}`;
    this.#renewals = new GroupCommit({
      keyOf,
      run: async (_lane, claims, wait) => {
        observer.setSize('renew', claims.length);
        return transitions.renewLeases(hot, claims, wait);
      },
    });
    this.#releases = new GroupCommit({
      keyOf,
      run: async (_lane, claims, wait) => {
        observer.setSize('release', claims.length);
        return transitions.releaseLeases(hot, claims, wait);
      },
    });
  }

  async acquire(request: AcquireRequest, key: string, signal?: AbortSignal): Promise<Acquired> {
    refuse(requestProblem.acquire(request));
    const token = this.#tokenOf(key, request);
    const ask = async (ticket: number | null): Promise<AcquireAnswer> => {
      const answer = await this.#acquires.submit(LANE, { request, token, ticket });
      if (answer.refused === 'busy') throw new Problem({ code: 'busy', status: 503, retryAfterMs: 1_000 });
      return answer;
    };
    const first = await ask(null);
    const waitMs = request.waitMs ?? 0;
    const answer =
      first.refused !== 'held' || waitMs === 0 ? first : await this.#wait(request, waitMs, token, ask, signal);
    this.#observer.judged('acquire', answer.refused ?? (answer.applied ? 'applied' : 'repeated'));
    return this.#acquired(answer, token);
  }

  async renew(claims: readonly LeaseClaim[]): Promise<Renewed[]> {
    refuse(requestProblem.claims(claims));
    const rows = await this.#judge('renew', claims, this.#renewals, transitions.renewLeases);
    return rows.map((row): Renewed =>
      row.refused === null
        ? {
            refused: null,
            fence: row.fence,
            expiresInMs: wholeMs(row.left_ms),
            renewAfterMs: this.#renewAfter(row.left_ms),
          }
        : { refused: row.refused },
    );
  }

  async release(claims: readonly LeaseClaim[]): Promise<Released[]> {
    refuse(requestProblem.claims(claims));
    const rows = await this.#judge('release', claims, this.#releases, transitions.releaseLeases);
    return rows.map(({ refused }) => ({ refused }));
  }

  async confirm(claim: LeaseClaim, data?: unknown): Promise<Confirmed> {
    refuse(requestProblem.claims([claim]) ?? requestProblem.data(data));
    const row = await transitions.confirmLease(this.#options.database.hot, claim, data);
    this.#observer.judged('confirm', row.refused ?? (row.applied ? 'applied' : 'repeated'));
    if (row.refused !== null) return { refused: row.refused };
    return { refused: null, fence: row.fence, confirmedAt: row.confirmed_at.toISOString(), data: row.data };
  }

  async close(): Promise<void> {
    await this.#queue.close();
  }

  /**
   * The same key finds the same token for the same resources, so that a repeated acquire is recognised by what it holds.
   * Keys that are recorded, as those of rides are, would be known for longer, at the price of a write more for each grant.
   */
  #tokenOf(key: string, request: AcquireRequest): string {
    const asked = [key, 'allOf' in request ? 'all' : 'any', ...transitions.resourcesOf(request)];
    return createHmac('sha256', this.#options.secret)
      .update('lease\0')
      .update(JSON.stringify(asked))
      .digest()
      .subarray(0, 16)
      .toString('base64url');
  }

  async #wait(
    request: AcquireRequest,
    waitMs: number,
    token: string,
    ask: (ticket: number) => Promise<AcquireAnswer>,
    signal: AbortSignal | undefined,
  ): Promise<AcquireAnswer> {
    const startedMs = performance.now();
    const answer = await this.#queue.wait<AcquireAnswer>({
      resources: transitions.resourcesOf(request),
      priority: request.priority ?? 0,
      waitMs,
      signal,
      attempt: async (ticket): Promise<Attempt<AcquireAnswer>> => {
        const answered = await ask(ticket);
        if (answered.refused !== 'held') return { isOver: true, answer: answered };
        return { isOver: false, answer: answered, againInMs: nextChangeMs(request, answered) };
      },
      undo: ({ refused, rows }) => {
        if (refused !== null) return;
        const claims = rows.map(({ resource }) => ({ resource, token }));
        transitions.releaseLeases(this.#options.database.hot, claims, true).catch(this.#onError);
      },
    });
    if (answer.refused === null) this.#observer.waited(performance.now() - startedMs);
    return answer;
  }

  #acquired({ refused, rows }: AcquireAnswer, token: string): Acquired {
    if (refused === null) {
      return {
        refused,
        leases: rows.map((row): GrantedLease => ({
          resource: row.resource,
          holder: row.holder!,
          token,
          fence: row.fence,
          expiresInMs: wholeMs(row.left_ms) ?? 0,
          renewAfterMs: this.#renewAfter(row.left_ms),
        })),
      };
    }
    if (refused === 'idempotency_key_reused') throw new Problem({ code: refused, status: 422 });
    const held = rows.flatMap(({ resource, holder, fence, left_ms }): HeldBy[] =>
      holder === null ? [] : [{ resource, holder, fence, forMs: wholeMs(left_ms) }],
    );
    return { refused: refused === 'lease_expired' ? refused : 'held', held };
  }

  /** One claim shares a set with whoever else comes; several are a set of their own. */
  async #judge<Row extends { refused: string | null; applied: boolean }>(
    command: 'renew' | 'release',
    claims: readonly LeaseClaim[],
    lane: GroupCommit<LeaseClaim, Row>,
    alone: (sql: Database['hot'], claims: readonly LeaseClaim[], wait: boolean) => Promise<Row[]>,
  ): Promise<(Row & { refused: Exclude<Row['refused'], 'busy'> })[]> {
    const rows =
      claims.length === 1
        ? [await lane.submit(LANE, claims[0]!)]
        : await alone(this.#options.database.hot, claims, true);
    for (const { refused, applied } of rows)
      this.#observer.judged(command, refused ?? (applied ? 'applied' : 'repeated'));
    if (rows.some(({ refused }) => refused === 'busy'))
      throw new Problem({ code: 'busy', status: 503, retryAfterMs: 1_000 });
    return rows as (Row & { refused: Exclude<Row['refused'], 'busy'> })[];
  }

  #renewAfter(leftMs: number | null): number {
    const random = (this.#options.random ?? Math.random)();
    return Math.floor((leftMs ?? 86_400_000) * (RENEW_FROM + random * (RENEW_TO - RENEW_FROM)));
  }
}

interface AcquireAnswer {
  readonly refused: transitions.AcquireRow['refused'];
  readonly applied: boolean;
  readonly rows: readonly transitions.AcquireRow[];
}

function answersOf(rows: readonly transitions.AcquireRow[], asks: number): AcquireAnswer[] {
  const byAsk = Array.from({ length: asks }, (): transitions.AcquireRow[] => []);
  for (const row of rows) byAsk[row.ord - 1]!.push(row);
  return byAsk.map((own) => ({ refused: own[0]!.refused, applied: own[0]!.applied, rows: own }));
}

/** When something may have changed without a call: of any one the first end, of all of them the last. */
function nextChangeMs(request: AcquireRequest, { rows }: AcquireAnswer): number | null {
  const ends = rows.map(({ left_ms }) => left_ms ?? Infinity);
  const nextMs = 'allOf' in request ? Math.max(...ends) : Math.min(...ends);
  return nextMs === Infinity ? null : nextMs;
}

/** Downwards: a client never counts on more than there is. */
const wholeMs = (ms: number | null): number | null => (ms === null ? null : Math.max(0, Math.floor(ms)));
