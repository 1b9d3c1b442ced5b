/** The growth benchmark: what a ride costs with more processes, more drivers and a longer past. */
import { connectDatabase } from '../../src/database/connection.ts';
import postgres from '../../src/database/postgres.ts';
import { findHighestHeld } from '../city/search.ts';
import { openCity, type RunFigures, tryRate } from '../city/trial.ts';
import { cabrankCycle } from '../leases/cabrank.ts';
import { type Member, startMember, startTogether, type Verified, verifyRecords } from '../member.ts';
import { type Spread, spreadOf } from '../spread.ts';
import { addPast } from './past.ts';

export interface GrowthOptions {
  readonly drivers: readonly number[];
  /** Past offers, with their rides, beside the first number of drivers. */
  readonly history: number;
  readonly seconds: number;
  readonly workers: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

interface OfProcesses {
  /** The roles of each. */
  readonly processes: readonly string[];
  /** At the highest rate that they held. */
  readonly held: RunFigures | null;
  readonly verify: Verified;
}

/** Where riders ask, and drivers connect. */
type Front = Member & { readonly socketUrl: string };

interface OfSize {
  readonly drivers: number;
  readonly history: number;
  /** Lease cycles in sets of 50 over 8 connections. */
  readonly cyclesPerSecond: Spread;
}

export interface GrowthFigures {
  readonly processes: readonly OfProcesses[];
  readonly sizes: readonly OfSize[];
}

/** The roles of each process; none named: all of them. */
const DEPLOYMENTS = [
  [''],
  ['api,matcher,sweeper,outbox', 'gateway'],
  ['', ''],
  ['api,matcher,sweeper,outbox', 'api', 'gateway', 'gateway'],
];
const CITY_DRIVERS = 2_000;
const RUNS = 3;
const START_RATE = 400;

export async function benchGrowth(options: GrowthOptions): Promise<GrowthFigures> {
  const { drivers, history, signal, say } = options;
  const sizes: OfSize[] = [];
  for (const [count, past] of [...drivers.map((each) => [each, 0] as const), [drivers[0]!, history] as const]) {
    signal.throwIfAborted();
    const cyclesPerSecond = await measureCycles(options, count, past);
    say(`  ${count} drivers, ${past} past offers: ${cyclesPerSecond.median} cycles/s`);
    sizes.push({ drivers: count, history: past, cyclesPerSecond });
  }
  const processes: OfProcesses[] = [];
  for (const roles of DEPLOYMENTS) processes.push(await measureProcesses(options, roles));
  return { processes, sizes };
}

async function measureCycles({ seconds }: GrowthOptions, drivers: number, history: number): Promise<Spread> {
  await using server = await startMember(['database', '--temporary']);
  await using database = connectDatabase(server.databaseUrl, { hotConnections: 8 });
  await using open = new AsyncDisposableStack();
  const plain = open.adopt(postgres(server.databaseUrl, { max: 1, onnotice: () => {} }), (pool) =>
    pool.end({ timeout: 2 }),
  );
  if (history > 0) await addPast(plain, history);
  const contender = cabrankCycle('growth', { sql: database.hot, connections: 8, drivers, set: 50 });
  const session = open.use((await contender.open())!);
  await session.run(1_000);
  await plain`vacuum (analyze)`;
  const rates: number[] = [];
  for (let run = 0; run < RUNS; run++) {
    const { cycles, seconds: took } = await session.run(seconds * 1000);
    rates.push(cycles / took);
  }
  return spreadOf(rates);
}

async function measureProcesses(
  { seconds, workers, say, signal }: GrowthOptions,
  processes: readonly string[],
): Promise<OfProcesses> {
  await using open = new AsyncDisposableStack();
  const { database, services } = await startTogether(open, processes);
  const having = (role: string): Member[] =>
    services.filter((_, n) => processes[n] === '' || processes[n]!.split(',').includes(role));
  const gateways = having('gateway');
  const [first, ...others] = having('api').map((api, n) => ({ ...api, socketUrl: gateways[n]!.url })) as [
    Front,
    ...Front[],
  ];
  const load = open.use(
    await openCity(first, { drivers: CITY_DRIVERS, workers: Math.max(workers, 1 + others.length) }, others),
  );
  const trial = async (rate: number, forS: number) => {
    signal.throwIfAborted();
    const { figures, problem } = await tryRate({ services, database, workers: load }, rate, forS);
    const { p99 } = figures.requestToOfferMs;
    say(`  ${processes.length} processes, ${Math.round(rate)} rides/s: p99 ${p99} ms, ${problem ?? 'held'}`);
    return { held: problem === null, outcome: figures };
  };
  await trial(100, 4);
  const found = await findHighestHeld(
    START_RATE,
    (rate) => trial(rate, Math.min(5, seconds)),
    (rate) => trial(rate, seconds),
  );
  await load[Symbol.asyncDispose]();
  return { processes, held: found?.outcome ?? null, verify: await verifyRecords(first.databaseUrl) };
}

export const nameRoles = (roles: string): string => (roles === '' ? 'all' : roles);

export const formatGrowth = ({ processes, sizes }: GrowthFigures): string =>
  [
    ...sizes.map(
      ({ drivers, history, cyclesPerSecond: { median, min, max } }) =>
        `growth ${drivers} drivers, ${history} past offers: ${median} cycles/s (${min}–${max})`,
    ),
    ...processes.map(
      ({ processes: roles, held, verify }) =>
        `       ${roles.map(nameRoles).join(' · ')}: ${held?.ratePerS ?? 0} rides/s held; verify ${verify.violations} violations`,
    ),
  ].join('\n');
