/** docs/benchmarks.md, made from the figures in bench/results/. */
import type { CityFigures } from './city/city.ts';
import type { RunFigures } from './city/trial.ts';
import type { GatewayFigures } from './gateway/gateway.ts';
import { type GrowthFigures, nameRoles, timesFirst } from './growth/growth.ts';
import { headlines } from './headlines.ts';
import { type HerdFigures, timesQuiet } from './herd/herd.ts';
import type { IdleFigures } from './idle/idle.ts';
import type { LeasesFigures } from './leases/leases.ts';
import type { Machine } from './machine.ts';
import type { Percentiles } from './percentiles.ts';
import { type AllResults, type Measured, readResults, type Results, RESULTS } from './results.ts';
import type { RoundFigures } from './round/round.ts';
import { type Cell, show, showExcess } from './show.ts';
import type { VerifyFigures } from './verify/verify.ts';

/** Of the last versions that were measured on a machine with as many. */
const FOUR_CORES = new URL('4-cores/', RESULTS);

/** A section for each result that is there, of the other machine where this one has none. */
export async function makeReport(): Promise<string> {
  const [here, there] = await Promise.all([readResults(RESULTS), readResults(FOUR_CORES)]);
  const section = <Name extends keyof Results>(
    name: Name,
    write: (figures: Measured<Results[Name]>) => string,
  ): string[] => {
    const figures = here[name] ?? there[name];
    if (figures === undefined) return [];
    const heading = here[name] === undefined ? ` (${figures.machine.cores} cores, an earlier version)` : '';
    return [write(figures).replace(/^## .*/, `$&${heading}`)];
  };
  const sections = [
    section('city', ({ machine }) => intro(machine)),
    section('city', ({ machine }) => headlinesSection(machine, here, there)),
    section('leases', leasesSection),
    section('city', citySection),
    section('round', roundSection),
    section('herd', herdSection),
    section('gateway', gatewaySection),
    section('growth', growthSection),
    section('verify', verifySection),
    section('idle', idleSection),
  ];
  return `${sections.flat().join('\n\n')}\n`;
}

function table(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const lines = [head, head.map(() => '---'), ...rows.map((row) => row.map(show))];
  return lines.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

const percentiles = ({ p50, p95, p99 }: Percentiles): string => `${show(p50)} / ${show(p95)} / ${show(p99)}`;

const intro = ({ cpu, cores, memoryGb, node, os }: Machine): string => `# Benchmarks

Made by \`npm run bench -- report\` from the figures in \`bench/results/\`, which \`npm run bench\` writes; one alone by
\`npm run bench -- NAME --json bench/results/NAME.json\`. ${cpu}, ${cores} shared cores,
${memoryGb} GB, Node ${node}, ${os}, where nothing else is said: service, embedded PostgreSQL 18 and load generator all on them. PostgreSQL everywhere with \`fsync=on\`,
\`synchronous_commit=on\`, \`full_page_writes=on\`. Machines like this one are shared and noisy: the ratios within a run say more than
the absolute figures. The embedded server is built for size (\`-Os\`); by turns with 18.6 built with \`-O2\`, as distributions build it, a
lease cycle in sets of 50 took it 0.41 ms of a processor instead of 0.36.`;

const headlinesSection = ({ cores }: Machine, here: AllResults, there: AllResults): string => `## In short

${table(['', `${cores} cores`, '4 cores, earlier versions'], headlines(here, there))}`;

function leasesSection({ contenders, connections, drivers, seconds, disk, soak }: LeasesFigures): string {
  return `## Lease cycles

Lease → confirm → release of distinct drivers, by turns of ${seconds} s; ${show(drivers)} driver rows. Cabrank's cycle records everything that the service
records (ride, offer, assignment, events) with every constraint on, and proves at each step that the term is still one's own. A
queue's cycle is add, take, complete; a lock's is acquire, release. The ratio is to Cabrank one at a time over 8 connections, as its
sets have; one at a time it was measured over ${connections}, too.

${table(
  ['', 'cycles/s', 'lowest–highest', 'ratio', 'durability', 'driven'],
  contenders.map(({ name, cyclesPerSecond, ratio, durability, driven }) => [
    name,
    cyclesPerSecond?.median,
    cyclesPerSecond === null ? 'not on this machine' : `${show(cyclesPerSecond.min)}–${show(cyclesPerSecond.max)}`,
    ratio,
    durability,
    driven,
  ]),
)}

A cycle in sets of 50 writes ${show(disk.walBytesPerCycle)} bytes of WAL; ${(100 * disk.hotShare).toFixed(1)} % of the updates of driver rows are HOT. After ${show(soak.seconds)} s of it,
${show(soak.cyclesPerSecond)} cycles/s in bursts: ${Object.entries(soak.deadRows)
    .map(([name, rows]) => `${name} ${show(rows)}`)
    .join(', ')} dead rows, and driver rows take ${soak.driverStateMb} MB.

What bounds it: in sets the database's processor time, about 0.4 ms a cycle, most of it the row versions and index entries of five
tables. pg-boss and both on Redis are ahead because they do less: pg-boss moves 500 jobs with three statements and asks nobody to
prove that a job is still his; on Redis a cycle is a few keys without a history, appended to one file by one thread.`;
}

const cityRow = (what: string, run: RunFigures): Cell[] => [
  what,
  run.ratePerS,
  percentiles(run.requestToOfferMs),
  percentiles(run.confirmMs),
  cpuOf(run),
  run.cpuMsPerRide?.load,
  run.memoryMb.service.join(' + '),
];

const cpuOf = ({ cpuMsPerRide: cpu }: RunFigures): string | null =>
  cpu === null ? null : [...cpu.service, cpu.database].join(' + ');

function citySection({ held, below, floor, ratio, ridesPerSecond, settings, verify }: CityFigures): string {
  return `## City

Whole rides over real HTTP and real websockets, the service as ${settings.processes.length} processes (${settings.processes.map((roles) => `\`${roles}\``).join(' and ')}): requests at an
even rate, ${show(settings.drivers)} drivers who accept at once and finish at once; rounds without a pause between them, and \`retryMs\` of 100. The
highest rate held for ${settings.holdS} s with p99 request→offer-on-the-device under 500 ms: **${show(ridesPerSecond)} rides/s**, ${ratio} times the floor (the same
transitions one at a time with no service around them, the best of 4, 8, 16 and 32 connections: ${show(floor.ridesPerSecond)} rides/s over ${floor.connections}).
\`verify\`: ${verify.violations} violations of ${show(verify.checked)} records.

${table(
  [
    '',
    'rides/s',
    'request→offer p50 / p95 / p99 ms',
    'confirm ms',
    'CPU ms a ride, service’s processes + database',
    'load',
    'service MB',
  ],
  [...below.map((run, i) => cityRow(`${[25, 50, 80][i]} %`, run)), ...(held === null ? [] : [cityRow('held', held)])],
)}

What bounds it: the processors, of which the load generator has its share, and how far they carry changes from minute to minute on a
shared machine. Beyond the highest rate every step waits in line, a ride keeps its driver for seconds, and drivers run out. Below the
highest rate a ride costs more, because sets are smaller: a transaction of one costs the database about as much as one of five.
Here, for the floor, and for the herd the database has the WAL files beforehand that one has which has run for a while: making each
new one holds up everybody who commits.`;
}

function roundSection({ cases, demand, candidatesMax }: RoundFigures): string {
  return `## Match round

From a snapshot of rides and drivers to pairs, ${candidatesMax} candidates each, positions of ${demand}; then the leases in sets of 50. The
optimum is over all pairs of ride and driver, by a dense solver (shortest augmenting paths).

${table(
  [
    'rides × drivers',
    '`nearest` ms',
    '`batch` ms',
    'lowest–highest',
    'leases ms',
    'to the pickup s: `nearest`, `batch`',
    'over the optimum',
    'dense ms',
    'linear-sum-assignment ms',
  ],
  cases.map(({ rides, drivers, nearestMs, batchMs, leaseMs, meanEtaS, overOptimum, others }) => [
    `${show(rides)} × ${show(drivers)}`,
    nearestMs.median,
    batchMs.median,
    `${batchMs.min}–${batchMs.max}`,
    leaseMs,
    `${meanEtaS.nearest}, ${meanEtaS.batch}`,
    overOptimum === null ? null : showExcess(overOptimum),
    others.dense,
    others.linearSumAssignment,
  ]),
)}

Where rides crowd, their nearest drivers aren't enough: \`batch\` asks those, too, whom a look from above allots to them (decisions/0020).
Over all that were asked it is the optimum. What it takes longer than \`nearest\` are that look and the shortest augmenting paths.`;
}

const herdSection = (h: HerdFigures): string => `## Expiry herd

${show(h.leases)} leases that end within the same second while ${h.confirmsPerSecond} confirms a second go on over HTTP: all free ${show(h.allFreeAfterMs)} ms after that second.
Confirms' p99 is ${h.quietMs.map(({ p99 }) => p99).join(', ')} ms in quiet windows and ${h.herdMs.p99} ms in the herd's: ${h.p99Ratio} times the median. Beside loops that do
nothing but keep the cores busy, one for each and no herd at all, it is ${h.busyMs.p99} ms: ${timesQuiet(h.busyMs, h.quietMs)} times.

What bounds it: two lanes free sets of 100 terms, a transaction each, with all that is recorded of every one: 0.08 to 0.1 ms of a core a term, nearly all of it
the database's. On 2 cores both are busy meanwhile, which alone costs a confirm what the loops show: each step of a confirm (to the service, to the database and back, to the driver) waits up to 4 ms for one, the
kernel's tick, and who comes meanwhile waits for the set before. Confirms' p99 was 30 ms beside one lane (13 runs, medians), 42 beside two (2) and 51 beside three (5), and all were free after
3.1, 1.9 and 1.9 s; in slower hours 24 to 108 ms and 4.1 to 5.2 s beside one, 34 to 88 ms and 2.1 to 3.5 s beside two, 5 to 12 times the quiet p99. Beside one, V8 collects the
service's heap in the midst of it, 140 ms with helper threads on the same cores: in the run that was looked into all confirms above 28 ms were of those. None is faster with lanes of a lower priority (nice 10 and
19, \`SCHED_IDLE\`, \`SCHED_BATCH\`), lanes that wait while a confirm is under way or join when the herd is late, sets of 50, no rest between sets of confirms, one helper thread or none, a larger
young generation, or even \`fsync=off\`. What the making of the leases wrote is on disk before they end.`;

const gatewaySection = (g: GatewayFigures): string => `## Gateway

${show(g.drivers)} drivers connected to one process, each with a position every ${show(g.positionIntervalMs)} ms: ${g.cpu?.gateway ?? '–'} of a core (database ${g.cpu?.database ?? '–'}), ${show(g.memoryMb)} MB,
${show(g.memoryKbPerDriver)} kB a driver. Offers pushed meanwhile (${g.ridesPerSecond} rides/s, by another process): p50 / p95 / p99 ${percentiles(g.requestToOfferMs)} ms from the request. All cut at once, each has its state again after p50 / p95 / p99 ${percentiles(g.reconnectMs)} ms, the last after ${show(g.reconnectMs.max)} ms.
The gateway killed with \`SIGKILL\` and started again at once, ${g.killed.offers} of the drivers with an offer that they haven't answered: each
has its state, and its offer, ${percentiles(g.killed.reconnectMs)} ms after the kill, the last after ${show(g.killed.reconnectMs.max)} ms.

What bounds it: on 2 cores the load generator's one process needs most of that time to begin ten thousand connections. From the first that reached the
gateway to the last that was told its state were 3 to 6 s.`;

const processesTable = (deployments: GrowthFigures['processes']): string =>
  table(
    [
      'roles of each process',
      'rides/s held',
      'times the first',
      'request→offer p50 / p95 / p99 ms',
      'CPU ms a ride, service + database',
      'load',
      'violations',
    ],
    deployments.map((deployment) => {
      const { processes, held, verify } = deployment;
      return [
        processes.map(nameRoles).join(' · '),
        held?.ratePerS ?? 0,
        timesFirst(deployments, deployment),
        held === null ? null : percentiles(held.requestToOfferMs),
        held === null ? null : cpuOf(held),
        held?.cpuMsPerRide?.load,
        verify.violations,
      ];
    }),
  );

const growthSection = ({ processes, withFreeCores, sizes }: GrowthFigures): string => `## Growth

Lease cycles in sets of 50, each on a database of its own, by turns.

${table(
  ['drivers', 'past offers', 'cycles/s', 'lowest–highest', 'CPU ms of the database a cycle', 'lowest–highest'],
  sizes.map(({ drivers, history, cyclesPerSecond, cpuMsPerCycle }) => [
    drivers,
    history,
    cyclesPerSecond.median,
    `${show(cyclesPerSecond.min)}–${show(cyclesPerSecond.max)}`,
    cpuMsPerCycle?.median,
    cpuMsPerCycle === null ? null : `${cpuMsPerCycle.min}–${cpuMsPerCycle.max}`,
  ]),
)}

The city with more processes, the database and the load generator on the same cores.

${processesTable(processes)}
${withFreeCores === null ? '' : freeCores(withFreeCores)}
What bounds it: a second process pays where it takes a role over; the figures are of one run, as the machine was. Two with all roles cost the
database up to half as much again: their sets are half as large, and both look at the same rides. Where the database and the load generator take the rest
of the cores there are none left for four. In five runs with free cores two by roles held 1.78 to 2.28 times one; two with all roles 1.8 to 2.23 times in three of
them, and 0.74 and 1.09 in two, in which a try at 400 rides/s had failed once (the figures' run tries twice): below that their sets are so small that
250 rides/s take them as much as 500.`;

const freeCores = ({ coresEach, processes }: NonNullable<GrowthFigures['withFreeCores']>): string => `
As long as cores are free: the same with each process of the service held to ${coresEach} of a core by a control group's quota, so that the
database and the load generator have what they ask for.

${processesTable(processes)}
`;

const verifySection = ({ machine, connections, pasts }: Measured<VerifyFigures>): string => `## Verify

\`cabrank verify\` of a past, over ${connections} connections on ${machine.cores} cores, and what it takes to read the same records once (\`COPY\` of the four tables, over
as many connections, to a reader that drops them), before.

${table(
  ['rides', 'offers each', 'verify s', 'read s', 'ratio', 'read MB', 'records checked', 'violations'],
  pasts.map((past) => [
    past.rides,
    past.offersEach,
    past.verifyS,
    past.readS,
    past.ratio,
    past.readMb,
    past.checked,
    past.violations,
  ]),
)}

What bounds it: the server's processors, and of those how many they are. A ride of one offer that went smoothly is told by one condition; one with a
declined offer is judged in detail (decisions/0021).`;

const idleSection = ({ drivers, seconds, alone, silent, positions, positionIntervalMs }: IdleFigures): string => {
  const row = (what: string, { cpu, transactionsPerSecond, wakeUpsPerSecond }: IdleFigures['alone']): Cell[] => [
    what,
    cpu?.service,
    cpu?.database,
    transactionsPerSecond,
    wakeUpsPerSecond,
  ];
  return `## Idle

${seconds} s with nothing to do, shares of one core.

${table(
  ['', 'service', 'database', 'transactions/s', 'wake-ups/s of the service'],
  [
    row('nobody connected', alone),
    row(`${show(drivers)} silent drivers`, silent),
    row(`${show(drivers)} drivers, a position every ${show(positionIntervalMs)} ms`, positions),
  ],
)}`;
};
