/** One search of the model: spin makes a program of it, gcc compiles that, and it is run, each with a deadline. */
import { spawn } from 'node:child_process';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readPan, type PanReport, type Unreached } from './pan.ts';
import { DEPTH_MAX, STATEMENT_BY_STATEMENT, type Run } from './runs.ts';

export const MODEL = fileURLToPath(new URL('lease.pml', import.meta.url));

export interface Result {
  readonly run: Run;
  /** Why the run shows nothing, or that what it shows is bad news; none: it is as it must be. */
  readonly problems: readonly string[];
  readonly violated: string | null;
  readonly states: number;
  readonly depth: number;
  /** Of the search alone, on a wall clock. */
  readonly searchMs: number;
}

interface Output {
  readonly code: number | null;
  readonly text: string;
}

/** Rejects when the program can't be started, with the code `ENOENT` if there is none. */
export function execute(command: string, args: readonly string[], cwd: string, deadlineMs: number): Promise<Output> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      cwd,
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: deadlineMs,
      killSignal: 'SIGKILL',
    });
    const chunks: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, text: Buffer.concat(chunks).toString() }));
  });
}

/** A process that never ends never reaches its end. Nothing else may be unreached. */
const isExpected = ({ statement }: Unreached): boolean => statement === '-end-';

export async function search(run: Run): Promise<Result> {
  return inFolder(async (folder) => {
    const failed = await build(run, folder);
    if (failed !== null) return { run, problems: [failed], violated: null, states: 0, depth: 0, searchMs: 0 };
    const startedAtMs = performance.now();
    const { text } = await execute(join(folder, 'pan'), panArgs(run), folder, run.deadlineMs);
    const searchMs = performance.now() - startedAtMs;
    const report = readPan(text);
    const { violated, states, depth } = report;
    const problems = judge(run, report);
    if (searchMs >= run.deadlineMs) problems.push(`it was stopped after ${run.deadlineMs / 1_000} s`);
    return { run, problems, violated, states, depth, searchMs };
  });
}

/** The shortest way to what a mutation breaks, or to a goal, told by the model itself. */
export async function tell(run: Run): Promise<string> {
  return inFolder(async (folder) => {
    const failed = await build(run, folder);
    if (failed !== null) return failed;
    await execute(join(folder, 'pan'), panArgs(run), folder, run.deadlineMs);
    const args = ['-t', '-T', '-B', ...defines(run), 'lease.pml'];
    return story((await execute('spin', args, folder, run.deadlineMs)).text);
  });
}

/** spin goes on behind what failed, and says more of itself than of the model. */
function story(replay: string): string {
  const lines = replay.split('\n').map((text) => text.trim());
  const end = lines.findIndex((text) => text.startsWith('spin: text of failed assertion'));
  return (end < 0 ? lines : lines.slice(0, end + 1))
    .filter((text) => text !== '' && (!text.startsWith('spin:') || text.includes('failed assertion')))
    .map((text) => text.replace('spin: text of failed assertion: ', '→ '))
    .join('\n');
}

/** Null, or why there is no program to run. */
async function build(run: Run, folder: string): Promise<string | null> {
  await copyFile(MODEL, join(folder, 'lease.pml'));
  const made = await execute('spin', [...spinArgs(run), '-a', 'lease.pml'], folder, run.deadlineMs);
  if (made.code !== 0) return `spin: ${made.text.trim()}`;
  const compiled = await execute('gcc', [...gccArgs(run), '-o', 'pan', 'pan.c'], folder, run.deadlineMs);
  return compiled.code === 0 ? null : `gcc: ${compiled.text.trim()}`;
}

const defines = (run: Run): string[] => run.defines.map((name) => `-D${name}`);

/** -o3: statements aren't merged. Of merged ones, as of those in a d_step, pan never says that it didn't reach them. */
const spinArgs = (run: Run): string[] =>
  run.defines.includes(STATEMENT_BY_STATEMENT) ? ['-o3', ...defines(run)] : defines(run);

function gccArgs({ kind, search: order, claim, memoryMb }: Run): string[] {
  // What is found soon isn't worth compiling well.
  const common = [kind === 'proof' ? '-O2' : '-O0', '-w', `-DMEMLIM=${memoryMb}`];
  // Without NFAIR=3 there may be no more than six processes.
  if (claim !== null) return [...common, '-DNFAIR=3'];
  return order === 'breadth' ? [...common, '-DSAFETY', '-DBFS'] : [...common, '-DSAFETY'];
}

/** -a -f: cycles under weak fairness; -A: the assertions are another run's. -w22: a small table, which grows. */
const panArgs = ({ claim }: Run): string[] => [
  `-m${DEPTH_MAX}`,
  '-w22',
  ...(claim === null ? [] : ['-a', '-f', '-A', '-N', claim]),
];

/** What speaks against a run: why its report can't be believed, or what it found in place of what it should. */
export function judge(run: Run, report: PanReport): string[] {
  const problems = [...report.problems];
  const { claim, violates, statesMin } = run;
  if (claim === null && !report.checks.has('assertion violations')) problems.push('assertions were not checked');
  if (claim !== null && report.checks.get('never claim') !== claim) problems.push(`${claim} was not checked`);
  if (claim !== null && report.checks.get('acceptance cycles') !== 'fairness enabled')
    problems.push('cycles were not looked for under weak fairness');
  if (report.violated !== violates)
    problems.push(violates === null ? `broken: ${report.violated}` : `found ${report.violated ?? 'nothing'}`);
  if (violates !== null) return problems;
  if (!report.isExhaustive) problems.push('the search was not exhaustive');
  if (report.states < statesMin) problems.push(`only ${report.states} states, of at least ${statesMin}`);
  for (const unreached of report.unreached.filter((each) => !isExpected(each)))
    problems.push(`never reached: ${unreached.process}, line ${unreached.line}: ${unreached.statement}`);
  return problems;
}

async function inFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-model-'));
  try {
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
