/** How long leases were held, and how late they were freed: percentiles over a history read in steps. */
import { inRange, paramsOf, type Range, type Reader } from './reader.ts';

/** Buckets per factor of e: a percentile is exact to 2 %. */
const BUCKETS = 50;
const SHORTEST_MS = 0.01;

export class Durations {
  readonly #counts = new Map<number, number>();

  add(bucket: number, count: number): void {
    this.#counts.set(bucket, (this.#counts.get(bucket) ?? 0) + count);
  }

  /** Milliseconds that a share of all durations don't exceed, by nearest rank; null when there are none. */
  percentileMs(share: number): number | null {
    const buckets = [...this.#counts].toSorted(([a], [b]) => a - b);
    const total = buckets.reduce((sum, [, count]) => sum + count, 0);
    let left = Math.max(Math.ceil(share * total), 1);
    for (const [bucket, count] of buckets) {
      left -= count;
      if (left <= 0) return Number(Math.exp((bucket + 0.5) / BUCKETS).toPrecision(3));
    }
    return null;
  }
}

export interface LeaseDurations {
  /** From the grant to the end, of every term that ended. */
  readonly hold: Durations;
  /** From the end of the term to its being freed, of those that lapsed. */
  readonly sweeperLag: Durations;
}

const durationsSql = `
select kind, floor(ln(greatest(date_part('epoch', span) * 1000, ${SHORTEST_MS})) * ${BUCKETS})::int as bucket,
  count(*)::float8 as count
from offers cross join lateral (values
  ('hold', ended_at - granted_at),
  ('sweeperLag', case when status in ('expired', 'undeliverable') then ended_at - expires_at end)) d(kind, span)
where ${inRange('id', 'uuid')} and span is not null
group by 1, 2`;

export async function readDurations(reader: Reader, durations: LeaseDurations, range: Range): Promise<void> {
  const rows = await reader.ask<{ kind: keyof LeaseDurations; bucket: number; count: number }>(
    durationsSql,
    paramsOf(range),
  );
  for (const { kind, bucket, count } of rows) durations[kind].add(bucket, count);
}
