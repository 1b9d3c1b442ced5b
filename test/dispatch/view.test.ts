import { expect, test } from 'vitest';
import type { SeenDriver } from '../../src/leasing/transitions.ts';
import { View } from '../../src/dispatch/view.ts';

const driver = (cell: number, nth: number): SeenDriver => ({
  driverId: `d${cell}-${nth}`,
  position: { lat: cell, lng: nth },
  vehicleClass: 'standard',
  seats: 4,
  attributes: [],
  maxPickupM: Infinity,
  shiftLeftS: Infinity,
  cell,
});

/** As many drivers in each cell as its number; answers when it is told to. */
function openView() {
  const reads: number[][] = [];
  const answers: PromiseWithResolvers<void>[] = [];
  const view = new View(0, async (cells) => {
    reads.push([...cells]);
    const answer = Promise.withResolvers<void>();
    answers.push(answer);
    await answer.promise;
    return cells.flatMap((cell) => Array.from({ length: cell }, (_, nth) => driver(cell, nth)));
  });
  return { view, reads, answers };
}

async function viewOf(...cells: number[]): Promise<View> {
  const { view, answers } = openView();
  const whole = view.complete(cells);
  answers[0]!.resolve();
  await whole;
  return view;
}

const idsIn = (view: View, cells: number[]): string[] => view.fleetOf(cells).drivers.map(({ driverId }) => driverId);

test('a cell is read once, also when somebody else’s read of it is under way', async () => {
  const { view, reads, answers } = openView();
  const first = view.complete([1, 2]);
  const second = view.complete([2, 3]);
  expect(reads).toEqual([[1, 2], [3]]);
  let isSecond = false;
  void second.then(() => (isSecond = true));
  answers[1]!.resolve();
  await new Promise(setImmediate);
  expect(isSecond).toBe(false);
  answers[0]!.resolve();
  await Promise.all([first, second]);
  await view.complete([3, 1]);
  expect(reads).toHaveLength(2);
});

test('a cell whose read failed is read again by the next who needs it', async () => {
  const { view, reads, answers } = openView();
  const [first, second] = [view.complete([1]), view.complete([1])];
  answers[0]!.reject(new Error('gone'));
  await expect(first).rejects.toThrow('gone');
  await expect(second).rejects.toThrow('gone');
  const again = view.complete([1]);
  answers[1]!.resolve();
  await again;
  expect(reads).toEqual([[1], [1]]);
  expect(idsIn(view, [1])).toEqual(['d1-0']);
});

test('a fleet has everybody in its cells, whatever was read since one was made', async () => {
  const { view, answers } = openView();
  const inCells: number[] = [];
  for (const [nth, cell] of [4, 1, 2, 9, 3].entries()) {
    const more = view.complete([cell]);
    answers[nth]!.resolve();
    await more;
    inCells.push(cell);
    for (const cells of [[cell], inCells])
      expect(idsIn(view, cells)).toEqual(expect.arrayContaining(view.driversIn(cells).map(({ driverId }) => driverId)));
  }
});

test('a driver who drove from one cell to another between two reads is in a fleet once', async () => {
  const [before, after] = [driver(1, 0), { ...driver(1, 0), cell: 2 }];
  const view = new View(0, ([cell]) => Promise.resolve(cell === 1 ? [before] : [after]));
  await view.complete([1]);
  await view.complete([2]);
  expect(idsIn(view, [1, 2])).toEqual(['d1-0']);
});

test('rounds that look at what is known find the same fleet', async () => {
  const view = await viewOf(5, 6, 7);
  expect(view.fleetOf([7]).cabs).toBe(view.fleetOf([5, 6]).cabs);
});

test('busy are the cells that several rounds looked at, those of most rounds first, up to so many drivers', async () => {
  const view = await viewOf(1, 2, 3, 4);
  for (const cells of [[1, 2, 3], [2, 3, 4], [3]]) view.noteLook(cells);
  expect(view.busyCells(100)).toEqual([3, 2]);
  expect(view.busyCells(4)).toEqual([3]);
  // One that is too full keeps out no other.
  expect(view.busyCells(2)).toEqual([2]);
});

test('of cells where nobody is some are busy, however many were looked at', async () => {
  const view = new View(0, () => Promise.resolve([]));
  const cells = Array.from({ length: 5_000 }, (_, cell) => cell);
  await view.complete(cells);
  view.noteLook(cells);
  expect(view.busyCells(100)).toHaveLength(1_000);
});

test('a round shares no fleet of more drivers than it would put in order as fast itself', async () => {
  const view = await viewOf(10, 5_000);
  expect(view.fleetOf([10]).cabs).toHaveLength(10);
});
