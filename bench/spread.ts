/** Several runs of the same, as one figure. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
  readonly runs: number;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[sorted.length >> 1]!;
}

/** To three digits or whole numbers. Of at least one value. */
export function spreadOf(values: readonly number[]): Spread {
  const tidy = (value: number): number => (value >= 100 ? Math.round(value) : Number(value.toPrecision(3)));
  return {
    median: tidy(median(values)),
    min: tidy(Math.min(...values)),
    max: tidy(Math.max(...values)),
    runs: values.length,
  };
}
