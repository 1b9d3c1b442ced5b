/**
 * `npm run model`: looks at every state of the lease protocol's model (model/lease.pml), takes away each of its conditions
 * in turn, and shows that what it is about does happen. The exit code is 1 if anything isn't as it must be.
 */
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { mismatches, runsOf, type Run } from './runs.ts';
import { execute, MODEL, search, tell, type Result } from './search.ts';

const help = `
npm run model                      every proof, mutation and goal of model/lease.pml; needs spin and gcc
npm run model -- --nightly         with the larger proofs: three offers for each ride, and nothing cut
npm run model -- --tell NAME       the shortest way to what a mutation breaks, or to a goal, step by step
npm run model -- --json            the results as JSON
`;

/** Of all searches that run at a time; a larger one runs alone. */
const MEMORY_BUDGET_MB = 2_000;
const INSTALLED_WITHIN_MS = 10_000;

async function missingPrograms(): Promise<string[]> {
  const missing: string[] = [];
  for (const [program, flag] of [
    ['spin', '-V'],
    ['gcc', '--version'],
  ] as const) {
    const output = await execute(program, [flag], '.', INSTALLED_WITHIN_MS).catch(() => null);
    if (output?.code !== 0) missing.push(program);
  }
  return missing;
}

/** Runs all, in their order, as many at a time as there are cores and memory for. */
async function runAll(runs: readonly Run[], onResult: (result: Result) => void): Promise<Result[]> {
  const cores = availableParallelism();
  const waiting = [...runs];
  const running = new Set<Promise<void>>();
  const results: Result[] = [];
  let memoryMb = 0;
  while (waiting.length > 0 || running.size > 0) {
    const next = waiting[0];
    const fits = running.size < cores && memoryMb + (next?.memoryMb ?? 0) <= MEMORY_BUDGET_MB;
    if (next === undefined || (!fits && running.size > 0)) {
      await Promise.race(running);
      continue;
    }
    waiting.shift();
    memoryMb += next.memoryMb;
    const one: Promise<void> = search(next).then((result) => {
      running.delete(one);
      memoryMb -= next.memoryMb;
      results.push(result);
      onResult(result);
    });
    running.add(one);
  }
  return results;
}

function line({ run, problems, violated, states, depth, searchMs }: Result): string {
  const verdict = problems.length === 0 ? 'ok    ' : 'FAILED';
  const size = `${states.toLocaleString('en').padStart(10)} states ${(searchMs / 1_000).toFixed(1).padStart(6)} s`;
  const outcome = { proof: 'holds', mutation: `caught by ${violated}`, goal: 'shown to happen' }[run.kind];
  const steps = run.kind === 'proof' || run.claim !== null ? '' : `, in ${depth} step${depth === 1 ? '' : 's'}`;
  const said = problems.length === 0 ? `${outcome}${steps}` : problems.join('; ');
  return `${verdict} ${size}  ${run.kind.padEnd(8)} ${run.name}: ${run.kind === 'goal' ? '' : `${run.about}: `}${said}`;
}

function summary(results: readonly Result[]): string {
  const count = (kind: Run['kind']): string => {
    const all = results.filter(({ run }) => run.kind === kind);
    return `${all.filter(({ problems }) => problems.length === 0).length} of ${all.length}`;
  };
  return `model: ${count('proof')} proofs hold, ${count('mutation')} mutations caught, ${count('goal')} goals shown`;
}

const asJson = ({ run, problems, violated, states, depth, searchMs }: Result): object => ({
  kind: run.kind,
  name: run.name,
  claim: run.claim,
  ok: problems.length === 0,
  problems,
  violated,
  states,
  depth,
  searchMs: Math.round(searchMs),
});

async function check(isNightly: boolean, isJson: boolean): Promise<number> {
  const model = await readFile(MODEL, 'utf8');
  const wrong = mismatches(model);
  for (const each of wrong) console.error(`model: ${each}`);
  const results = await runAll(runsOf(model, isNightly), (result) => {
    if (!isJson) console.log(line(result));
  });
  console.log(isJson ? JSON.stringify(results.map(asJson), null, 2) : summary(results));
  return wrong.length === 0 && results.length > 0 && results.every(({ problems }) => problems.length === 0) ? 0 : 1;
}

async function tellOne(name: string): Promise<number> {
  const runs = runsOf(await readFile(MODEL, 'utf8'), false).filter(({ kind }) => kind !== 'proof');
  const run = runs.find((each) => each.name === name);
  if (run === undefined) {
    const names = [...new Set(runs.map((each) => each.name))];
    console.error(`model: no mutation or goal is called ${name}. There are: ${names.join(', ')}`);
    return 2;
  }
  console.log(`${run.name}: ${run.about}\n${await tell(run)}`);
  return 0;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      nightly: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      tell: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    console.log(help.trim());
    return 0;
  }
  const missing = await missingPrograms();
  if (missing.length > 0) {
    console.error(`model: ${missing.join(' and ')} can't be run. On Debian: apt-get install spin gcc libc6-dev`);
    return 2;
  }
  return values.tell === undefined ? check(values.nightly, values.json) : tellOne(values.tell);
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))) throw error;
  console.error(`model: ${error.message}\n${help.trimEnd()}`);
  process.exitCode = 2;
}
