import { expect, test } from 'vitest';
import { Turns } from '../../src/gateway/turns.ts';

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('work is done in order, so much with each turn of the event loop', async () => {
  const turns = new Turns(2);
  const done: number[] = [];
  for (const piece of [1, 2, 3, 4, 5]) turns.take(() => done.push(piece));
  expect(done).toEqual([]);
  await turn();
  expect(done).toEqual([1, 2]);
  expect(turns.waiting).toBe(3);
  turns.take(() => done.push(6));
  await turn();
  await turn();
  expect(done).toEqual([1, 2, 3, 4, 5, 6]);
  expect(turns.waiting).toBe(0);
});

test('work that comes after a pause is taken up as well', async () => {
  const turns = new Turns(2);
  const done: number[] = [];
  turns.take(() => done.push(1));
  await turn();
  turns.take(() => done.push(2));
  await turn();
  expect(done).toEqual([1, 2]);
});
