export interface Percentiles {
  readonly p50: number | null;
  readonly p95: number | null;
  readonly p99: number | null;
}

/** Nearest-rank percentiles, each a value that was measured, to a tenth; null of nothing. */
export function percentiles(values: readonly number[]): Percentiles {
  const sorted = Float64Array.from(values).toSorted();
  const rank = (share: number): number | null => {
    const value = sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
    return value === undefined ? null : Math.round(value * 10) / 10;
  };
  return { p50: rank(0.5), p95: rank(0.95), p99: rank(0.99) };
}
