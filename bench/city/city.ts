/**
 * The city benchmark: the highest rate of whole ride cycles that the service holds, over real HTTP and real sockets,
 * and in the same run the floor: the same transitions one at a time, with no service around them.
 */
import type { Policy } from '../../domain/policy.ts';
import { type Member, startTogether, type Verified, verifyRecords } from '../member.ts';
import type { Percentiles } from '../percentiles.ts';
import { type FloorFigures, measureFloor } from './floor.ts';
import { findHighestHeld, PROBE_S, type Trial } from './search.ts';
import { openCity, POLICY, type RunFigures, tryRate } from './trial.ts';

export interface CityOptions {
  readonly holdS: number;
  readonly drivers: number;
  readonly workers: number;
  /** This rate alone, instead of looking for the highest. */
  readonly ratePerS: number | null;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface CityFigures {
  /** The highest rate of whole ride cycles that held. */
  readonly ridesPerSecond: number;
  /** The best of the numbers of connections, one transition at a time on each. */
  readonly floorRidesPerSecond: number;
  readonly ratio: number;
  readonly settings: {
    readonly holdS: number;
    readonly drivers: number;
    readonly workers: number;
    /** The roles of each process. */
    readonly processes: readonly string[];
  } & Pick<Policy, 'roundIntervalMs' | 'matching' | 'positionIntervalMs'>;
  readonly held: RunFigures | null;
  /** At shares of that rate: 25 %, 50 %, 80 %. */
  readonly below: readonly RunFigures[];
  readonly floor: FloorFigures;
  readonly verify: Verified;
}

const START_RATE = 200;
const SHARES = [0.25, 0.5, 0.8];
const SHARE_S = 10;
/** What riders ask and what drivers say, each on a core of its own: one process carries as much as one core does. */
const PROCESSES = ['api,matcher,sweeper,outbox', 'gateway'];
const WARM_UP = { ratePerS: 100, seconds: 5 };

export async function benchCity(options: CityOptions): Promise<CityFigures> {
  const { say, signal, holdS, drivers, workers } = options;
  say('floor: the transitions one at a time, no service around them …');
  const before = await measureFloor(say, signal);
  const { held, below, verify } = await measureService(options);
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
      processes: PROCESSES,
      roundIntervalMs: POLICY.roundIntervalMs,
      matching: POLICY.matching,
      positionIntervalMs: POLICY.positionIntervalMs,
    },
    held,
    below,
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
  ratePerS,
}: CityOptions): Promise<{ held: RunFigures | null; below: RunFigures[]; verify: Verified }> {
  say(`city: the service, ${drivers} drivers over sockets, ${workerCount} load processes …`);
  await using open = new AsyncDisposableStack();
  const { database, services } = await startTogether(open, PROCESSES);
  const [api, gateway] = services as [Member, Member];
  const where = { url: api.url, authSecret: api.authSecret, socketUrl: gateway.url };
  const workers = open.use(await openCity(where, { drivers, workers: workerCount }));
  const trial = async (rate: number, seconds: number): Promise<Trial<RunFigures>> => {
    signal.throwIfAborted();
    const { figures, problem } = await tryRate({ services, database, workers }, rate, seconds);
    say(`  ${formatRun(figures)}: ${problem ?? 'held'}`);
    return { held: problem === null, outcome: figures };
  };
  await trial(WARM_UP.ratePerS, WARM_UP.seconds);
  const found =
    ratePerS === null
      ? await findHighestHeld(
          START_RATE,
          (rate) => trial(rate, Math.min(PROBE_S, holdS)),
          (rate) => trial(rate, holdS),
        )
      : await trial(ratePerS, holdS);
  const held = found?.outcome ?? null;
  const below: RunFigures[] = [];
  if (held !== null && ratePerS === null)
    for (const share of SHARES) below.push((await trial(Math.round(share * held.ratePerS), SHARE_S)).outcome);
  await workers[Symbol.asyncDispose]();
  say('verifying the records …');
  return { held, below, verify: await verifyRecords(database.databaseUrl) };
}

function formatRun({ ratePerS, requestToOfferMs, confirmMs, cpuMsPerRide, memoryMb }: RunFigures): string {
  const ms = ({ p50, p95, p99 }: Percentiles): string => `${p50} / ${p95} / ${p99}`;
  const cpu =
    cpuMsPerRide === null
      ? ''
      : `, CPU ${cpuMsPerRide.service.join(' + ')} + ${cpuMsPerRide.database} (+ ${cpuMsPerRide.load}) ms a ride`;
  return `${String(ratePerS).padStart(5)} rides/s: request→offer ${ms(requestToOfferMs)} ms, confirm ${ms(confirmMs)} ms${cpu}, ${memoryMb.service.map((mb) => mb ?? '?').join(' + ')} MB`;
}

export function formatCity({
  ridesPerSecond,
  floorRidesPerSecond,
  ratio,
  held,
  below,
  floor,
  verify,
}: CityFigures): string {
  return [
    `city   ${ridesPerSecond} rides/s held`,
    ...[...below, ...(held === null ? [] : [held])].map((run) => `       ${formatRun(run)}`),
    '       (p50 / p95 / p99; CPU of the service’s processes + database, the load’s in parentheses; the service’s own memory)',
    `floor  ${floorRidesPerSecond} rides/s one at a time over ${floor.connections} connections`,
    `ratio  ${ratio}`,
    `verify ${verify.violations} violations of ${verify.checked} records`,
  ].join('\n');
}
