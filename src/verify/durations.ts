/** How long leases were held, and how late they were freed: percentiles over a history read in steps. */
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

export interface DurationCount {
  readonly kind: keyof LeaseDurations;
  readonly bucket: number;
  readonly count: number;
}

const bucketOf = (span: string): string =>
  `floor(ln(greatest(date_part('epoch', ${span}) * 1000, ${SHORTEST_MS})) * ${BUCKETS})::int`;

/** The `DurationCount`s of a CTE `held` with `granted_at`, `expires_at`, `ended_at` and `status`. */
export const durationsSql = `
select 'hold' as kind, ${bucketOf('ended_at - granted_at')} as bucket, count(*) as count
from held where ended_at is not null group by bucket
union all
select 'sweeperLag', ${bucketOf('ended_at - expires_at')} as bucket, count(*)
from held where status in ('expired', 'undeliverable') group by bucket`;
