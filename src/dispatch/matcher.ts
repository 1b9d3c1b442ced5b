/**
 * Runs match rounds: when woken, when a ride that was put back is due again, and when the slow poll finds a ride
 * that nobody looked at. One round of a region at a time in a process; other processes may run their own, and without an
 * interval between rounds those of requests run beside it.
 */
import type { Logger } from '../ops/log.ts';
import { lookAgain } from '../ops/look-every.ts';
import type { Region } from '../regions.ts';
import type { Paired } from '../leasing/leasing.ts';
import * as transitions from '../leasing/transitions.ts';
import type { NewRide } from '../leasing/transitions.ts';
import { MatcherCrash } from './faults.ts';
import { pairRequests } from './request-round.ts';
import { runRound, type RoundDeps } from './round.ts';

/** The poll that keeps rides moving when no wake-up arrives; quicker while the queue is known to be down. */
const POLL_MS = 1_000;
const POLL_QUEUE_DOWN_MS = 100;
/**
 * After a round of several rides the next one lets more come together, as long as the last one took and no longer than
 * this. At 500 to 800 rides/s that spared a twentieth to a tenth of what a ride costs; it is nothing where rides come one by one.
 */
const REST_MAX_MS = 10;
/** A round that met rows held by others, or failed, isn't repeated sooner. */
const RETRY_MS = 25;
const FAILED_RETRY_MS = 500;

interface Beat {
  isRunning: boolean;
  /** The last round took as many rides as one may: others have waited for longer than who comes now. */
  isBehind: boolean;
  isWoken: boolean;
  startedAtMs: number;
  /** Until then no round starts, so that the next one has more to look at. */
  restsUntilMs: number;
  timer: NodeJS.Timeout | null;
  dueAtMs: number;
}

export interface Matcher {
  readonly wake: (region: number) => void;
  /** Pairs rides that are being requested, if a round of theirs could start now; null: they are the next round's. Never throws. */
  readonly pair: (region: number, rides: readonly NewRide[]) => Promise<Paired | null>;
  /** Stops taking rounds and waits for those under way. */
  readonly stop: () => Promise<void>;
}

export function startMatcher(deps: RoundDeps & { readonly log: Logger; readonly isQueueDown: () => boolean }): Matcher {
  const beats = new Map<number, Beat>();
  const running = new Set<Promise<void>>();
  let isStopped = false;

  const beatOf = (number: number): Beat => {
    let beat = beats.get(number);
    if (beat === undefined) {
      beat = {
        isRunning: false,
        isBehind: false,
        isWoken: false,
        startedAtMs: -Infinity,
        restsUntilMs: -Infinity,
        timer: null,
        dueAtMs: Infinity,
      };
      beats.set(number, beat);
    }
    return beat;
  };

  /** Makes sure that a round starts in `inMs`, or earlier. */
  function schedule(number: number, inMs: number): void {
    const beat = beatOf(number);
    const dueAtMs = performance.now() + inMs;
    if (isStopped || dueAtMs >= beat.dueAtMs) return;
    if (beat.timer !== null) clearTimeout(beat.timer);
    beat.dueAtMs = dueAtMs;
    beat.timer = setTimeout(() => start(number), inMs);
  }

  function start(number: number): void {
    const beat = beatOf(number);
    beat.timer = null;
    beat.dueAtMs = Infinity;
    if (isStopped) return;
    if (beat.isRunning) {
      beat.isWoken = true;
      return;
    }
    beat.isRunning = true;
    beat.isWoken = false;
    const round = run(number, beat).finally(() => {
      beat.isRunning = false;
      running.delete(round);
      if (beat.isWoken) void wake(number);
    });
    running.add(round);
  }

  async function run(number: number, beat: Beat): Promise<void> {
    beat.startedAtMs = performance.now();
    try {
      const region = await deps.regions.byNumber(number);
      if (region === null) return;
      const outcome = await runRound(deps, region);
      beat.isBehind = outcome.isFull;
      const endedAtMs = performance.now();
      const tookMs = endedAtMs - beat.startedAtMs;
      if (outcome.looked > 1) beat.restsUntilMs = endedAtMs + Math.min(tookMs, REST_MAX_MS);
      deps.metrics.roundDuration.observe(tookMs / 1000);
      deps.metrics.roundRides.observe(outcome.looked);
      if (outcome.nextInMs !== null)
        schedule(number, Math.max(outcome.nextInMs, restMs(beat, region), outcome.nextInMs === 0 ? RETRY_MS : 1));
    } catch (error) {
      deps.metrics.roundFailures.inc();
      if (!(error instanceof MatcherCrash)) deps.log.warn({ err: error, region: number }, 'a match round failed');
      schedule(number, FAILED_RETRY_MS);
    }
  }

  /** What is left of the least time between two rounds. */
  const restMs = (beat: Beat, region: Region): number =>
    Math.max(0, Math.max(beat.startedAtMs + region.policy.roundIntervalMs, beat.restsUntilMs) - performance.now());

  async function wake(number: number): Promise<void> {
    const beat = beatOf(number);
    if (beat.isRunning) {
      beat.isWoken = true;
      return;
    }
    const region = await deps.regions.byNumber(number).catch(() => null);
    schedule(number, region === null ? POLL_MS : restMs(beat, region));
  }

  /** Only a ride that is overdue by a poll is nobody's: others' rounds are left to them, as long as they are woken. */
  async function poll(overdueMs: number): Promise<void> {
    for (const { number } of await deps.regions.all()) {
      const { isRunning, dueAtMs } = beatOf(number);
      // A round that is far away may be too late: rides become due sooner than they were, and by a clock that is set.
      if (isRunning || dueAtMs - performance.now() <= POLL_MS) continue;
      if (await transitions.isRideOverdue(deps.sql, number, overdueMs)) schedule(number, 0);
    }
  }

  const pollEveryMs = (): number => (deps.isQueueDown() ? POLL_QUEUE_DOWN_MS : POLL_MS);
  const stopPolling = lookAgain(
    POLL_MS,
    async () => {
      const everyMs = pollEveryMs();
      await poll(everyMs === POLL_MS ? POLL_MS : 0);
      return everyMs;
    },
    (error) => {
      deps.log.warn({ err: error }, 'the poll for waiting rides failed');
      return pollEveryMs();
    },
  );

  async function pair(number: number, rides: readonly NewRide[]): Promise<Paired | null> {
    const region = await deps.regions.byNumber(number).catch(() => null);
    const beat = beatOf(number);
    const startedAtMs = performance.now();
    if (isStopped || region === null || beat.isBehind) return null;
    // Without an interval they needn't wait for a round under way, nor it for them.
    const isRound = region.policy.roundIntervalMs > 0;
    if (isRound && (beat.isRunning || startedAtMs < beat.startedAtMs + region.policy.roundIntervalMs)) return null;
    if (isRound) beat.isRunning = true;
    const end = (areServed: boolean): void => {
      deps.metrics.roundDuration.observe((performance.now() - startedAtMs) / 1000);
      deps.metrics.roundRides.observe(rides.length);
      if (!isRound) return;
      // The next one has its interval from there; of rides that need another, it may start at once.
      if (areServed) beat.startedAtMs = startedAtMs;
      beat.isRunning = false;
      if (beat.isWoken) void wake(number);
    };
    try {
      const { pairings, termsOf } = await pairRequests(deps, region, rides);
      const done = ({ areServed, isContested }: { areServed: boolean; isContested: boolean }): void => {
        deps.supply.answered(region, pairings);
        if (isContested) deps.supply.forget(region);
        end(areServed);
      };
      return { pairs: new Map(pairings.map((pairing) => [pairing.rideId, pairing])), termsOf, done };
    } catch (error) {
      end(false);
      deps.metrics.roundFailures.inc();
      deps.log.warn({ err: error, region: number }, 'rides were requested without being matched');
      return null;
    }
  }

  return {
    wake: (number) => void wake(number),
    pair,
    stop: async () => {
      isStopped = true;
      for (const { timer } of beats.values()) if (timer !== null) clearTimeout(timer);
      await Promise.all([stopPolling(), ...running]);
    },
  };
}
