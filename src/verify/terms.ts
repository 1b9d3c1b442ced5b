/**
 * Every driver's terms as one chain, in the order of their fences: no gap, no repeat, no overlap in time.
 *
 * Offers have no index by driver, and sorting all of them by driver in one statement would hold one snapshot for as
 * long as the history is large. So the offers are read once, some at a time, as their rides are. Of these the database
 * sorts by driver and fence and folds each stretch of terms that follow each other without fault into one `Run`;
 * here the runs of a driver are joined in the same way. A healthy driver ends with one run of each epoch, and the
 * memory needed is that of the drivers, not of the offers. Runs may arrive in any order: ids are made by many clocks, and
 * plain rides come before the others of a step. So only fences that are one apart are joined; whether an epoch ended where the
 * next begins is seen when all are there.
 *
 * They are snapshots of different moments, while the service goes on. Yet nothing is judged that may have
 * changed in between, because each driver's fence is read first, before any offer: what was granted up to that
 * fence was committed before every later snapshot, and each of those terms but the last had ended. So up to that
 * fence the chain must be complete, and a term that has a successor must have an end. Terms granted later are
 * joined where possible, and for the rest left to the next run; a fence read last bounds them from above.
 */
import type { Tally } from './checks.ts';
import { inRange, paramsOf, type Range, type Reader } from './reader.ts';

/** Terms of one driver with fences one after the other, whose times don't overlap. Times are microseconds since 1970. */
export interface Run {
  readonly driverId: string;
  readonly firstFence: number;
  readonly firstGrantedAt: number;
  readonly lastFence: number;
  /** The end of the last term; null while it is live. */
  readonly lastEndedAt: number | null;
  /** When the driver was free again: the end of the last term, or of its assignment. */
  readonly lastFreeAt: number | null;
  readonly terms: number;
}

/** Of a time, since 1970, or of an interval. Whole numbers: sums are the same in whatever steps they are made. */
export const micros = (time: string): string => `round(date_part('epoch', ${time}) * 1000000)`;

const EPOCH = 2 ** 32;
const comesNext = (fence: number, next: number): boolean =>
  next === fence + 1 || (next % EPOCH === 1 && Math.floor(next / EPOCH) > Math.floor(fence / EPOCH));

/** A CTE `run`, of a CTE `held` with `id`, `driver_id`, `fence`, `granted_at`, `ended_at` and `free_at`. */
export const runCtes = `
marked as (
  select *, (fence = lag(fence) over w + 1 and lag(free_at) over w <= granted_at
    and lag(ended_at) over w <= granted_at) is not true as is_start
  from held window w as (partition by driver_id order by fence, id)),
numbered as (
  select *, count(*) filter (where is_start) over (partition by driver_id order by fence, id rows unbounded preceding) as run
  from marked),
run as (
  select driver_id as "driverId", min(fence) as "firstFence", max(fence) as "lastFence",
    ${micros('min(granted_at)')} as "firstGrantedAt",
    case when count(ended_at) = count(*) then ${micros('max(ended_at)')} end as "lastEndedAt",
    case when count(free_at) = count(*) then ${micros('max(free_at)')} end as "lastFreeAt",
    count(*) as terms
  from numbered group by driver_id, run)`;

export interface Break {
  readonly check: 'I1c' | 'I2a' | 'I2b' | 'I2c';
  readonly example: string;
}

/** The chains of all drivers, over all regions: a driver who moves keeps the fence. */
export class Chains {
  readonly #runs = new Map<string, Run[]>();
  readonly #fencesBefore = new Map<string, number>();

  get driverIds(): string[] {
    return [...this.#runs.keys()];
  }

  /** A driver's fence, read before any run. */
  expect(driverId: string, fence: number): void {
    this.#fencesBefore.set(driverId, Math.max(fence, this.#fencesBefore.get(driverId) ?? 0));
    if (!this.#runs.has(driverId)) this.#runs.set(driverId, []);
  }

  add(run: Run): void {
    const runs = this.#runs.get(run.driverId);
    if (runs === undefined) this.#runs.set(run.driverId, [run]);
    else insert(runs, run);
  }

  terms(driverId: string): number {
    return (this.#runs.get(driverId) ?? []).reduce((sum, { terms }) => sum + terms, 0);
  }

  /** Everything wrong with a driver's chain. `fenceAfter` was read after all runs; null: the driver has no state. */
  breaks(driverId: string, fenceAfter: number | null): Break[] {
    const runs = this.#runs.get(driverId) ?? [];
    const mustReach = this.#fencesBefore.get(driverId) ?? 0;
    const breaks: Break[] = [];
    const report = (check: Break['check'], example: string): void => {
      breaks.push({ check, example: `driver ${driverId}: ${example}` });
    };
    let last: Run | null = null;
    for (const run of runs) {
      judge(last, run, mustReach, report);
      if (last === null || run.lastFence >= last.lastFence) last = run;
    }
    const reached = last?.lastFence ?? 0;
    if (last !== null && fenceAfter === null) report('I2c', `has ${this.terms(driverId)} terms and no state`);
    else if (reached < mustReach) report('I2c', `the fence is ${mustReach}, the last term's ${reached}`);
    else if (reached > (fenceAfter ?? 0)) report('I2c', `the fence is ${fenceAfter}, the last term's ${reached}`);
    return breaks;
  }
}

const compare = (a: Run, b: Run): number => a.firstFence - b.firstFence || a.firstGrantedAt - b.firstGrantedAt;

/** Puts a run in its place, joined to its neighbours where it goes on from them without fault. */
function insert(runs: Run[], run: Run): void {
  let [from, to] = [0, runs.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (compare(runs[middle]!, run) <= 0) from = middle + 1;
    else to = middle;
  }
  const [before, after] = [runs[from - 1], runs[from]];
  const follows = before !== undefined && goesOn(before, run);
  const joined = follows ? join(before, run) : run;
  const leads = after !== undefined && goesOn(joined, after);
  const whole = leads ? join(joined, after) : joined;
  runs.splice(from - Number(follows), Number(follows) + Number(leads), whole);
}

/** Whether `next` goes on where `run` ends, without fault. */
const goesOn = (run: Run, next: Run): boolean =>
  next.firstFence === run.lastFence + 1 &&
  run.lastEndedAt !== null &&
  run.lastFreeAt !== null &&
  next.firstGrantedAt >= Math.max(run.lastEndedAt, run.lastFreeAt);

const join = (run: Run, next: Run): Run => ({
  driverId: run.driverId,
  firstFence: run.firstFence,
  firstGrantedAt: run.firstGrantedAt,
  lastFence: next.lastFence,
  lastEndedAt: next.lastEndedAt,
  lastFreeAt: next.lastFreeAt,
  terms: run.terms + next.terms,
});

/** What is wrong between two runs of a driver that couldn't be joined. */
function judge(
  last: Run | null,
  run: Run,
  mustReach: number,
  report: (check: Break['check'], example: string) => void,
): void {
  const fence = last?.lastFence ?? 0;
  if (!comesNext(fence, run.firstFence) && (run.firstFence <= fence || fence < mustReach)) {
    report('I2b', `fence ${run.firstFence} comes after fence ${fence}`);
  }
  if (last === null) return;
  const isOverlap = (endedAt: number | null): boolean =>
    endedAt === null ? last.lastFence < mustReach : endedAt > run.firstGrantedAt;
  const before = `of fence ${last.lastFence} ended`;
  if (isOverlap(last.lastEndedAt)) report('I2a', `fence ${run.firstFence} was granted before the term ${before}`);
  else if (isOverlap(last.lastFreeAt))
    report('I1c', `fence ${run.firstFence} was granted before the assignment ${before}`);
}

/** Reads the drivers' fences of one range: to be done for all before any run is read. */
export async function expectFences(reader: Reader, chains: Chains, range: Range): Promise<void> {
  const rows = await reader.ask<{ driver_id: string; fence: number }>(
    `select driver_id, fence::float8 as fence from driver_state where ${inRange('driver_id', 'text')}`,
    paramsOf(range),
  );
  for (const { driver_id, fence } of rows) chains.expect(driver_id, fence);
}

const DRIVERS_STEP = 10_000;

/** Reads the drivers' fences again, after all runs, and counts what is wrong. */
export async function judgeChains(reader: Reader, tally: Tally, chains: Chains): Promise<void> {
  const { driverIds } = chains;
  for (let i = 0; i < driverIds.length; i += DRIVERS_STEP) {
    const step = driverIds.slice(i, i + DRIVERS_STEP);
    const rows = await reader.ask<{ driver_id: string; fence: number }>(
      `select driver_id, max(fence)::float8 as fence from driver_state
       where driver_id = any($1::text[]) group by driver_id`,
      [step],
    );
    const fences = new Map(rows.map(({ driver_id, fence }) => [driver_id, fence]));
    for (const driverId of step) {
      const terms = chains.terms(driverId);
      for (const check of ['I1c', 'I2a', 'I2b'] as const) tally.count(check, terms, 0, []);
      tally.count('I2c', 1, 0, []);
      for (const { check, example } of chains.breaks(driverId, fences.get(driverId) ?? null)) {
        tally.count(check, 0, 1, [example]);
      }
    }
  }
}
