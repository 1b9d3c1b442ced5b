import { describe, expect, it } from 'vitest';
import { createRandom } from '../../domain/random.ts';
import { defaultRates, faults, planAnswer, rateProblems } from '../../simulator/behaviour.ts';

const plansOf = (seed: number, count: number, rates = defaultRates) => {
  const random = createRandom(seed);
  return Array.from({ length: count }, () => planAnswer(rates, random));
};

describe('a driver’s answers', () => {
  it('are the same for the same seed, and others for another', () => {
    expect(plansOf(1, 50)).toEqual(plansOf(1, 50));
    expect(plansOf(1, 50)).not.toEqual(plansOf(2, 50));
  });

  it('fail for 5 % of offers and are slow for 10 %, in each way as often as its rate says', () => {
    const plans = plansOf(3, 100_000);
    const share = (count: number): number => count / plans.length;
    expect(share(plans.filter(({ fault }) => fault !== null).length)).toBeCloseTo(0.05, 2);
    expect(share(plans.filter(({ slow }) => slow).length)).toBeCloseTo(0.1, 2);
    for (const fault of faults) {
      expect(share(plans.filter((plan) => plan.fault === fault).length)).toBeCloseTo(defaultRates[fault], 2.5);
    }
  });

  it('take a person’s time: three seconds for half of them', () => {
    const thinks = plansOf(4, 10_001)
      .map(({ thinkMs }) => thinkMs)
      .sort((a, b) => a - b);
    expect(thinks[5_000]).toBeGreaterThan(2_900);
    expect(thinks[5_000]).toBeLessThan(3_400);
  });

  it('don’t depend on the rates beyond what the rates decide', () => {
    const never = {
      ...defaultRates,
      declines: 0,
      ignores: 0,
      answersLate: 0,
      disconnects: 0,
      crashes: 0,
      answersTwice: 0,
      cancels: 0,
    };
    const whens = (rates: typeof defaultRates) => plansOf(5, 200, rates).map(({ when, slow }) => [when, slow]);
    expect(whens(never)).toEqual(whens(defaultRates));
  });
});

it('rates that can’t be meant are named', () => {
  expect(rateProblems(defaultRates)).toEqual([]);
  expect(rateProblems({ ...defaultRates, declines: -0.1, slow: 2 })).toEqual([
    'declines must be from 0 to 1',
    'slow must be from 0 to 1',
  ]);
  expect(rateProblems({ ...defaultRates, declines: 0.6, ignores: 0.6 })).toEqual([
    expect.stringContaining('more than 1'),
  ]);
});
