/**
 * `npm run check`: types, lint, format, migrations, the API's description, the tests. The quick steps run side by side; then the tests, boundaries and hot plans
 * among them, have the machine to themselves. Every step runs whatever the others found, so that one run tells all that
 * is wrong. The last line is the tests' count, from the runner's own report.
 */
import { spawn } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { countTests, type TestReport } from './test-count.ts';

const help = `
npm run check       types, lint, format, migrations and OpenAPI up to date, tests; exit code 1 if any of it fails
`;

const root = fileURLToPath(new URL('..', import.meta.url));
const QUICK_DEADLINE_MS = 5 * 60_000;
const TESTS_DEADLINE_MS = 45 * 60_000;

interface Outcome {
  readonly ok: boolean;
  /** Shown when the step failed. */
  readonly output: string;
}

interface RunOptions {
  readonly cwd?: string;
  readonly deadlineMs?: number;
  /** Shown while it runs, and not kept. */
  readonly live?: boolean;
}

/** Runs a program of the project; past its deadline it is killed, and has failed. */
function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
  const { cwd = root, deadlineMs = QUICK_DEADLINE_MS, live = false } = options;
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, PATH: `${join(root, 'node_modules/.bin')}${delimiter}${process.env['PATH'] ?? ''}` },
      stdio: live ? ['ignore', 'inherit', 'inherit'] : ['ignore', 'pipe', 'pipe'],
      timeout: deadlineMs,
      killSignal: 'SIGKILL',
    });
    const chunks: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.once('error', (error) => resolve({ ok: false, output: String(error) }));
    child.once('close', (code, signal) => {
      if (signal !== null) chunks.push(Buffer.from(`\n${command} was ended by ${signal}`));
      resolve({ ok: code === 0, output: Buffer.concat(chunks).toString() });
    });
  });
}

async function inTemporary<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-check-'));
  try {
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Generating again must bring nothing new: done on a copy, so that the tree stays as it is. drizzle-kit's exit code
 * tells nothing (it is 0 after an exception, too), so what counts is that it says there is nothing to do.
 */
const migrationsUpToDate = (): Promise<Outcome> =>
  inTemporary(async (folder) => {
    for (const part of ['migrations', 'src', 'domain', 'drizzle.config.ts', 'package.json', 'tsconfig.json']) {
      await cp(join(root, part), join(folder, part), { recursive: true });
    }
    await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
    const before = await readdir(join(folder, 'migrations'));
    const { ok, output } = await run('drizzle-kit', ['generate'], { cwd: folder });
    const made = (await readdir(join(folder, 'migrations'))).filter((name) => !before.includes(name));
    if (ok && made.length === 0 && output.includes('No schema changes')) return { ok, output };
    const scripts = await Promise.all(made.map((name) => readFile(join(folder, 'migrations', name), 'utf8')));
    const problem =
      made.length > 0
        ? 'src/database/schema.ts has changes that no migration makes:'
        : "drizzle-kit doesn't say that the migrations make src/database/schema.ts (it asks when something has a new name):";
    const remedy = 'Make the migration with: npx drizzle-kit generate --name WHAT_IT_DOES';
    return { ok: false, output: [problem, output, ...scripts, remedy].join('\n') };
  });

async function openApiUpToDate(): Promise<Outcome> {
  const { ok, output } = await run(process.execPath, ['--no-warnings', 'src/main.ts', 'openapi']);
  if (!ok) return { ok, output };
  const committed = await readFile(join(root, 'docs/openapi.json'), 'utf8').catch(() => '');
  if (output === committed) return { ok, output };
  const [now, then] = [output.split('\n'), committed.split('\n')];
  const line = now.findIndex((text, index) => text !== then[index]);
  return {
    ok: false,
    output: [
      `docs/openapi.json isn't what the code says, from line ${line + 1} on:`,
      `  committed: ${then[line] ?? '(nothing)'}`,
      `  the code:  ${now[line] ?? '(nothing)'}`,
      'Make it again with: npx cabrank openapi > docs/openapi.json',
    ].join('\n'),
  };
}

const tests = (): Promise<Outcome & { readonly count: string }> =>
  inTemporary(async (folder) => {
    const file = join(folder, 'report.json');
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${file}`];
    const { ok } = await run('vitest', ['run', '--allowOnly=false', ...reporters], {
      deadlineMs: TESTS_DEADLINE_MS,
      live: true,
    });
    const report = await readFile(file, 'utf8').then(
      (text) => JSON.parse(text) as TestReport,
      () => null,
    );
    const count = countTests(report);
    return { ok: ok && count.ok, output: count.problems.join('\n'), count: count.line };
  });

async function step<O extends Outcome>(name: string, work: () => Promise<O>): Promise<O & { readonly name: string }> {
  const startedAtMs = performance.now();
  const outcome = await work();
  const seconds = ((performance.now() - startedAtMs) / 1_000).toFixed(1);
  console.log(`${outcome.ok ? 'ok    ' : 'FAILED'}  ${seconds.padStart(6)} s  ${name}`);
  if (!outcome.ok && outcome.output !== '') console.log(`${outcome.output.trimEnd()}\n`);
  return { ...outcome, name };
}

async function check(): Promise<number> {
  const quick = await Promise.all([
    step('types', () => run('tsc', ['--noEmit'])),
    step('lint', () => run('oxlint', ['--type-aware', '--deny-warnings'])),
    step('format', () => run('oxfmt', ['--check'])),
    step('migrations up to date', migrationsUpToDate),
    step('OpenAPI up to date', openApiUpToDate),
  ]);
  const tested = await step('tests, boundaries and hot plans among them', tests);
  const failed = [...quick, tested].filter(({ ok }) => !ok);
  if (failed.length > 0) console.log(`failed: ${failed.map(({ name }) => name).join('; ')}`);
  console.log(tested.count);
  return failed.length === 0 ? 0 : 1;
}

const args = process.argv.slice(2);
if (args.length === 0) process.exitCode = await check();
else {
  const isHelp = args[0] === '--help' || args[0] === '-h';
  (isHelp ? console.log : console.error)(isHelp ? help.trim() : `check has no option ${args[0]}\n${help.trimEnd()}`);
  process.exitCode = isHelp ? 0 : 2;
}
