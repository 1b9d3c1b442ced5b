/**
 * The SQL against its specification: random commands go to both, and every answer and every row has to agree; of commands
 * that were asked at the same time, with some order in which one came after the other.
 */
import { afterAll, expect, test } from 'vitest';
import { createTestDatabase } from '../support/database.ts';
import { checkConcurrency, checkSequences, openLane, type Met } from './agreement.ts';
import { runs } from './commands.ts';

const AT_ONCE = 4;
const SEQUENCES = runs(2_000, 600);
const CONCURRENT = runs(1_000, 200);

const database = await createTestDatabase();
const lanes = await Promise.all(Array.from({ length: AT_ONCE }, (_, n) => openLane(database.url, `lane-${n}`)));
afterAll(async () => {
  await Promise.all(lanes.map((lane) => lane[Symbol.asyncDispose]()));
  await database[Symbol.asyncDispose]();
});

test(
  `${SEQUENCES} sequences of commands, one after the other and in sets: the database answers and records as specified`,
  { timeout: 1_800_000 },
  async () => {
    await Promise.all(lanes.map((lane) => checkSequences(lane, { numRuns: Math.ceil(SEQUENCES / AT_ONCE) })));
  },
);

test(
  `${CONCURRENT} sets of commands asked at the same time: what is answered and recorded has an order in which it is specified`,
  { timeout: 1_800_000 },
  async () => {
    const play = { numRuns: Math.ceil(CONCURRENT / AT_ONCE) };
    const all = await Promise.all(lanes.map((lane) => checkConcurrency(lane, play)));
    const sum = (of: keyof Met): number => all.reduce((total, met) => total + met[of], 0);
    // Commands that never met would show nothing, nor would those that were all turned away.
    expect(sum('waited')).toBeGreaterThan(sum('sequences') / 8);
    expect(sum('busy')).toBeGreaterThan(0);
    expect(sum('busy')).toBeLessThan(sum('answered') / 3);
  },
);
