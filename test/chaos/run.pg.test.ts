/** A short run, so that what the long ones stand on works: real processes, one kill, and the history of it. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { faultNamed } from '../../chaos/faults/catalog.ts';
import { runChaos, type RunOptions } from '../../chaos/run.ts';
import { historyLine } from '../../src/verify/history.ts';

const options: Omit<RunOptions, 'historyFile' | 'demand'> = {
  areTimesJudged: false,
  name: 'kill-postgres',
  turns: [[faultNamed('kill-postgres')!]],
  seconds: null,
  operations: 1_500,
  seed: 'a short run',
  ofEach: 1,
  drivers: 40,
  riders: 60,
  say: () => {},
  signal: new AbortController().signal,
};

test('a database killed under load: nothing promised is broken, everything asked is in the history, and too little of something is said', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-test-'));
  try {
    const historyFile = join(folder, 'history.jsonl');
    // More lost answers than there can be: a run that was too tame fails.
    const demand = { operations: 1_500, kills: 1, stale: 1, lostReplies: 1_000_000 };
    const figures = await runChaos({ ...options, historyFile, demand });
    // How soon it is back is for a machine that does nothing else.
    const problems = figures.problems.filter((problem) => !problem.includes('was served only'));
    expect(problems).toEqual([expect.stringMatching(/^too tame: \d+ lostReplies, 1000000 are demanded$/)]);
    expect(figures.verify.violations).toBe(0);
    expect(figures.verify.checked).toBeGreaterThan(1_000);

    const lines = (await readFile(historyFile, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => historyLine.parse(JSON.parse(line)));
    expect(lines[0]).toMatchObject({ kind: 'run', seed: 'a short run' });
    expect(lines.at(-1)).toMatchObject({ kind: 'end' });
    expect(lines.filter(({ kind }) => kind === 'fault').length).toBeGreaterThan(0);
    const commands = lines.filter((line) => line.kind === 'command');
    expect(commands).toHaveLength(figures.operations);
    expect(new Set(commands.map(({ id }) => id)).size).toBe(commands.length);
    const ids = new Set(commands.map(({ id }) => id));
    expect(commands.filter(({ repeats }) => repeats !== undefined && !ids.has(repeats))).toEqual([]);
    expect(commands.some(({ command, isStale }) => command === 'confirm' && isStale === true)).toBe(true);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}, 120_000);
