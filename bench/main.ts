/** `cabrank bench`: figures of this machine, each beside what it is to be compared with in the same run. */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { benchCity, formatCity } from './city/city.ts';
import { benchGateway, formatGateway } from './gateway/gateway.ts';
import { benchGrowth, formatGrowth } from './growth/growth.ts';
import { benchHerd, formatHerd } from './herd/herd.ts';
import { benchIdle, formatIdle } from './idle/idle.ts';
import { benchJobs, formatJobs, isSound as isJobsSound } from './jobs/jobs.ts';
import { benchLeases, formatLeases } from './leases/leases.ts';
import { describeMachine, type Machine } from './machine.ts';
import { makeReport } from './report.ts';
import { RESULTS } from './results.ts';
import { benchRound, formatRound } from './round/round.ts';
import { benchVerify, formatVerify } from './verify/verify.ts';

const help = `
cabrank bench [NAME] [options]

  city             the highest rate of whole ride cycles that the service holds over real HTTP and sockets,
                   and the same transitions one at a time with no service around them
    --seconds N      how long the rate has to be held            60
    --rate N         this rate alone
    --drivers N      drivers connected                           2000
    --workers N      processes that make the load                half of the cores

  leases           whole lease cycles a second, one at a time and in sets, beside others' locks and queues
    --seconds N      of each turn                                5
    --runs N         turns of each                               3
    --drivers N      rows                                        100000
    --soak N         seconds of it before dead rows are counted  600

  round            from rides and drivers to pairs and leases, against the exact optimum and other solvers
    --demand FILE    real trips                                  a made-up city
    --sizes LIST     rides                                       100,1000,5000,20000
    --runs N                                                     5

  herd             leases that end within the same second, while drivers go on accepting
    --leases N                                                   50000

  gateway          drivers on one process: their positions, offers to them, all of them coming back at once
    --drivers N                                                  10000
    --seconds N                                                  20

  growth           the city with more processes, lease cycles with more drivers and a longer past
    --history N      past offers                                 10000000
    --seconds N      of each turn                                10

  verify           a long past verified, beside reading the same records
    --history N      past rides of one offer each                10000000

  idle             a service with nothing to do
    --drivers N      connected                                   1000
    --seconds N                                                  60

  jobs             resource leases: takeovers after kills, pauses and resignations, many renewals, a herd that
                   expires, a crowd that waits
    --seconds N      how long the renewals go on                 60
    --faults N       of each kind                                5

  report           docs/benchmarks.md, made from bench/results/; without a NAME all of the above are run before it

  --json FILE      write the figures
`;

class Usage extends Error {}

function readArguments(args: string[]) {
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'string' },
        seconds: { type: 'string' },
        drivers: { type: 'string' },
        workers: { type: 'string' },
        faults: { type: 'string' },
        rate: { type: 'string' },
        leases: { type: 'string' },
        history: { type: 'string' },
        runs: { type: 'string' },
        soak: { type: 'string' },
        demand: { type: 'string' },
        sizes: { type: 'string' },
        help: { type: 'boolean' },
      },
    });
    return { ...values, names: positionals };
  } catch (error) {
    throw new Usage((error as Error).message);
  }
}

type Asked = ReturnType<typeof readArguments>;

function wholeNumber(
  asked: Asked,
  flag: 'seconds' | 'drivers' | 'workers' | 'faults' | 'history' | 'leases' | 'rate' | 'runs' | 'soak',
  otherwise: number,
): number {
  const value = asked[flag];
  if (value === undefined) return otherwise;
  if (!/^[1-9]\d{0,7}$/.test(value)) throw new Usage(`--${flag} must be a whole number, 1 or more: ${value}`);
  return Number(value);
}

interface Outcome {
  readonly figures: object;
  readonly text: string;
  /** Nothing was violated or lost, and there is a figure at all. */
  readonly isSound: boolean;
}

interface Surroundings {
  readonly machine: Machine;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

async function city(asked: Asked, { machine, say, signal }: Surroundings): Promise<Outcome> {
  const figures = await benchCity({
    holdS: wholeNumber(asked, 'seconds', 60),
    ratePerS: asked.rate === undefined ? null : wholeNumber(asked, 'rate', 1),
    drivers: wholeNumber(asked, 'drivers', 2_000),
    workers: wholeNumber(asked, 'workers', Math.max(1, machine.cores >> 1)),
    say,
    signal,
  });
  return {
    figures,
    text: formatCity(figures),
    isSound: figures.verify.violations === 0 && figures.ridesPerSecond > 0,
  };
}

async function jobs(asked: Asked, { say, signal }: Surroundings): Promise<Outcome> {
  const seconds = wholeNumber(asked, 'seconds', 60);
  const figures = await benchJobs({ seconds, faults: wholeNumber(asked, 'faults', 5), say, signal });
  return { figures, text: formatJobs(figures), isSound: isJobsSound(figures) };
}

async function leases(asked: Asked, { say, signal }: Surroundings): Promise<Outcome> {
  const figures = await benchLeases({
    drivers: wholeNumber(asked, 'drivers', 100_000),
    connections: 32,
    seconds: wholeNumber(asked, 'seconds', 5),
    runs: wholeNumber(asked, 'runs', 3),
    soakS: wholeNumber(asked, 'soak', 600),
    say,
    signal,
  });
  return { figures, text: formatLeases(figures), isSound: true };
}

async function herd(asked: Asked, { say, signal }: Surroundings): Promise<Outcome> {
  const figures = await benchHerd({ leases: wholeNumber(asked, 'leases', 50_000), say, signal });
  return { figures, text: formatHerd(figures), isSound: true };
}

async function gateway(asked: Asked, { machine, say, signal }: Surroundings): Promise<Outcome> {
  const figures = await benchGateway({
    drivers: wholeNumber(asked, 'drivers', 10_000),
    workers: wholeNumber(asked, 'workers', Math.max(1, machine.cores >> 1)),
    seconds: wholeNumber(asked, 'seconds', 20),
    say,
    signal,
  });
  return { figures, text: formatGateway(figures), isSound: true };
}

async function growth(asked: Asked, { machine, say, signal }: Surroundings): Promise<Outcome> {
  const figures = await benchGrowth({
    drivers: [10_000, 100_000, 1_000_000],
    history: wholeNumber(asked, 'history', 10_000_000),
    seconds: wholeNumber(asked, 'seconds', 10),
    workers: wholeNumber(asked, 'workers', Math.max(1, machine.cores >> 1)),
    say,
    signal,
  });
  const deployments = [...figures.processes, ...(figures.withFreeCores?.processes ?? [])];
  const violations = deployments.reduce((sum, { verify }) => sum + verify.violations, 0);
  return { figures, text: formatGrowth(figures), isSound: violations === 0 };
}

async function idle(asked: Asked, { say, signal }: Surroundings): Promise<Outcome> {
  const figures = await benchIdle({
    drivers: wholeNumber(asked, 'drivers', 1_000),
    seconds: wholeNumber(asked, 'seconds', 60),
    say,
    signal,
  });
  return { figures, text: formatIdle(figures), isSound: true };
}

async function verifyPasts(asked: Asked, { machine, say, signal }: Surroundings): Promise<Outcome> {
  const rides = wholeNumber(asked, 'history', 10_000_000);
  const figures = await benchVerify({ rides, connections: machine.cores, say, signal });
  return { figures, text: formatVerify(figures), isSound: figures.pasts.every(({ violations }) => violations === 0) };
}

async function round(asked: Asked, { say, signal }: Surroundings): Promise<Outcome> {
  const sizes = (asked.sizes ?? '100,1000,5000,20000').split(',').map(Number);
  if (!sizes.every((size) => Number.isInteger(size) && size > 0)) throw new Usage('--sizes must be whole numbers');
  const repeats = wholeNumber(asked, 'runs', 5);
  const figures = await benchRound({ demandFile: asked.demand ?? null, sizes, repeats, say, signal });
  return { figures, text: formatRound(figures), isSound: true };
}

const DOCUMENT = new URL('../docs/benchmarks.md', import.meta.url);

async function report(): Promise<number> {
  await writeFile(DOCUMENT, await makeReport());
  return 0;
}

const benches: Readonly<Record<string, (asked: Asked, around: Surroundings) => Promise<Outcome>>> = {
  city,
  leases,
  round,
  herd,
  gateway,
  growth,
  verify: verifyPasts,
  idle,
  jobs,
};

async function bench(args: string[], signal: AbortSignal): Promise<number> {
  const asked = readArguments(args);
  if (asked.help === true) {
    console.log(help.trim());
    return 0;
  }
  const [name, ...more] = asked.names;
  if (name === 'report' && more.length === 0) return report();
  if (name !== undefined && (!Object.hasOwn(benches, name) || more.length > 0))
    throw new Usage(`the name of one benchmark is needed: ${Object.keys(benches).join(', ')}\n${help}`);
  if (name !== undefined) return runBench(name, asked, asked.json ?? null, signal);
  let worst = 0;
  for (const each of Object.keys(benches))
    worst = Math.max(worst, await runBench(each, asked, new URL(`${each}.json`, RESULTS), signal));
  await report();
  return worst;
}

async function runBench(name: string, asked: Asked, file: string | URL | null, signal: AbortSignal): Promise<number> {
  const machine = describeMachine();
  console.log(`${machine.cpu}, ${machine.cores} cores, ${machine.memoryGb} GB, Node ${machine.node}, ${machine.os}`);
  const { figures, text, isSound } = await benches[name]!(asked, { machine, say: (line) => console.log(line), signal });
  console.log(text);
  if (file !== null) await writeFile(file, `${JSON.stringify({ name, machine, ...figures }, null, 2)}\n`);
  return isSound ? 0 : 1;
}

const stop = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const)
  process.once(name, () => stop.abort(new Error(`stopped by ${name}`)));
process.exitCode = await bench(process.argv.slice(2), stop.signal).catch((error: unknown) => {
  console.error(`cabrank bench: ${error instanceof Error ? error.message : String(error)}`);
  return error instanceof Usage ? 2 : 1;
});
