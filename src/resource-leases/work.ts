/** Work claimed under a lease, straight on the database. */
import { refuse, workProblem } from '../client/leases/bounds.ts';
import type {
  ClaimedWork,
  FailOutcome,
  NewWork,
  WorkClaim,
  WorkFailure,
  WorkOutcome,
  WorkQueue,
} from '../client/leases/work.ts';
import type { Sql } from '../database/connection.ts';
import { newLeaseToken } from '../leasing/ids.ts';

export interface WorkObserver {
  /** A claim that was lost asked for something, and was refused. */
  readonly lost: (queue: string) => void;
}

const ERROR_CHARS_MAX = 1_000;

export class DatabaseWork implements WorkQueue {
  readonly #hot: { readonly sql: Sql };
  readonly #observer: WorkObserver;

  constructor(sql: Sql, observer: WorkObserver = { lost: () => {} }) {
    this.#hot = { sql };
    this.#observer = observer;
  }

  async add(queue: string, items: readonly NewWork[]): Promise<number> {
    refuse(workProblem.add(queue, items));
    const [row] = await this.#hot.sql<{ added: number }[]>`select add_work(${queue},
      ${items.map(({ key }) => key)}::text[], ${items.map(({ group }) => group ?? null)}::text[],
      ${items.map(({ payload }) => JSON.stringify(payload))}::text[],
      ${items.map(({ delayMs }) => delayMs ?? 0)}::bigint[]) as added`;
    return row!.added;
  }

  async next(queue: string, { max, ttlMs }: { readonly max: number; readonly ttlMs: number }): Promise<ClaimedWork[]> {
    refuse(workProblem.next(queue, max, ttlMs));
    const tokens = Array.from({ length: max }, newLeaseToken);
    const rows = await this.#hot.sql<
      { ord: number; key: string; group_name: string | null; payload: unknown; attempt: number }[]
    >`select ord, key, group_name, payload, attempt
      from next_work(${queue}, ${max}::int, ${ttlMs}::bigint, ${tokens}::text[]) order by ord`;
    return rows.map(({ ord, key, group_name: group, payload, attempt }) => ({
      queue,
      key,
      token: tokens[ord - 1]!,
      group,
      payload,
      attempt,
      expiresInMs: ttlMs,
    }));
  }

  async heartbeat(claims: readonly WorkClaim[], ttlMs: number): Promise<WorkOutcome[]> {
    refuse(workProblem.claims(claims, ttlMs));
    const { queues, keys, tokens } = columns(claims);
    return this.#outcomes(
      claims,
      await this.#hot.sql`select refused from heartbeat_work(${queues}::text[], ${keys}::text[], ${tokens}::text[],
        ${ttlMs}::bigint) order by ord`,
    );
  }

  async complete(claims: readonly WorkClaim[]): Promise<WorkOutcome[]> {
    refuse(workProblem.claims(claims));
    const { queues, keys, tokens } = columns(claims);
    return this.#outcomes(
      claims,
      await this.#hot
        .sql`select refused from complete_work(${queues}::text[], ${keys}::text[], ${tokens}::text[]) order by ord`,
    );
  }

  async fail(claim: WorkClaim, failure: WorkFailure): Promise<FailOutcome> {
    refuse(workProblem.claims([claim]) ?? workProblem.failure(failure));
    const { error, retryInMs, attemptsMax } = failure;
    const { queue, key, token } = claim;
    // Whatever a worker's error says: it is for people, and shall not keep the failure from being told.
    const kept = error.slice(0, ERROR_CHARS_MAX).toWellFormed().replaceAll('\0', '\u{FFFD}');
    const [row] = await this.#hot.sql<{ refused: 'claim_lost' | null; dead: boolean }[]>`
      select refused, dead from fail_work(${queue}, ${key}, ${token}, ${kept},
        ${retryInMs}::bigint, ${attemptsMax}::int)`;
    const { refused, dead } = row!;
    if (refused !== null) this.#observer.lost(queue);
    return { refused, dead };
  }

  async putBack(claims: readonly WorkClaim[]): Promise<WorkOutcome[]> {
    refuse(workProblem.claims(claims));
    const { queues, keys, tokens } = columns(claims);
    return this.#outcomes(
      claims,
      await this.#hot
        .sql`select refused from put_back_work(${queues}::text[], ${keys}::text[], ${tokens}::text[]) order by ord`,
    );
  }

  #outcomes(claims: readonly WorkClaim[], rows: readonly { refused?: 'claim_lost' | null }[]): WorkOutcome[] {
    return rows.map(({ refused = null }, i) => {
      if (refused !== null) this.#observer.lost(claims[i]!.queue);
      return { refused };
    });
  }
}

const columns = (claims: readonly WorkClaim[]) => ({
  queues: claims.map(({ queue }) => queue),
  keys: claims.map(({ key }) => key),
  tokens: claims.map(({ token }) => token),
});
