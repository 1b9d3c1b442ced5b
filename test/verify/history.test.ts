import { describe, expect, test } from 'vitest';
import { DatabaseClock, uncoveredMs } from '../../src/verify/history/clock.ts';
import { AskIds } from '../../src/verify/history/ids.ts';

/** Requests every 100 ms from `fromMs`, recorded 4 ms after they were asked and answered 10 ms after, by a clock at `offsetMs`. */
function tick(clock: DatabaseClock, fromMs: number, toMs: number, offsetMs: number): void {
  for (let atMs = fromMs; atMs < toMs; atMs += 100) clock.add(atMs, atMs + 10, atMs + 4 + offsetMs);
}

describe('the database’s clock', () => {
  test('is known to within the shortest answer, while requests go on', () => {
    const clock = new DatabaseClock([]);
    tick(clock, 0, 10_000, 1_000);
    const { lowMs, highMs } = clock.during(5_000, 5_500)!;
    expect(lowMs).toBeLessThanOrEqual(1_000);
    expect(highMs).toBeGreaterThanOrEqual(1_000);
    expect(highMs - lowMs).toBeLessThan(20);
  });

  test('isn’t known before the first request, after the last, or far from any', () => {
    const clock = new DatabaseClock([]);
    tick(clock, 10_000, 20_000, 0);
    tick(clock, 60_000, 70_000, 0);
    expect(clock.during(5_000, 9_000)).toBeNull();
    expect(clock.during(75_000, 76_000)).toBeNull();
    expect(clock.during(40_000, 40_001)).toBeNull();
    expect(clock.during(15_000, 15_001)).not.toBeNull();
  });

  test('isn’t known around a step that the requests show, and is again on both sides of it', () => {
    const clock = new DatabaseClock([]);
    tick(clock, 0, 10_000, 0);
    tick(clock, 10_000, 20_000, -5_000);
    expect(clock.during(9_950, 9_990)).toBeNull();
    expect(clock.during(5_000, 5_010)!.highMs).toBeGreaterThan(-20);
    expect(clock.during(15_000, 15_010)!.highMs).toBeLessThan(-4_900);
  });

  test('isn’t known where a fault was at it, whatever the requests show', () => {
    const clock = new DatabaseClock([{ fromMs: 5_000, toMs: 6_000 }]);
    tick(clock, 0, 10_000, 0);
    expect(clock.during(5_500, 5_510)).toBeNull();
    expect(clock.during(8_500, 8_510)).not.toBeNull();
  });

  test('is somewhere between both sides of a step, for whom that is enough', () => {
    const clock = new DatabaseClock([]);
    tick(clock, 0, 10_000, 0);
    tick(clock, 20_000, 30_000, 60_000);
    const { lowMs, highMs } = clock.around(15_000)!;
    expect(lowMs).toBeLessThanOrEqual(0);
    expect(highMs).toBeGreaterThanOrEqual(60_000);
    expect(new DatabaseClock([]).around(0)).toBeNull();
  });
});

test('a wait is counted but for what faults explain', () => {
  const wait = { fromMs: 100, toMs: 200 };
  expect(uncoveredMs(wait, [])).toBe(100);
  expect(uncoveredMs(wait, [{ fromMs: 0, toMs: 150 }])).toBe(50);
  expect(
    uncoveredMs(wait, [
      { fromMs: 150, toMs: 180 },
      { fromMs: 120, toMs: 160 },
    ]),
  ).toBe(40);
  expect(uncoveredMs(wait, [{ fromMs: 0, toMs: 300 }])).toBe(0);
  expect(uncoveredMs(wait, [{ fromMs: 300, toMs: 400 }])).toBe(100);
});

test('ids are found again, each with what was asked, however many there are', () => {
  const ids = new AskIds();
  const count = 20_000;
  const asked = (i: number) => ({ what: i, atMs: i / 2 });
  const numbers = Array.from({ length: count }, (_, i) => i);
  expect(numbers.every((i) => ids.add(`ask-${i}`, asked(i)))).toBe(true);
  expect(ids.size).toBe(count);
  expect(numbers.filter((i) => ids.get(`ask-${i}`)?.what !== i || ids.get(`ask-${i}`)?.atMs !== i / 2)).toEqual([]);
  expect(ids.add('ask-7', { what: 0, atMs: 0 })).toBe(false);
  expect(ids.get('ask')).toBeNull();
});
