import { expect, test, vi } from 'vitest';
import { gather } from '../../src/database/gather.ts';

/** A read whose statements end when told to. */
function heldRead() {
  const statements: { keys: string[]; end: (failed?: Error) => void }[] = [];
  const read = gather<string>(
    (keys) =>
      new Promise((resolve, reject) => {
        const found = new Map(keys.filter((key) => key !== 'nobody').map((key) => [key, `of ${key}`]));
        statements.push({ keys, end: (failed) => (failed === undefined ? resolve(found) : reject(failed)) });
      }),
  );
  return { statements, read };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('keys that are asked for together are read together, and each gets its own value, or null', async () => {
  const { statements, read } = heldRead();
  const values = Promise.all(['a', 'nobody', 'b', 'a'].map(read));
  await turn();
  expect(statements.map(({ keys }) => keys)).toEqual([['a', 'nobody', 'b', 'a']]);
  statements[0]!.end();
  expect(await values).toEqual(['of a', null, 'of b', 'of a']);
});

test('what is asked for while a statement is under way is read by a later one', async () => {
  const { statements, read } = heldRead();
  const first = read('a');
  await turn();
  const second = read('a');
  await turn();
  expect(statements).toHaveLength(1);
  statements[0]!.end();
  await first;
  await turn();
  expect(statements).toHaveLength(2);
  statements[1]!.end();
  expect(await second).toBe('of a');
});

test('a thousand keys are read a hundred at a time, two statements at once', async () => {
  const { statements, read } = heldRead();
  const values = Promise.all(Array.from({ length: 1_000 }, (_, i) => read(`k${i}`)));
  for (let ended = 0; ended < 10; ended++) {
    await turn();
    expect(statements.length - ended).toBeLessThanOrEqual(2);
    statements[ended]!.end();
  }
  expect(new Set(await values).size).toBe(1_000);
  expect(statements.map(({ keys }) => keys.length)).toEqual(Array.from({ length: 10 }, () => 100));
});

test('a statement that fails fails those it was for, and nobody after them', async () => {
  const { statements, read } = heldRead();
  const lost = Promise.allSettled([read('a'), read('b')]);
  await turn();
  statements[0]!.end(new Error('gone'));
  expect((await lost).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  const value = read('a');
  await turn();
  statements[1]!.end();
  expect(await value).toBe('of a');
});

test('a statement that never ends holds up nobody for long', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const { statements, read } = heldRead();
  void read('a');
  await turn();
  const value = read('b');
  await turn();
  expect(statements).toHaveLength(1);
  vi.advanceTimersByTime(250);
  await turn();
  expect(statements).toHaveLength(2);
  statements[1]!.end();
  expect(await value).toBe('of b');
  // Its end, at last, changes nothing.
  statements[0]!.end();
  await turn();
  void read('c');
  await turn();
  expect(statements).toHaveLength(3);
  vi.useRealTimers();
});
