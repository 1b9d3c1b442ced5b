/** The lease service over HTTP. */
import { Problem } from '../problem.ts';
import { Rest, type RestOptions } from '../rest.ts';
import { HttpWork } from './http-work.ts';
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
} from './contract.ts';

export class HttpLeases implements LeaseService {
  readonly work: HttpWork;
  readonly #rest: Rest;

  constructor(options: RestOptions) {
    this.#rest = new Rest(options);
    this.work = new HttpWork(this.#rest);
  }

  async acquire(request: AcquireRequest, key: string, signal?: AbortSignal): Promise<Acquired> {
    try {
      const answer = await this.#rest.call<GrantedLease | { leases: GrantedLease[] }>({
        method: 'POST',
        path: '/v1/leases',
        body: request,
        idempotencyKey: key,
        repeatable: true,
        waitMs: request.waitMs ?? 0,
        signal,
      });
      return { refused: null, leases: 'leases' in answer ? answer.leases : [answer] };
    } catch (error) {
      if (!(error instanceof Problem) || (error.code !== 'held' && error.code !== 'lease_expired')) throw error;
      return { refused: error.code, held: (error.members['held'] ?? []) as HeldBy[] };
    }
  }

  renew(claims: readonly LeaseClaim[], signal?: AbortSignal): Promise<Renewed[]> {
    return this.#results('renew', claims, signal);
  }

  release(claims: readonly LeaseClaim[], signal?: AbortSignal): Promise<Released[]> {
    return this.#results('release', claims, signal);
  }

  async confirm({ resource, token }: LeaseClaim, data?: unknown): Promise<Confirmed> {
    try {
      const body = { resource, token, ...(data !== undefined && { data }) };
      const path = '/v1/leases/confirm';
      const call = { method: 'POST', path, body, repeatable: true } as const;
      const answer = await this.#rest.call<{ fence: number; confirmedAt: string; data: unknown }>(call);
      return { refused: null, fence: answer.fence, confirmedAt: answer.confirmedAt, data: answer.data };
    } catch (error) {
      if (error instanceof Problem && (error.code === 'lease_lost' || error.code === 'lease_expired'))
        return { refused: error.code };
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#rest.close();
  }

  async #results<Result>(
    command: 'renew' | 'release',
    claims: readonly LeaseClaim[],
    signal: AbortSignal | undefined,
  ): Promise<Result[]> {
    const leases = claims.map(({ resource, token }) => ({ resource, token }));
    const path = `/v1/leases/${command}`;
    const call = { method: 'POST', path, body: { leases }, repeatable: true, signal } as const;
    return (await this.#rest.call<{ results: Result[] }>(call)).results;
  }
}
