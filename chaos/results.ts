/** What a run leaves behind for docs/reliability.md: a small file each. */
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { Machine } from '../bench/machine.ts';
import type { Calm, RunFigures } from './run.ts';

export const RESULTS = fileURLToPath(new URL('results/', import.meta.url));

export interface Result extends Calm {
  readonly name: string;
  readonly seed: string;
  readonly machine: Machine;
  readonly seconds: number;
  readonly operations: number;
  readonly kills: number;
  readonly stale: number;
  readonly lostReplies: number;
  readonly confirmsUnderFault: number;
  readonly serverErrors: number;
  /** Commands by what was heard, over the whole run. */
  readonly heard: { readonly ok: number; readonly refused: number; readonly unknown: number };
  /** Of those that weren't answered in the service's own words, how many for what reason. */
  readonly unknown: Readonly<Record<string, number>>;
  readonly faults: readonly {
    readonly name: string;
    readonly injected: number;
    readonly backMs: { readonly rest: number; readonly socket: number };
  }[];
  readonly verify: { readonly checked: number; readonly violations: number };
  readonly problems: readonly string[];
}

export function resultOf(figures: RunFigures, machine: Machine): Result {
  const { name, seed, seconds, operations, kills, stale, lostReplies, confirmsUnderFault } = figures;
  const { serverErrors, ridesEndedAfterMs, driversFreeAfterMs } = figures;
  const heard = { ok: 0, refused: 0, unknown: 0 };
  const unknown: Record<string, number> = {};
  for (const [answer, count] of Object.entries(figures.answers)) {
    const [, outcome, code] = answer.split(' ') as [string, keyof typeof heard, string?];
    heard[outcome] += count;
    if (outcome === 'unknown' && code !== undefined) unknown[code] = (unknown[code] ?? 0) + count;
  }
  return {
    name,
    seed,
    machine,
    seconds,
    operations,
    kills,
    stale,
    lostReplies,
    confirmsUnderFault,
    serverErrors,
    heard,
    unknown,
    ridesEndedAfterMs,
    driversFreeAfterMs,
    faults: figures.faults.map((fault) => ({ name: fault.name, injected: fault.injected, backMs: fault.backMs })),
    verify: { checked: figures.verify.checked, violations: figures.verify.violations },
    problems: figures.problems,
  };
}

export async function writeResult(file: string, result: Result): Promise<void> {
  await writeFile(file, `${JSON.stringify(result, null, 2)}\n`);
}

export async function keepResult(result: Result): Promise<void> {
  await mkdir(RESULTS, { recursive: true });
  await writeResult(`${RESULTS}${result.name}.json`, result);
}

/** What was kept of an earlier version goes. */
export async function forgetResults(): Promise<void> {
  await rm(RESULTS, { recursive: true, force: true });
}

/** All that were kept, by name. */
export async function readResults(): Promise<ReadonlyMap<string, Result>> {
  const files = (await readdir(RESULTS)).filter((file) => file.endsWith('.json')).toSorted();
  const results = await Promise.all(
    files.map(async (file) => JSON.parse(await readFile(`${RESULTS}${file}`, 'utf8')) as Result),
  );
  return new Map(results.map((result) => [result.name, result]));
}
