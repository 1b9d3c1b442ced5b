/** The jobs of which a fleet of processes needs one: each runs where its lease is, and elsewhere stands by. */
import { once } from 'node:events';
import { LeaseClient } from '../client/leases/client.ts';
import type { Lease } from '../client/leases/lease.ts';
import { singleton } from '../client/leases/singleton.ts';
import { isTransient } from '../client/problem.ts';
import { isUnreachable, type Sql } from '../database/connection.ts';
import { databaseLeases } from '../resource-leases/database-leases.ts';
import { msSinceFormerHolder } from '../resource-leases/reads.ts';
import type { Logger } from './log.ts';
import type { Metrics } from './metrics.ts';

export interface SingletonDeps {
  readonly databaseUrl: string;
  readonly secret: string;
  readonly sql: Sql;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** After a holder's death a job stands still for up to this and a second. */
const TTL_MS = 5_000;

export interface Singletons {
  /** Stands for `name`; `work` begins with each election, and what it returns ends it. */
  readonly stand: (name: string, work: (lease: Lease) => () => Promise<void>) => void;
  /** Resigns everything, at once, so that others take over. */
  readonly stop: () => Promise<void>;
}

export function startSingletons(deps: SingletonDeps): Singletons {
  const { metrics, log, sql } = deps;
  const client = new LeaseClient(databaseLeases(deps.databaseUrl, deps.secret));
  const stopping = new AbortController();
  const running: Promise<void>[] = [];

  const elected = async (name: string, lease: Lease): Promise<void> => {
    metrics.leaderships.inc({ job: name });
    const gapMs = await msSinceFormerHolder(sql, lease.resource, lease.fence);
    if (gapMs !== null) metrics.takeover.observe({ job: name }, gapMs / 1000);
  };

  return {
    stand(name, work) {
      const run = async (lease: Lease): Promise<void> => {
        const end = work(lease);
        try {
          if (!lease.signal.aborted) await once(lease.signal, 'abort');
        } finally {
          await end();
        }
      };
      const options = {
        ttlMs: TTL_MS,
        signal: stopping.signal,
        onElected: (lease: Lease) =>
          void elected(name, lease).catch((error: unknown) => log.warn({ err: error }, name)),
        onError: (error: unknown) => {
          // A database that is away is said once, by whoever asks it most.
          if (!isUnreachable(error) && !isTransient(error)) log.warn({ err: error, job: name }, 'a job ended');
        },
      };
      running.push(singleton(client, `cabrank/${name}`, run, options));
    },
    async stop() {
      stopping.abort(new Error('stopping'));
      await Promise.all(running);
      await client.close();
    },
  };
}
