import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createCallerLimiter, createRateLimiter } from '../src/rate-limit.ts';

/** A clock that is moved by hand. */
function openClock() {
  let nowMs = 1_000;
  return { now: () => nowMs, advance: (ms: number) => void (nowMs += ms) };
}

const taken = (mayAsk: () => boolean, asked: number): number =>
  Array.from({ length: asked }, mayAsk).filter(Boolean).length;

describe('a caller', () => {
  it('may ask a second’s worth at once, and then as fast as the rate', () => {
    const clock = openClock();
    const mayAsk = createRateLimiter(10, clock.now);
    expect(taken(() => mayAsk('a'), 100)).toBe(10);
    clock.advance(99);
    expect(mayAsk('a')).toBe(false);
    clock.advance(1);
    expect(taken(() => mayAsk('a'), 100)).toBe(1);
    clock.advance(1_000);
    expect(taken(() => mayAsk('a'), 100)).toBe(10);
  });

  it('isn’t held up by what others ask, nor by what was refused', () => {
    const clock = openClock();
    const mayAsk = createRateLimiter(10, clock.now);
    taken(() => mayAsk('a'), 10_000);
    expect(taken(() => mayAsk('b'), 100)).toBe(10);
    clock.advance(500);
    expect(taken(() => mayAsk('a'), 100)).toBe(5);
  });

  it('gets no more than a burst and the rate, however its requests fall', () => {
    const steps = fc.array(fc.tuple(fc.integer({ min: 0, max: 2_500 }), fc.integer({ min: 1, max: 60 })), {
      minLength: 1,
      maxLength: 40,
    });
    fc.assert(
      fc.property(steps, fc.integer({ min: 1, max: 50 }), (turns, perS) => {
        const clock = openClock();
        const mayAsk = createRateLimiter(perS, clock.now);
        const given: { atMs: number; count: number }[] = [];
        for (const [waitMs, asked] of turns) {
          clock.advance(waitMs);
          given.push({ atMs: clock.now(), count: taken(() => mayAsk('a'), asked) });
        }
        for (const [i, from] of given.entries()) {
          let count = 0;
          for (const { atMs, count: more } of given.slice(i)) {
            count += more;
            expect(count).toBeLessThanOrEqual(perS + Math.ceil(((atMs - from.atMs) / 1_000) * perS + 1e-6));
          }
        }
        const asked = turns[0]![1];
        expect(given[0]!.count).toBe(Math.min(asked, perS));
      }),
    );
  });
});

it('a rider and a driver of one name are two callers, and a service has its own measure', () => {
  const clock = openClock();
  const mayAsk = createCallerLimiter({ devicePerS: 3, servicePerS: 50 }, clock.now);
  expect(taken(() => mayAsk({ role: 'rider', sub: 'x' }), 100)).toBe(3);
  expect(taken(() => mayAsk({ role: 'driver', sub: 'x' }), 100)).toBe(3);
  expect(taken(() => mayAsk({ role: 'service', sub: 'x' }), 100)).toBe(50);
  expect(taken(() => mayAsk({ role: 'ops', sub: 'x' }), 100)).toBe(50);
});
