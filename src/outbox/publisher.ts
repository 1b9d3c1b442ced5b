/**
 * Publishes a region's events, in order per ride and each at least once: to webhooks, as deliveries that are queued in
 * the transaction that moves the cursor, and to a Redis stream. One publisher a region, by a lease; what a stale one
 * still writes its fence refuses.
 */
import type { Sql } from '../database/connection.ts';
import type { Lease } from '../client/leases/lease.ts';
import type { Logger } from '../ops/log.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { EventStream, StreamedEvent } from './stream.ts';

export interface PublisherDeps {
  readonly sql: Sql;
  readonly stream: EventStream | null;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** Deliveries were queued. */
  readonly onQueued: () => void;
}

/** How often an idle region is looked at: an event is published after this at the latest, and a busy region at once. */
export const IDLE_MS = 500;
/** The same where nobody wants the events: who comes to want them gets them from then on, a little later. */
const UNWANTED_MS = 2_000;
const BATCH = 500;
const JOB = 'outbox';

/** Begins with the lease, and publishes until told to stop. */
export function startPublisher(
  deps: PublisherDeps,
  region: { readonly id: string; readonly number: number },
  lease: Lease,
): () => Promise<void> {
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;
  let turn: Promise<void> = Promise.resolve();
  const loop = (): void => {
    turn = publishAll(deps, region, lease, () => isStopped || lease.signal.aborted)
      .catch((error: unknown) => {
        deps.log.warn({ err: error, region: region.id }, 'publishing failed');
        return true;
      })
      .then((isWanted) => {
        if (!isStopped) timer = setTimeout(loop, isWanted ? IDLE_MS : UNWANTED_MS);
      });
  };
  loop();
  return async () => {
    isStopped = true;
    clearTimeout(timer);
    await turn;
  };
}

/** Everything there is, batch by batch; whether anybody wants it. */
export async function publishAll(
  deps: PublisherDeps,
  region: { readonly id: string; readonly number: number },
  { resource, fence }: Pick<Lease, 'resource' | 'fence'>,
  isOver: () => boolean = () => false,
): Promise<boolean> {
  const { sql, stream, metrics } = deps;
  const begin = await beginning(sql, region.number, stream !== null);
  if (begin === null) return false;
  const [opened] = await sql<{ held: boolean }[]>`
    select open_outbox(${region.number}::smallint, ${resource}, ${fence}::bigint, ${begin}::text::xid8) as held`;
  if (!opened!.held) return stale(metrics);
  while (!isOver()) {
    let limit = BATCH;
    if (stream !== null) {
      const { events, next } = await readEvents(sql, region);
      if (next === 0) return true;
      if (!(await stream.append(region.id, fence, events))) return stale(metrics);
      // What was appended and no more: what came since is for the next batch.
      limit = next;
    }
    const [batch] = await sql<{ published: number; deliveries: number; oldest_at: Date | null }[]>`
      select published, deliveries, oldest_at
      from publish_events(${region.number}::smallint, ${resource}, ${fence}::bigint, ${limit}::int)`;
    if (batch === undefined) return stale(metrics);
    metrics.publishedEvents.inc(batch.published);
    if (batch.oldest_at !== null) metrics.outboxLag.observe(Math.max(0, Date.now() - batch.oldest_at.getTime()) / 1000);
    if (batch.deliveries > 0) deps.onQueued();
    if (batch.published < limit || batch.published === 0) return true;
  }
  return true;
}

const stale = (metrics: Metrics): boolean => {
  metrics.fenceRefusals.inc({ job: JOB });
  return true;
};

/** From which transaction on somebody wants the region's events; null: nobody does. */
async function beginning(sql: Sql, region: number, hasStream: boolean): Promise<string | null> {
  // A stream is for whoever comes: from the cursor, or from now when there is none yet. A webhook that was made in another
  // cluster was there before all that happened in this one.
  const [row] = await sql<{ tx: string | null }[]>`
    select case when ${hasStream ? 1 : 0}::int = 1
        then coalesce((select '0'::xid8 from outbox_cursors c where c.region = ${region}), pg_snapshot_xmin(pg_current_snapshot()))
        else (select case when is_ours(w.created_tx, w.xmin) then w.created_tx else '0' end from webhooks w
          where w.region is null or w.region = ${region} order by 1 limit 1)
      end::text as tx`;
  return row!.tx;
}

async function readEvents(
  sql: Sql,
  region: { readonly id: string; readonly number: number },
): Promise<{ events: StreamedEvent[]; next: number }> {
  const rows = await sql<
    {
      is_next: boolean;
      ride_id: string;
      seq: number;
      type: string;
      at: Date;
      driver_id: string | null;
      offer_id: string | null;
      fence: string | null;
      reason: string | null;
    }[]
  >`select is_next, ride_id, seq, type, at, driver_id, offer_id, fence, reason
    from unpublished_events(${region.number}::smallint, ${BATCH}::int)`;
  const events = rows.map((row) => ({
    id: `${row.ride_id}/${row.seq}`,
    type: row.type,
    regionId: region.id,
    rideId: row.ride_id,
    seq: row.seq,
    at: row.at.toISOString(),
    driverId: row.driver_id,
    offerId: row.offer_id,
    fence: row.fence === null ? null : Number(row.fence),
    reason: row.reason,
  }));
  return { events, next: rows.filter((row) => row.is_next).length };
}
