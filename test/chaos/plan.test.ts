import { describe, expect, test } from 'vitest';
import { FAULTS } from '../../chaos/faults/catalog.ts';
import { ANSWERS, planAnswer, planRide, POLICY, REGION } from '../../chaos/load/plan.ts';
import { greatCircleM } from '../../domain/geo.ts';
import { defaultPolicy, policyProblems } from '../../domain/policy.ts';
import { createRandom } from '../../domain/random.ts';

const plansOf = (seed: string) => {
  const random = createRandom(seed);
  return {
    answers: Array.from({ length: 2_000 }, (_, i) => planAnswer(random.fork(`answer ${i}`))),
    rides: Array.from({ length: 2_000 }, (_, i) => planRide(random.fork(`ride ${i}`))),
  };
};

describe('a plan', () => {
  const { answers, rides } = plansOf('one');

  test('is decided by its seed', () => {
    expect(plansOf('one')).toEqual({ answers, rides });
    expect(plansOf('two')).not.toEqual({ answers, rides });
  });

  test('holds every kind of answer', () => {
    expect(new Set(answers.map(({ answer }) => answer))).toEqual(new Set(ANSWERS));
    expect(new Set(answers.map(({ over }) => over))).toEqual(new Set(['rest', 'socket']));
    expect(answers.some(({ isOutOfOrder }) => isOutOfOrder)).toBe(true);
  });

  test('has trips that are longer than any term of a lease', () => {
    const longMs = POLICY.maxLifetimeMs!;
    const long = answers.filter(({ tripMs }) => tripMs > longMs);
    expect(long.length).toBeGreaterThan(0);
    expect(long.length).toBeLessThan(answers.length / 10);
  });

  test('has riders who cancel early, late and just as somebody accepts, and rides that others lease for', () => {
    expect(new Set(rides.map(({ cancel }) => cancel?.when))).toEqual(new Set([undefined, 'after', 'accepting']));
    expect(new Set(rides.map(({ leasedBy }) => leasedBy))).toEqual(new Set([null, 'service', 'ops']));
    expect(rides.some(({ leasedBy, releaseAfterMs }) => leasedBy !== null && releaseAfterMs !== null)).toBe(true);
  });

  test('keeps to the region', () => {
    for (const { pickup } of rides) expect(greatCircleM(REGION.center, pickup)).toBeLessThan(REGION.radiusM);
  });

  test('runs under a policy that can work', () => {
    expect(policyProblems({ ...defaultPolicy, ...POLICY })).toEqual([]);
  });
});

describe('the faults', () => {
  test('have names of their own, that a command line takes', () => {
    const names = FAULTS.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(name).toMatch(/^[a-z]+(-[a-z]+)*$/);
  });

  test('stay for a bounded time', () => {
    for (const { holdMs } of FAULTS) {
      expect(holdMs[0]).toBeLessThanOrEqual(holdMs[1]);
      expect(holdMs[1]).toBeLessThanOrEqual(10_000);
    }
  });
});
