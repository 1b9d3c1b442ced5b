import { expect, test } from 'vitest';
import { GroupCommit, OverloadedError, TakenBackError } from '../../src/leasing/group-commit.ts';

interface Answer {
  readonly refused: string | null;
  readonly item: string;
}
interface Run {
  readonly items: string[];
  readonly wait: boolean;
  readonly answer: (refuse?: (item: string) => string | null) => void;
  readonly fail: (error: Error) => void;
}

/** A group commit whose sets end when the test says so. */
function open(keyOf: (item: string) => string | null = () => null) {
  const runs: Run[] = [];
  const waiting: (() => void)[] = [];
  const group = new GroupCommit<string, Answer>({
    keyOf,
    run: (_region, items, wait) =>
      new Promise((resolve, reject) => {
        const answer = (refuse: (item: string) => string | null = () => null): void =>
          resolve(items.map((item) => ({ item, refused: refuse(item) })));
        runs.push({ items, wait, answer, fail: reject });
        for (const wake of waiting.splice(0)) wake();
      }),
  });
  const nextRun = async (at: number): Promise<Run> => {
    while (runs[at] === undefined) await new Promise<void>((wake) => waiting.push(wake));
    return runs[at];
  };
  return { group, runs, nextRun };
}

const numbered = (count: number, from = 0): string[] => Array.from({ length: count }, (_, i) => `item-${from + i}`);

test('when idle, a request waits for nobody', async () => {
  const { group, nextRun } = open();
  const asked = group.submit(1, 'a');
  const run = await nextRun(0);
  expect(run).toMatchObject({ items: ['a'], wait: false });
  run.answer();
  expect(await asked).toEqual({ item: 'a', refused: null });
});

test('while a set is under way the next one fills; only whole ones start beside it, three at a time', async () => {
  const { group, runs, nextRun } = open();
  const first = group.submit(1, 'first');
  await nextRun(0);
  const late = numbered(49).map((item) => group.submit(1, item));
  await new Promise(setImmediate);
  expect(runs).toHaveLength(1);
  late.push(...numbered(121, 49).map((item) => group.submit(1, item)));
  expect((await nextRun(1)).items).toEqual(numbered(50));
  expect((await nextRun(2)).items).toEqual(numbered(50, 50));
  expect(runs).toHaveLength(3);
  runs[1]!.answer();
  expect((await nextRun(3)).items).toEqual(numbered(50, 100));
  for (const run of runs) run.answer();
  const rest = await nextRun(4);
  expect(rest.items).toEqual(numbered(20, 150));
  rest.answer();
  expect((await Promise.all([first, ...late])).map(({ item }) => item)).toEqual(['first', ...numbered(170)]);
});

test('after a set that was shared the next one gathers a little; after one that wasn’t it starts at once', async () => {
  const { group, runs, nextRun } = open();
  const alone = group.submit(1, 'alone');
  (await nextRun(0)).answer();
  await alone;
  const pair = [group.submit(1, 'a'), group.submit(1, 'b')];
  (await nextRun(1)).answer();
  await Promise.all(pair);
  const gathered = [group.submit(1, 'c')];
  await new Promise(setImmediate);
  expect(runs).toHaveLength(2);
  gathered.push(group.submit(1, 'd'));
  expect((await nextRun(2)).items).toEqual(['c', 'd']);
  runs[2]!.answer();
  await Promise.all(gathered);
});

test('regions do not wait for each other', async () => {
  const { group, nextRun } = open();
  const asked = [group.submit(1, 'a'), group.submit(2, 'b')];
  (await nextRun(0)).answer();
  (await nextRun(1)).answer();
  expect(await Promise.all(asked)).toHaveLength(2);
});

test('equal items of a set are asked once and share the answer', async () => {
  const { group, nextRun } = open((item) => item);
  const asked = [group.submit(1, 'a'), group.submit(1, 'a'), group.submit(1, 'b')];
  const run = await nextRun(0);
  expect(run.items).toEqual(['a', 'b']);
  run.answer();
  expect((await Promise.all(asked)).map(({ item }) => item)).toEqual(['a', 'a', 'b']);
});

test('an equal item that comes after its twin has started is asked again', async () => {
  const { group, nextRun } = open((item) => item);
  const first = group.submit(1, 'a');
  const run = await nextRun(0);
  const second = group.submit(1, 'a');
  run.answer();
  (await nextRun(1)).answer();
  expect(await Promise.all([first, second])).toHaveLength(2);
});

test('a busy item waits on its own, and holds up neither its set nor those after', async () => {
  const { group, nextRun } = open();
  const [held, free] = [group.submit(1, 'held'), group.submit(1, 'free')];
  (await nextRun(0)).answer((item) => (item === 'held' ? 'busy' : null));
  expect(await free).toMatchObject({ refused: null });
  const waiting = await nextRun(1);
  expect(waiting).toMatchObject({ items: ['held'], wait: true });
  const later = group.submit(1, 'later');
  (await nextRun(2)).answer();
  expect(await later).toMatchObject({ refused: null });
  waiting.answer();
  expect(await held).toEqual({ item: 'held', refused: null });
});

test('an item whose wait ends at the lock timeout is answered busy', async () => {
  const { group, nextRun } = open();
  const held = group.submit(1, 'held');
  (await nextRun(0)).answer(() => 'busy');
  (await nextRun(1)).fail(Object.assign(new Error('lock timeout'), { code: '55P03' }));
  expect(await held).toMatchObject({ refused: 'busy' });
});

test('a set that fails is split until the bad item alone fails', async () => {
  const group = new GroupCommit<string, Answer>({
    keyOf: () => null,
    run: async (_region, items) => {
      if (items.includes('item-13')) throw new RangeError('a bad item');
      return items.map((item) => ({ item, refused: null }));
    },
  });
  const outcomes = await Promise.allSettled(numbered(50).map((item) => group.submit(1, item)));
  const failed = outcomes.flatMap(({ status }, i) => (status === 'rejected' ? [i] : []));
  expect(failed).toEqual([13]);
});

test('when the database is unreachable the whole set hears it, and is not tried again', async () => {
  const { group, runs, nextRun } = open();
  const asked = numbered(3).map((item) => group.submit(1, item));
  const gone = Object.assign(new Error('gone'), { code: 'ECONNREFUSED' });
  (await nextRun(0)).fail(gone);
  expect(await Promise.allSettled(asked)).toEqual(asked.map(() => ({ status: 'rejected', reason: gone })));
  expect(runs).toHaveLength(1);
});

test('more than can be queued is refused at once', async () => {
  const { group, nextRun } = open();
  const asked = [group.submit(1, 'a')];
  await nextRun(0);
  for (const item of numbered(20_000)) asked.push(group.submit(1, item));
  await expect(group.submit(1, 'one too many')).rejects.toBeInstanceOf(OverloadedError);
  const settled = Promise.allSettled(asked);
  for (let at = 0; at < 401; at += 1) (await nextRun(at)).answer();
  expect((await settled).every(({ status }) => status === 'fulfilled')).toBe(true);
});

test('what waits for its set can be taken back; what is under way, or somebody counts on, can’t', async () => {
  const { group, nextRun } = open((item) => item);
  const underWay = group.submit(1, 'under way', false);
  const run = await nextRun(0);
  const takenBack = group.submit(1, 'taken back', false);
  const shared = [group.submit(1, 'shared', false), group.submit(1, 'shared')];
  const other = group.submit(1, 'other');
  expect(['under way', 'taken back', 'shared', 'never asked for'].map((item) => group.takeBack(1, item))).toEqual([
    false,
    true,
    false,
    false,
  ]);
  await expect(takenBack).rejects.toThrow(TakenBackError);
  run.answer();
  const next = await nextRun(1);
  expect(next.items).toEqual(['shared', 'other']);
  next.answer();
  expect((await Promise.all([underWay, ...shared, other])).map(({ item }) => item)).toEqual([
    'under way',
    'shared',
    'shared',
    'other',
  ]);
});
