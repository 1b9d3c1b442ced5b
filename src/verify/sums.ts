/** What is added up of all lease terms of a region, wherever a step comes by them. */
import { addCounts, countsSql, type Source, type SourceRow, type Tally } from './checks.ts';
import { durationsSql, type DurationCount, type LeaseDurations } from './durations.ts';
import { keySumsSql, type KeySum, type KeySums, type Slices } from './key-sums.ts';
import type { Params, Reader } from './reader.ts';
import { runCtes, type Chains, type Run } from './terms.ts';

export interface Sums {
  readonly chains: Chains;
  readonly durations: LeaseDurations;
  /** The keys of the offers and assignments that were judged, by these slices. */
  readonly reached: KeySums;
  readonly slices: Slices;
}

/** Of the terms of one step; null: there are none. */
export interface SumsRow {
  readonly runs: readonly Run[] | null;
  readonly durations: readonly DurationCount[] | null;
  readonly keys: readonly KeySum[] | null;
}

/** CTEs and columns that make a `SumsRow`. */
export interface SumsSql {
  readonly ctes: string;
  readonly columns: string;
}

/**
 * Of a CTE `held`: `id`, `driver_id`, `fence`, `status`, `granted_at`, `expires_at`, `ended_at`, `assignments` (how many it
 * has), and `free_at`, when its driver was free again. The two parameters after the `others` are `slicesOf`.
 */
export function sumsSql(others: number): SumsSql {
  const [starts, seed] = [`$${others + 1}`, `$${others + 2}`];
  return {
    ctes: runCtes,
    columns: `(select json_agg(r) from run r) as runs, (select json_agg(d) from (${durationsSql}) d) as durations,
      (select json_agg(k) from (${keySumsSql('(select id, 1 as offers, assignments from held)', starts, seed)}) k) as keys`,
  };
}

export const slicesOf = ({ slices: { starts, seed } }: Sums): Params => [starts, seed];

export function addSums({ chains, durations, reached }: Sums, row: SumsRow): void {
  for (const run of row.runs ?? []) chains.add(run);
  for (const { kind, bucket, count } of row.durations ?? []) durations[kind].add(bucket, count);
  for (const sum of row.keys ?? []) reached.add(sum);
}

/** Runs the checks of all sources, and adds up a CTE `held`, by one statement. */
export async function checkAndAddUp(
  reader: Reader,
  tally: Tally,
  sums: Sums,
  { ctes, sources }: { ctes: string; sources: readonly Source[] },
  params: Params,
): Promise<void> {
  const added = sumsSql(params.length);
  const [row] = await reader.ask<SumsRow & { counts: SourceRow[] }>(
    `with ${ctes}, ${added.ctes}
    select (select json_agg(c) from (${countsSql(sources)}) c) as counts, ${added.columns}`,
    [...params, ...slicesOf(sums)],
  );
  addCounts(tally, sources, row!.counts);
  addSums(sums, row!);
}
