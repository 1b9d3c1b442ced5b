/** What a process says about itself when asked: whether it is ready, and how many drivers and rides are in each state. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Database } from '../database/connection.ts';
import { DRIVER_STATUSES, RIDE_STATUSES } from '../records.ts';
import type { Metrics } from './metrics.ts';

export interface Readiness {
  readonly ok: boolean;
  /** By the name of what was looked at: `ok`, or what is wrong. */
  readonly checks: Record<string, string>;
}

export type Check = () => Promise<unknown>;

const READINESS_DEADLINE_MS = 2_000;
/** Anybody may ask; however many do, the checks run this often. */
const READINESS_FRESH_MS = 1_000;
const STATES_DEADLINE_MS = 1_000;
const STATES_FRESH_MS = 5_000;

/** A check that throws, or takes longer than 2 s, makes the process unready. Never rejects. */
export function createReadiness(
  checks: Readonly<Record<string, Check>>,
  nowMs: () => number = () => performance.now(),
): () => Promise<Readiness> {
  async function look(): Promise<Readiness> {
    const results = await Promise.all(
      Object.entries(checks).map(async ([name, check]) => [name, await outcomeOf(check)] as const),
    );
    return { ok: results.every(([, result]) => result === 'ok'), checks: Object.fromEntries(results) };
  }
  return freshFor(READINESS_FRESH_MS, nowMs, look);
}

/** Reachable, and migrated. */
export function databaseCheck({ cold }: Pick<Database, 'cold'>): Check {
  return async () => {
    const [row] = await cold<{ migrated: boolean }[]>`
      select to_regclass('regions') is not null and to_regnamespace('leasing') is not null as migrated`;
    if (!row!.migrated) throw new Error('not migrated');
  };
}

/**
 * Sets the gauges of drivers and open rides by state, at most every five seconds. Never rejects: when the database
 * doesn't answer within a second there are no such series, which an alert can see, instead of old ones.
 */
export function createStateGauges(
  { cold }: Pick<Database, 'cold'>,
  { drivers, rides }: Pick<Metrics, 'drivers' | 'rides'>,
  nowMs: () => number = () => performance.now(),
): () => Promise<void> {
  const openStatuses = RIDE_STATUSES.slice(0, 4);
  async function count(): Promise<StateCount[]> {
    return cold<StateCount[]>`
      select g.id as region, 'driver' as kind, d.status, count(*)::int
      from regions g join driver_state d on d.region = g.number group by 1, 3
      union all
      select g.id, 'ride', r.status, count(*)::int
      from regions g join rides r on r.region = g.number and r.ended_at is null group by 1, 3
      union all
      select id, 'region', null, 1 from regions`;
  }
  async function collect(): Promise<void> {
    const counts = await withDeadline(STATES_DEADLINE_MS, count()).catch(() => [] as StateCount[]);
    drivers.reset();
    rides.reset();
    for (const { region, kind, status, count: n } of counts.sort(regionsFirst)) {
      if (kind === 'driver') drivers.set({ region, status: status! }, n);
      else if (kind === 'ride') rides.set({ region, status: status! }, n);
      else {
        for (const each of DRIVER_STATUSES) drivers.set({ region, status: each }, 0);
        for (const each of openStatuses) rides.set({ region, status: each }, 0);
      }
    }
  }
  return freshFor(STATES_FRESH_MS, nowMs, collect);
}

interface StateCount {
  readonly region: string;
  readonly kind: 'region' | 'driver' | 'ride';
  readonly status: string | null;
  readonly count: number;
}

/** A region's states begin at 0 each, so that one nobody is in is a number as well. */
const regionsFirst = (a: StateCount, b: StateCount): number =>
  Number(b.kind === 'region') - Number(a.kind === 'region');

async function outcomeOf(check: Check): Promise<string> {
  try {
    await withDeadline(READINESS_DEADLINE_MS, check());
    return 'ok';
  } catch (error) {
    return reasonOf(error);
  }
}

/** The page is open to all: codes and our own words, but no addresses. */
function reasonOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return code;
  return error instanceof Error && error.message !== '' ? error.message : 'failed';
}

async function withDeadline<Value>(deadlineMs: number, work: Promise<Value>): Promise<Value> {
  const over = new AbortController();
  const deadline = delay(deadlineMs, undefined, { signal: over.signal, ref: false }).then(() => {
    throw new Error(`no answer within ${deadlineMs} ms`);
  });
  deadline.catch(() => {});
  try {
    return await Promise.race([work, deadline]);
  } finally {
    over.abort();
  }
}

/** Runs `work` again only once its last result is older than this; who asks meanwhile shares it. */
function freshFor<Value>(freshMs: number, nowMs: () => number, work: () => Promise<Value>): () => Promise<Value> {
  let last: Promise<Value> | null = null;
  let startedAtMs = Number.NEGATIVE_INFINITY;
  return () => {
    if (last === null || nowMs() - startedAtMs >= freshMs) {
      startedAtMs = nowMs();
      last = work();
    }
    return last;
  };
}
