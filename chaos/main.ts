/** `cabrank chaos`: load under faults against the real service, and whether its promises held. */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { FAULTS, faultNamed } from './faults/catalog.ts';
import type { Fault } from './faults/fault.ts';
import { describeMachine } from '../bench/machine.ts';
import { createRandom, type Random } from '../domain/random.ts';
import { Missing } from './missing.ts';
import { makeReport } from './report.ts';
import { forgetResults, keepResult, resultOf, writeResult } from './results.ts';
import { type Demand, runChaos, type RunFigures } from './run.ts';

const DEFAULT_SECONDS = 30;
const ALL_MINUTES = 60;
/** Of load under each fault. */
const ALL_SECONDS = 12;
const DRIVERS = 100;
const RIDERS = 150;

const help = `
cabrank chaos NAME [options]

  NAME             a fault, or several joined by + for all at once; \`list\` names them
  ci               100000 operations with kills, pauses and lost replies
  all              every fault, then two at a time; figures to chaos/results/, and the report
    --minutes N                                             60
  report           docs/reliability.md, made from chaos/results/
  list             the faults

  --seconds N      of load with faults                      ${DEFAULT_SECONDS}
  --operations N   until so many were asked, instead
  --seed S         decides the plan of the load and of the faults; a new one unless given
  --history FILE   what every client asked and was told, as JSON lines
  --json FILE      write the figures

Exit code 1: a rule was violated, an answer was 500, or a process ended that nobody killed; 3: all of that held, but
something came too late, or the run was too tame to tell; 4: it couldn't be run.
`;

class Usage extends Error {}

function readArguments(args: string[]) {
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        seconds: { type: 'string' },
        minutes: { type: 'string' },
        operations: { type: 'string' },
        seed: { type: 'string' },
        history: { type: 'string' },
        json: { type: 'string' },
        help: { type: 'boolean' },
      },
    });
    return { ...values, names: positionals };
  } catch (error) {
    throw new Usage((error as Error).message);
  }
}

type Asked = ReturnType<typeof readArguments>;

function wholeNumber(asked: Asked, flag: 'seconds' | 'minutes' | 'operations'): number | null {
  const value = asked[flag];
  if (value === undefined) return null;
  if (!/^[1-9]\d{0,7}$/.test(value)) throw new Usage(`--${flag} must be a whole number, 1 or more: ${value}`);
  return Number(value);
}

const NO_DEMAND: Demand = { operations: 100, kills: 0, stale: 0, lostReplies: 0 };
const CI: Demand = { operations: 100_000, kills: 5, stale: 200, lostReplies: 50 };
const CI_FAULTS = [
  'kill-postgres',
  'lose-replies-driver-api',
  'kill-api',
  'lose-replies-driver-gateway',
  'pause-matcher',
  'kill-gateway',
  'lose-replies-api-postgres',
  'kill-matcher',
  'pause-api',
  'duplicate-rider-api',
  'kill-outbox',
  'pause-gateway',
  'kill-sweeper',
];

function named(name: string): Fault {
  const fault = faultNamed(name);
  if (fault === undefined) throw new Usage(`there is no fault ${name}: \`list\` names them`);
  return fault;
}

interface Plan {
  readonly name: string;
  readonly turns: readonly (readonly Fault[])[];
  readonly seconds: number | null;
  readonly operations: number | null;
  readonly seed: string;
  readonly demand: Demand;
  readonly areTimesJudged: boolean;
}

/** What `NAME` means; of a fault's own name, or several at once, that. */
function planOf(name: string, asked: Asked): Plan {
  const isCi = name === 'ci';
  const operations = wholeNumber(asked, 'operations') ?? (isCi ? CI.operations : null);
  return {
    name,
    turns: isCi ? CI_FAULTS.map((each) => [named(each)]) : [name.split('+').map(named)],
    operations,
    seconds: wholeNumber(asked, 'seconds') ?? (operations === null ? DEFAULT_SECONDS : null),
    seed: asked.seed ?? `${Date.now()}`,
    demand: isCi ? { ...CI, operations: operations! } : NO_DEMAND,
    areTimesJudged: !isCi,
  };
}

/** Null: this machine doesn't have what it takes. */
async function run(plan: Plan, historyFile: string | null, signal: AbortSignal): Promise<RunFigures | null> {
  console.log(`chaos ${plan.name}, seed ${plan.seed}`);
  try {
    const say = (line: string): void => console.log(line);
    const figures = await runChaos({ ...plan, historyFile, ofEach: 2, drivers: DRIVERS, riders: RIDERS, say, signal });
    console.log(format(figures));
    return figures;
  } catch (error) {
    if (!(error instanceof Missing)) throw error;
    console.log(`skipped: ${error.message}`);
    return null;
  }
}

/** Every fault alone, then two at a time as long as there is time, each run's figures kept. */
async function all(asked: Asked, signal: AbortSignal): Promise<number> {
  const seed = asked.seed ?? `${Date.now()}`;
  const untilMs = performance.now() + (wholeNumber(asked, 'minutes') ?? ALL_MINUTES) * 60_000;
  const random = createRandom(seed).fork('pairs');
  const failed: string[] = [];
  await forgetResults();
  for (let i = 0; i < FAULTS.length || performance.now() < untilMs; i++) {
    const name = FAULTS[i]?.name ?? pairOf(random);
    const plan = { ...planOf(name, { ...asked, seed: `${seed}-${i}` }), seconds: ALL_SECONDS, operations: null };
    const figures = await run(plan, null, signal).catch((error: unknown) => {
      signal.throwIfAborted();
      console.log(`FAILED: it couldn't be run: ${String(error)}`);
      failed.push(name);
      return null;
    });
    if (figures === null) continue;
    await keepResult(resultOf(figures, describeMachine()));
    if (figures.problems.length > 0) failed.push(name);
  }
  await report();
  console.log(failed.length === 0 ? 'all held' : `failed: ${failed.join(', ')}`);
  return failed.length === 0 ? 0 : 1;
}

function pairOf(random: Random): string {
  const one = random.pick(FAULTS);
  // Two that take the same thing down would each bring it up for the other.
  const other = random.pick(FAULTS.filter(({ kind, name }) => kind !== one.kind && name !== one.name));
  return `${one.name}+${other.name}`;
}

const DOCUMENT = new URL('../docs/reliability.md', import.meta.url);

async function report(): Promise<number> {
  await writeFile(DOCUMENT, await makeReport());
  return 0;
}

function list(): number {
  for (const { name, what } of FAULTS) console.log(`${name.padEnd(30)} ${what}`);
  return 0;
}

async function chaos(args: string[], signal: AbortSignal): Promise<number> {
  const asked = readArguments(args);
  const [name, ...more] = asked.names;
  if (asked.help === true || name === undefined || more.length > 0) {
    console.log(help.trim());
    return asked.help === true ? 0 : 2;
  }
  if (name === 'list') return list();
  if (name === 'report') return report();
  if (name === 'all') return all(asked, signal);
  const figures = await run(planOf(name, asked), asked.history ?? null, signal);
  if (figures === null) return 0;
  if (asked.json !== undefined) await writeResult(asked.json, resultOf(figures, describeMachine()));
  return exitCodeOf(figures);
}

/** A machine that is too slow is to blame for being late, and for nothing else. */
function exitCodeOf({ verify, serverErrors, endedUnasked, problems }: RunFigures): number {
  if (verify.violations > 0 || serverErrors > 0 || endedUnasked.length > 0) return 1;
  return problems.length > 0 ? 3 : 0;
}

function format(figures: RunFigures): string {
  const { operations, seconds, confirmsUnderFault, kills, stale, lostReplies, verify, problems } = figures;
  const { ridesEndedAfterMs, driversFreeAfterMs } = figures;
  return [
    ...Object.entries(figures.answers).map(([answer, count]) => `  ${String(count).padStart(8)}  ${answer}`),
    ...figures.faults.map(
      ({ name, injected, backMs }) =>
        `  ${name} × ${injected}: back after ${backMs.rest} ms (REST), ${backMs.socket} ms (socket)`,
    ),
    `${operations} operations in ${seconds} s; ${confirmsUnderFault} confirms under fault, ${kills} kills, ${stale} stale confirms, ${lostReplies} lost replies; all rides ended after ${ridesEndedAfterMs ?? '–'} ms, all drivers free after ${driversFreeAfterMs ?? '–'} ms`,
    `verify: ${verify.checked} records, ${verify.violations} violations`,
    ...(problems.length === 0 ? ['all held'] : problems.map((problem) => `FAILED: ${problem}`)),
  ].join('\n');
}

const stop = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const)
  process.once(name, () => stop.abort(new Error(`stopped by ${name}`)));
// All is closed and said by now. What some device may still be about mustn't keep the process: once, after 100,000
// operations, it never ended.
process.exit(
  await chaos(process.argv.slice(2), stop.signal).catch((error: unknown) => {
    console.error(`cabrank chaos: ${error instanceof Error ? error.message : String(error)}`);
    if (process.env['LOG_LEVEL'] === 'debug') console.error(error);
    return error instanceof Usage ? 2 : 4;
  }),
);
