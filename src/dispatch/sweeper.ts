/**
 * Tidies: frees leases that are over and cancels rides whose riders didn't come in regions without rounds, watches the
 * drivers on their way to a pickup, writes down the ends of resource leases, takes drivers offline who are gone, drops
 * idempotency keys and finished work older than a day. Correctness never depends on it: every round frees leases of its
 * own region.
 */
import type { Sql } from '../database/connection.ts';
import type { Leasing } from '../leasing/leasing.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Logger } from '../ops/log.ts';
import { lookAgain, lookEvery } from '../ops/look-every.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Regions } from '../regions.ts';
import { dropStaleTickets, sweepLeases } from '../resource-leases/transitions.ts';
import { watchPickups } from './pickups.ts';

/** A sweep comes when the next lease is over, but no sooner than this, and no later: leases are granted meanwhile. */
export const SWEEP_MS = { least: 50, most: 1_000 };
const TIDY_EVERY_MS = 500;
const DRIVERS_STEP = 2_000;
/** Steps of one walk along a region's drivers: a region of so many drivers and no more. */
const DRIVER_STEPS_MAX = 1_000;
const RESOURCES_EVERY_MS = 2_000;
const RESOURCES_STEP = 500;
/** What expires at once beyond this is for the next sweep. */
const RESOURCE_STEPS_MAX = 40;
const KEYS_EVERY_MS = 60_000;
const KEYS_STEP = 1_000;
const KEY_STEPS_MAX = 1_000;

export interface SweeperDeps {
  readonly sql: Sql;
  readonly leasing: Leasing;
  readonly regions: Regions;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** Starts sweeping; the returned function stops it and waits for the sweep under way. */
export function startSweeper(deps: SweeperDeps): () => Promise<void> {
  const stopping = new AbortController();
  const stopEnding = lookAgain(
    SWEEP_MS.least,
    () => endWhatIsOver(deps, stopping.signal),
    (error) => {
      deps.log.warn({ err: error }, 'a sweep failed');
      return SWEEP_MS.most;
    },
  );
  // A walk along a large region's drivers takes a second, and leases don't wait for it.
  const stopTidying = lookEvery(TIDY_EVERY_MS, tidier(deps, stopping.signal), (error) =>
    deps.log.warn({ err: error }, 'tidying failed'),
  );
  return async () => {
    stopping.abort();
    await Promise.all([stopEnding(), stopTidying()]);
  };
}

/** Frees leases and cancels rides whose riders didn't come; returns when to do so again. */
async function endWhatIsOver({ sql, leasing, regions }: SweeperDeps, signal: AbortSignal): Promise<number> {
  const all = await regions.all();
  // What is granted after this look isn't over before the next.
  const withinMs = Math.min(SWEEP_MS.most, ...all.map(({ policy }) => policy.deliveryTtlMs));
  const ending = await transitions.endingRegions(sql, withinMs);
  for (const { number } of all) {
    if (signal.aborted) break;
    if (ending.get(number) !== 0) continue;
    await leasing.expire(number);
    await leasing.cancelNoShows(number);
  }
  return Math.max(SWEEP_MS.least, Math.min(withinMs, ...ending.values()));
}

/** All that nobody waits for, each thing when its turn has come. */
function tidier(deps: SweeperDeps, signal: AbortSignal): () => Promise<void> {
  const isDue = everyMs();
  return async () => {
    const regions = await deps.regions.all();
    for (const region of regions) {
      if (signal.aborted) return;
      const { number, policy } = region;
      if (isDue(`pickups ${number}`, policy.positionIntervalMs)) await watchPickups(deps, region);
      if (isDue(`absent ${number}`, policy.presenceGraceMs / 2))
        await retireAbsentDrivers(deps, number, policy.presenceGraceMs);
    }
    if (isDue('resources', RESOURCES_EVERY_MS)) await endResourceLeases(deps);
    if (isDue('keys', KEYS_EVERY_MS)) {
      await dropStaleTickets(deps.sql, KEYS_STEP);
      await dropDoneWork(deps.sql);
      for (const { number } of regions) await dropOldKeys(deps.sql, number);
    }
  };
}

/** Says of each thing whether its turn has come again. */
function everyMs(): (what: string, ms: number) => boolean {
  const lastAtMs = new Map<string, number>();
  return (what, ms) => {
    const isDue = performance.now() - (lastAtMs.get(what) ?? -Infinity) >= ms;
    if (isDue) lastAtMs.set(what, performance.now());
    return isDue;
  };
}

/** Takes drivers offline who are available and weren't seen within the grace. */
export async function retireAbsentDrivers(
  { sql, metrics }: Pick<SweeperDeps, 'sql' | 'metrics'>,
  region: number,
  graceMs: number,
): Promise<string[]> {
  const all: string[] = [];
  let after = '';
  for (let step = 0; step < DRIVER_STEPS_MAX; step += 1) {
    const { last_driver_id, retired } = await transitions.retireAbsent(sql, region, after, DRIVERS_STEP, graceMs);
    metrics.countTransition('retire', 'applied', retired.length);
    all.push(...retired);
    if (last_driver_id === null) break;
    after = last_driver_id;
  }
  return all;
}

/** Writes down the ends of resource leases that are over; nobody waits for that. */
export async function endResourceLeases({ sql, metrics }: Pick<SweeperDeps, 'sql' | 'metrics'>): Promise<void> {
  for (let step = 0; step < RESOURCE_STEPS_MAX; step += 1) {
    const ended = await sweepLeases(sql, RESOURCES_STEP);
    for (const { late_ms: lateMs } of ended) metrics.leaseSweeperLag.observe(lateMs / 1000);
    if (ended.length < RESOURCES_STEP) return;
  }
}

async function dropDoneWork(sql: Sql): Promise<void> {
  for (let step = 0; step < KEY_STEPS_MAX; step += 1) {
    const [row] = await sql<{ dropped: number }[]>`select drop_done_work(${KEYS_STEP}::int) as dropped`;
    if (row!.dropped < KEYS_STEP) return;
  }
}

async function dropOldKeys(sql: Sql, region: number): Promise<void> {
  for (let step = 0; step < KEY_STEPS_MAX; step += 1) {
    if ((await transitions.dropOldKeys(sql, region, KEYS_STEP)) < KEYS_STEP) return;
  }
}
