/** `npm run check`: everything that CI checks. The last line is the tests' count, from the runner's own report. */
import { spawn } from 'node:child_process';
import { cp, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const STEP_DEADLINE_MS = 45 * 60_000;

interface Outcome {
  readonly ok: boolean;
  readonly output: string;
}

function run(command: string, args: string[], cwd = root, show = false): Promise<Outcome> {
  return new Promise((resolve) => {
    const child = spawn(command, args, {
      cwd,
      stdio: ['ignore', 'pipe', 'pipe'],
      signal: AbortSignal.timeout(STEP_DEADLINE_MS),
    });
    const chunks: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        chunks.push(chunk);
        if (show) process.stdout.write(chunk);
      });
    }
    child.once('error', (error) => resolve({ ok: false, output: String(error) }));
    child.once('close', (code) => resolve({ ok: code === 0, output: Buffer.concat(chunks).toString() }));
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

/** Generating again must bring nothing new: done on a copy, so that the tree stays as it is. */
const migrationsUpToDate = (): Promise<Outcome> =>
  inTemporary(async (folder) => {
    for (const part of ['migrations', 'src', 'domain', 'drizzle.config.ts', 'package.json', 'tsconfig.json']) {
      await cp(join(root, part), join(folder, part), { recursive: true });
    }
    await symlink(join(root, 'node_modules'), join(folder, 'node_modules'));
    const before = await readdir(join(folder, 'migrations'));
    const generated = await run('drizzle-kit', ['generate'], folder);
    const after = await readdir(join(folder, 'migrations'));
    const made = after.filter((name) => !before.includes(name));
    return made.length === 0
      ? generated
      : { ok: false, output: `src/database/schema.ts has changes that no migration makes:\n${generated.output}` };
  });

async function openApiUpToDate(): Promise<Outcome> {
  const { ok, output } = await run(process.execPath, ['src/main.ts', 'openapi']);
  const committed = await readFile(join(root, 'docs/openapi.json'), 'utf8');
  if (!ok || output.trim() === committed.trim()) return { ok, output };
  return { ok: false, output: 'docs/openapi.json is not what `node src/main.ts openapi` prints' };
}

interface TestReport {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly success: boolean;
}

/** The count comes from the report; a run that executed nothing has failed. */
const tests = (): Promise<Outcome & { readonly count: string }> =>
  inTemporary(async (folder) => {
    const report = join(folder, 'report.json');
    const { ok, output } = await run(
      'vitest',
      ['run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`],
      root,
      true,
    );
    const counts = await readFile(report, 'utf8').then(
      (text) => JSON.parse(text) as TestReport,
      () => null,
    );
    if (counts === null) return { ok: false, output, count: '0 passed, 1 failed' };
    const { numPassedTests: passed, numFailedTests: failed, numPendingTests: skipped, success } = counts;
    const count = `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`;
    return { ok: ok && success && passed > 0, output: '', count };
  });

async function step<O extends Outcome>(name: string, work: () => Promise<O>): Promise<O> {
  const startedAtMs = performance.now();
  const outcome = await work();
  console.log(
    `${outcome.ok ? 'ok    ' : 'FAILED'} ${name} (${((performance.now() - startedAtMs) / 1000).toFixed(1)} s)`,
  );
  if (!outcome.ok) console.log(outcome.output);
  return outcome;
}

const quick = await Promise.all([
  step('types', () => run('tsc', ['--noEmit'])),
  step('lint', () => run('oxlint', ['--type-aware'])),
  step('format', () => run('oxfmt', ['--check'])),
  step('migrations up to date', migrationsUpToDate),
  step('OpenAPI up to date', openApiUpToDate),
]);
const tested = await step('tests, boundaries and hot plans among them', tests);
process.exitCode = [...quick, tested].every(({ ok }) => ok) ? 0 : 1;
console.log(tested.count);
