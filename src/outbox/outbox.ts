/** The outbox role: one publisher for each region, wherever its lease is, and deliveries to webhooks. */
import type { Sql } from '../database/connection.ts';
import type { Logger } from '../ops/log.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { WorkQueue } from '../client/leases/work.ts';
import type { Singletons } from '../ops/singletons.ts';
import type { Regions } from '../regions.ts';
import { startDeliveries } from './deliveries.ts';
import { startPublisher } from './publisher.ts';
import { openStream } from './stream.ts';

export interface OutboxDeps {
  readonly sql: Sql;
  readonly work: WorkQueue;
  readonly regions: Regions;
  readonly redisUrl: string | null;
  readonly singletons: Singletons;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** A new region's events wait for up to this. */
const REGIONS_EVERY_MS = 5_000;

export function startOutbox(deps: OutboxDeps): { readonly stop: () => Promise<void> } {
  const { sql, work, regions, redisUrl, singletons, metrics, log } = deps;
  const stream = redisUrl === null ? null : openStream(redisUrl, () => {});
  const deliveries = startDeliveries({ sql, work, metrics, log });
  const publishing = { sql, stream, metrics, log, onQueued: deliveries.wake };
  const known = new Set<number>();
  let isStopped = false;

  const standForNew = async (): Promise<void> => {
    for (const region of await regions.all()) {
      if (known.has(region.number) || isStopped) continue;
      known.add(region.number);
      singletons.stand(`outbox/${region.id}`, (lease) => startPublisher(publishing, region, lease));
    }
  };
  const look = (): void => {
    standForNew().catch((error: unknown) => log.warn({ err: error }, 'the outbox doesn’t know the regions'));
  };
  const looking = setInterval(look, REGIONS_EVERY_MS);
  look();
  return {
    stop: async () => {
      isStopped = true;
      clearInterval(looking);
      await deliveries.stop();
      await stream?.[Symbol.asyncDispose]();
    },
  };
}
