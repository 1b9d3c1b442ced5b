/** Work claimed under a lease, over HTTP. */
import type { Rest } from '../rest.ts';
import type { ClaimedWork, FailOutcome, NewWork, WorkClaim, WorkFailure, WorkOutcome, WorkQueue } from './work.ts';

/** What the service keeps of it. */
const ERROR_CHARS_MAX = 1_000;

export class HttpWork implements WorkQueue {
  readonly #rest: Rest;

  constructor(rest: Rest) {
    this.#rest = rest;
  }

  async add(queue: string, items: readonly NewWork[]): Promise<number> {
    // Repeated, it may count as old what its first try had added.
    return (await this.#post<{ added: number }>(`${queuePath(queue)}/items`, { items })).added;
  }

  async next(queue: string, options: { readonly max: number; readonly ttlMs: number }): Promise<ClaimedWork[]> {
    const path = `${queuePath(queue)}/next`;
    const call = { method: 'POST', path, body: options, repeatable: false } as const;
    const { items } = await this.#rest.call<{ items: Omit<ClaimedWork, 'queue'>[] }>(call);
    return items.map((item) => ({ queue, ...item }));
  }

  heartbeat(claims: readonly WorkClaim[], ttlMs: number): Promise<WorkOutcome[]> {
    return this.#outcomes('heartbeat', { claims: claims.map(claimOf), ttlMs });
  }

  complete(claims: readonly WorkClaim[]): Promise<WorkOutcome[]> {
    return this.#outcomes('complete', { claims: claims.map(claimOf) });
  }

  fail(claim: WorkClaim, { error, retryInMs, attemptsMax }: WorkFailure): Promise<FailOutcome> {
    return this.#post('/v1/claims/fail', {
      ...claimOf(claim),
      error: error.slice(0, ERROR_CHARS_MAX),
      retryInMs,
      attemptsMax,
    });
  }

  putBack(claims: readonly WorkClaim[]): Promise<WorkOutcome[]> {
    return this.#outcomes('put-back', { claims: claims.map(claimOf) });
  }

  async #outcomes(command: string, body: object): Promise<WorkOutcome[]> {
    return (await this.#post<{ results: WorkOutcome[] }>(`/v1/claims/${command}`, body)).results;
  }

  #post<Answer>(path: string, body: object): Promise<Answer> {
    return this.#rest.call({ method: 'POST', path, body, repeatable: true });
  }
}

const queuePath = (queue: string): string => `/v1/queues/${encodeURIComponent(queue)}`;
const claimOf = ({ queue, key, token }: WorkClaim): WorkClaim => ({ queue, key, token });
