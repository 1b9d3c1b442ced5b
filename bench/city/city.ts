/**
 * The city benchmark: the highest rate of whole ride cycles that the service holds, over real HTTP and real sockets,
 * and in the same run the floor: the same transitions one at a time, with no service around them.
 */
import type { Policy } from '../../domain/policy.ts';
import { startMember, type Verified, verifyRecords } from '../member.ts';
import type { Percentiles } from '../percentiles.ts';
import { type FloorFigures, measureFloor } from './floor.ts';
import { findHighestHeld, type Trial } from './search.ts';
import { openCity, POLICY, type RunFigures, tryRate } from './trial.ts';

export interface CityOptions {
  readonly holdS: number;
  readonly drivers: number;
  readonly workers: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface CityFigures {
  /** The highest rate of whole ride cycles that held. */
  readonly ridesPerSecond: number;
  /** The best of the numbers of connections, one transition at a time on each. */
  readonly floorRidesPerSecond: number;
  readonly ratio: number;
  readonly settings: { readonly holdS: number; readonly drivers: number; readonly workers: number } & Pick<
    Policy,
    'roundIntervalMs' | 'matching' | 'positionIntervalMs'
  >;
  readonly held: RunFigures | null;
  readonly floor: FloorFigures;
  readonly verify: Verified;
}

const START_RATE = 200;
const PROBE_S = 5;
const WARM_UP = { ratePerS: 100, seconds: 5 };

export async function benchCity(options: CityOptions): Promise<CityFigures> {
  const { say, signal, holdS, drivers, workers } = options;
  say('floor: the transitions one at a time, no service around them …');
  const before = await measureFloor(say, signal);
  const { held, verify } = await measureService(options);
  say('floor, once more …');
  const after = await measureFloor(say, signal);
  const floor = after.ridesPerSecond > before.ridesPerSecond ? after : before;
  const ridesPerSecond = held?.ratePerS ?? 0;
  return {
    ridesPerSecond,
    floorRidesPerSecond: floor.ridesPerSecond,
    ratio: Math.round((100 * ridesPerSecond) / floor.ridesPerSecond) / 100,
    settings: {
      holdS,
      drivers,
      workers,
      roundIntervalMs: POLICY.roundIntervalMs,
      matching: POLICY.matching,
      positionIntervalMs: POLICY.positionIntervalMs,
    },
    held,
    floor,
    verify,
  };
}

async function measureService({
  say,
  signal,
  holdS,
  drivers,
  workers: workerCount,
}: CityOptions): Promise<{ held: RunFigures | null; verify: Verified }> {
  say(`city: the service, ${drivers} drivers over sockets, ${workerCount} load processes …`);
  await using service = await startMember(['serve', '--temporary']);
  await using workers = await openCity(service, { drivers, workers: workerCount });
  const trial = async (ratePerS: number, seconds: number): Promise<Trial<RunFigures>> => {
    signal.throwIfAborted();
    const { figures, problem } = await tryRate(workers, ratePerS, seconds);
    const { p50, p99 } = figures.requestToOfferMs;
    say(
      `  ${ratePerS.toFixed(0).padStart(6)} rides/s for ${seconds} s: request→offer p50 ${p50} p99 ${p99} ms: ${problem ?? 'held'}`,
    );
    return { held: problem === null, outcome: figures };
  };
  await trial(WARM_UP.ratePerS, WARM_UP.seconds);
  const found = await findHighestHeld(
    START_RATE,
    (rate) => trial(rate, Math.min(PROBE_S, holdS)),
    (rate) => trial(rate, holdS),
  );
  await workers[Symbol.asyncDispose]();
  say('verifying the records …');
  return { held: found?.outcome ?? null, verify: await verifyRecords(service.databaseUrl) };
}

export function formatCity({ ridesPerSecond, floorRidesPerSecond, ratio, held, floor, verify }: CityFigures): string {
  const ms = ({ p50, p95, p99 }: Percentiles): string => `p50 ${p50}, p95 ${p95}, p99 ${p99} ms`;
  return [
    `city   ${ridesPerSecond} rides/s held`,
    ...(held === null
      ? []
      : [
          `       request→offer ${ms(held.requestToOfferMs)}; confirm ${ms(held.confirmMs)}; sent late ${ms(held.lateMs)}`,
        ]),
    `floor  ${floorRidesPerSecond} rides/s one at a time over ${floor.connections} connections`,
    `ratio  ${ratio}`,
    `verify ${verify.violations} violations of ${verify.checked} records`,
  ].join('\n');
}
