/** Resource leases on a database of the test's own, with a clock that can be moved. */
import { randomUUID } from 'node:crypto';
import type { Acquired, AcquireRequest, GrantedLease } from '../../src/client/leases/contract.ts';
import { connectDatabase, type Database } from '../../src/database/connection.ts';
import { DatabaseLeases } from '../../src/resource-leases/database-leases.ts';
import { createTestDatabase } from '../support/database.ts';

export interface TestLeases extends AsyncDisposable {
  readonly url: string;
  readonly database: Database;
  readonly leases: DatabaseLeases;
  /** Another process on the same database. */
  readonly another: () => DatabaseLeases;
  readonly acquire: (request: Partial<AcquireRequest> & object, key?: string) => Promise<Acquired>;
  /** The one lease that the acquire is granted; throws when it is refused. */
  readonly granted: (request: Partial<AcquireRequest> & object, key?: string) => Promise<GrantedLease>;
  /** The same as if so much time had passed for what is recorded of these resources. */
  readonly letPass: (ms: number, ...resources: string[]) => Promise<void>;
}

export async function startLeases(): Promise<TestLeases> {
  await using stack = new AsyncDisposableStack();
  const { url } = stack.use(await createTestDatabase());
  const database = stack.use(connectDatabase(url));
  const all = stack.move();
  const another = (): DatabaseLeases => {
    const leases = new DatabaseLeases({ database, secret: 'a secret of the tests' });
    all.defer(() => leases.close());
    return leases;
  };
  const leases = another();
  const acquire: TestLeases['acquire'] = (request, key = randomUUID()) =>
    leases.acquire({ holder: 'holder', ttlMs: 60_000, ...request } as AcquireRequest, key);
  return {
    url,
    database,
    leases,
    another,
    acquire,
    granted: async (request, key) => {
      const answer = await acquire(request, key);
      if (answer.refused !== null) throw new Error(`refused: ${answer.refused}`);
      return answer.leases[0]!;
    },
    letPass: async (ms, ...resources) => {
      const by = `${ms} milliseconds`;
      await database.cold`update resource_leases set granted_at = granted_at - ${by}::interval,
        renewed_at = renewed_at - ${by}::interval, ends_at = ends_at - ${by}::interval, free_at = free_at - ${by}::interval,
        lifetime_ends_at = lifetime_ends_at - ${by}::interval, break_at = break_at - ${by}::interval,
        recover_at = recover_at - ${by}::interval, due_at = due_at - ${by}::interval, updated_at = updated_at - ${by}::interval
        where resource = any(${resources}::text[])`;
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}
