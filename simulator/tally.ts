import { Problem, Unreachable } from '../src/client/problem.ts';

export interface Percentiles {
  readonly p50: number | null;
  readonly p95: number | null;
  readonly p99: number | null;
}

/** What is counted and measured while the city runs, beyond what became of each ride. */
export class Tally {
  readonly faults: Record<string, number> = {};
  /** By what was asked and why it failed: `accept:lease_expired`. */
  readonly errors: Record<string, number> = {};
  /** Rides that the service took from their drivers, by the reason. */
  readonly taken: Record<string, number> = {};
  offersSeen = 0;

  /** Wall milliseconds. */
  readonly requestToOfferMs: number[] = [];
  readonly requestToAssignedMs: number[] = [];
  readonly confirmMs: number[] = [];
  readonly latenessMs: number[] = [];
  /** City seconds. */
  readonly pickupEtaS: number[] = [];

  fault(kind: string): void {
    this.faults[kind] = (this.faults[kind] ?? 0) + 1;
  }

  /** Counts a refusal or a missing answer. Anything else is a mistake of the simulator's own, and is thrown on. */
  failed(command: string, error: unknown): void {
    if (!(error instanceof Problem) && !(error instanceof Unreachable)) throw error;
    const name = `${command}:${error.code}`;
    this.errors[name] = (this.errors[name] ?? 0) + 1;
  }
}

/** Nearest-rank percentiles, each a value that was measured; null of nothing. */
export function percentiles(values: readonly number[]): Percentiles {
  const sorted = Float64Array.from(values).toSorted();
  return { p50: rank(sorted, 0.5), p95: rank(sorted, 0.95), p99: rank(sorted, 0.99) };
}

function rank(sorted: Float64Array, share: number): number | null {
  const value = sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
  return value === undefined ? null : round(value);
}

export function mean(values: readonly number[]): number | null {
  if (values.length === 0) return null;
  return round(values.reduce((sum, value) => sum + value, 0) / values.length);
}

/** Microseconds of a millisecond would be noise. */
export const round = (value: number): number => Math.round(value * 1000) / 1000;
