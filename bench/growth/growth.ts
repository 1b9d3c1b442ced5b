/** The growth benchmark: what a ride costs with more processes, more drivers and a longer past. */
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import postgres from '../../src/database/postgres.ts';
import { findHighestHeld, PROBE_S } from '../city/search.ts';
import { openCity, type RunFigures, tryRate } from '../city/trial.ts';
import { cpuSeconds } from '../cpu.ts';
import { cabrankCycle } from '../leases/cabrank.ts';
import type { Session } from '../leases/contender.ts';
import { type Member, startMember, startTogether, type Verified, verifyRecords } from '../member.ts';
import { addPast } from '../past.ts';
import { canHoldProcesses, CpuQuota } from '../quota.ts';
import { type Spread, spreadOf } from '../spread.ts';

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
  /** Of the database; null where the system doesn't tell. */
  readonly cpuMsPerCycle: Spread | null;
}

export interface GrowthFigures {
  readonly processes: readonly OfProcesses[];
  /** The same with each process of the service held to a part of a core, so that some are free; null where that can't be, or wasn't measured. */
  readonly withFreeCores: { readonly coresEach: number; readonly processes: readonly OfProcesses[] } | null;
  readonly sizes: readonly OfSize[];
}

/** The roles of each process; none named: all of them. */
const DEPLOYMENTS = [
  [''],
  ['api,matcher,sweeper,outbox', 'gateway'],
  ['', ''],
  ['api,matcher,sweeper,outbox', 'api', 'gateway', 'gateway'],
];
/** Of a core for each process of the service: with two of them the database and the load have as much as they use. */
const CORES_EACH = 0.25;
const OF_TWO_AT_MOST = DEPLOYMENTS.filter((processes) => processes.length <= 2);
const CITY_DRIVERS = 2_000;
/** How the cycles are driven. */
const CONNECTIONS = 8;
const SET = 50;
const RUNS = 3;
const START_RATE = 400;
/** Until what rides take is compiled: a process held to a part of a core compiles for minutes, and then that is what is measured. */
const WARM_UP_S = 15;

export async function benchGrowth(options: GrowthOptions): Promise<GrowthFigures> {
  const sizes = await measureSizes(options);
  const processes = await measureDeployments(options, DEPLOYMENTS, null);
  const withFreeCores = canHoldProcesses()
    ? { coresEach: CORES_EACH, processes: await measureDeployments(options, OF_TWO_AT_MOST, CORES_EACH) }
    : null;
  return { processes, withFreeCores, sizes };
}

/** One after another; each process held to so much of a core, if that is given. */
async function measureDeployments(
  options: GrowthOptions,
  deployments: readonly (readonly string[])[],
  coresEach: number | null,
): Promise<OfProcesses[]> {
  const measured: OfProcesses[] = [];
  for (const roles of deployments) measured.push(await measureProcesses(options, roles, coresEach));
  return measured;
}

/** A database of its own, with so many drivers and so long a past. */
interface Site {
  readonly drivers: number;
  readonly history: number;
  readonly databaseUrl: string;
  readonly sql: Sql;
  readonly session: Session;
  readonly cpuS: () => number | null;
}

/** By turns: what the machine does meanwhile happens to all of them. */
async function measureSizes({ drivers, history, seconds, say, signal }: GrowthOptions): Promise<OfSize[]> {
  await using open = new AsyncDisposableStack();
  const sites: Site[] = [];
  for (const [count, past] of [[drivers[0]!, history], ...drivers.map((each) => [each, 0])] as [number, number][]) {
    signal.throwIfAborted();
    sites.push(await openSite(open, count, past));
    say(`  ${count} drivers and ${past} past offers are there`);
  }
  const turns = new Map(sites.map((site) => [site, [] as { rate: number; cpuMs: number | null }[]]));
  for (let run = 0; run < RUNS; run++) {
    for (const site of sites) {
      signal.throwIfAborted();
      const turn = await takeTurn(site, seconds * 1000);
      turns.get(site)!.push(turn);
      say(
        `  ${site.drivers} drivers, ${site.history} past offers: ${Math.round(turn.rate)} cycles/s, ${turn.cpuMs} ms each`,
      );
    }
  }
  const sizes = sites.map((site): OfSize => {
    const cpu = turns.get(site)!.flatMap(({ cpuMs }) => cpuMs ?? []);
    return {
      drivers: site.drivers,
      history: site.history,
      cyclesPerSecond: spreadOf(turns.get(site)!.map(({ rate }) => rate)),
      cpuMsPerCycle: cpu.length === 0 ? null : spreadOf(cpu),
    };
  });
  return sizes.toSorted((a, b) => a.history - b.history);
}

async function openSite(open: AsyncDisposableStack, drivers: number, history: number): Promise<Site> {
  const { databaseUrl, pid } = open.use(await startMember(['database', '--temporary']));
  const { hot } = open.use(connectDatabase(databaseUrl, { hotConnections: CONNECTIONS }));
  const sql = open.adopt(postgres(databaseUrl, { max: 1, onnotice: () => {} }), (pool) => pool.end({ timeout: 2 }));
  if (history > 0) await addPast(databaseUrl, history);
  const contender = cabrankCycle('growth', { sql: hot, connections: CONNECTIONS, drivers, set: SET });
  const session = open.use((await contender.open())!);
  await session.run(1_000);
  await sql`vacuum (analyze)`;
  const cpuS = (): number | null => cpuSeconds(pid)?.children ?? null;
  return { drivers, history, databaseUrl, sql, session, cpuS };
}

/** What was written before isn't its concern, and its first changes of each page are. */
async function takeTurn({ sql, session, cpuS }: Site, ms: number): Promise<{ rate: number; cpuMs: number | null }> {
  await sql`checkpoint`;
  const before = cpuS();
  const { cycles, seconds } = await session.run(ms);
  const after = cpuS();
  const cpuMs = before === null || after === null ? null : Math.round((1e5 * (after - before)) / cycles) / 100;
  return { rate: cycles / seconds, cpuMs };
}

async function measureProcesses(
  { seconds, workers, say, signal }: GrowthOptions,
  processes: readonly string[],
  coresEach: number | null,
): Promise<OfProcesses> {
  await using open = new AsyncDisposableStack();
  const quotas = coresEach === null ? [] : processes.map((_, n) => open.use(new CpuQuota(String(n), coresEach)));
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
  await trial(START_RATE / 4, WARM_UP_S / 3);
  await trial(START_RATE, WARM_UP_S);
  quotas.forEach((quota, n) => quota.hold(services[n]!.pid));
  // Once more: a hiccup of a shared machine isn't what a process holds.
  const twice = async (rate: number, forS: number) => {
    const once = await trial(rate, forS);
    return once.held ? once : trial(rate, forS);
  };
  const found = await findHighestHeld(
    START_RATE,
    (rate) => twice(rate, Math.min(PROBE_S, seconds)),
    (rate) => twice(rate, seconds),
  );
  await load[Symbol.asyncDispose]();
  return { processes, held: found?.outcome ?? null, verify: await verifyRecords(first.databaseUrl) };
}

/** What a deployment holds times what the first one does; null where either holds nothing. */
export const timesFirst = (deployments: readonly OfProcesses[], { held }: OfProcesses): number | null =>
  held === null || deployments[0]!.held === null
    ? null
    : Math.round((100 * held.ratePerS) / deployments[0]!.held.ratePerS) / 100;

export const nameRoles = (roles: string): string => (roles === '' ? 'all' : roles);

const formatProcesses = ({ processes, held, verify }: OfProcesses): string =>
  `       ${processes.map(nameRoles).join(' · ')}: ${held?.ratePerS ?? 0} rides/s held; verify ${verify.violations} violations`;

export const formatGrowth = ({ processes, withFreeCores, sizes }: GrowthFigures): string =>
  [
    ...sizes.map(
      ({ drivers, history, cyclesPerSecond: { median, min, max }, cpuMsPerCycle }) =>
        `growth ${drivers} drivers, ${history} past offers: ${median} cycles/s (${min}–${max}), ${cpuMsPerCycle?.median ?? '?'} ms of the database each`,
    ),
    ...processes.map(formatProcesses),
    ...(withFreeCores === null
      ? ['       (this system holds no process to a part of a core)']
      : [
          `       each process held to ${withFreeCores.coresEach} of a core:`,
          ...withFreeCores.processes.map(formatProcesses),
        ]),
  ].join('\n');
