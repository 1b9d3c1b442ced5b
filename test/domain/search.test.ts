import { describe, expect, it } from 'vitest';
import { defaultPolicy, type Policy, policyProblems } from '../../domain/policy.ts';
import { escalation, openPlaces, parallelOffers, retryWaitMs, searchRadiusM } from '../../domain/search.ts';

const policy: Policy = {
  ...defaultPolicy,
  searchRadiusM: 1_000,
  searchRadiusStepM: 500,
  searchRadiusMaxM: 2_000,
  escalateAfterOffers: 3,
  escalateAfterMs: 60_000,
  escalatedParallelOffers: 4,
  escalatedRadiusM: 9_000,
};
const fresh = { emptyRounds: 0, liveOffers: 0, offersMade: 0, waitedMs: 0 };

describe('a search escalates', () => {
  it('by offers that came to nothing, or by time, whichever is further', () => {
    expect(escalation(policy, fresh)).toBe(0);
    expect(escalation(policy, { ...fresh, offersMade: 3, liveOffers: 1 })).toBe(0);
    expect(escalation(policy, { ...fresh, offersMade: 3 })).toBe(1);
    expect(escalation(policy, { ...fresh, offersMade: 3, waitedMs: 120_000 })).toBe(2);
  });

  it('first to more offers at a time, then to a wider radius', () => {
    const after = (waitedMs: number) => ({ ...fresh, waitedMs });
    expect([59_999, 60_000, 120_000].map((ms) => parallelOffers(policy, after(ms)))).toEqual([1, 4, 4]);
    expect([59_999, 60_000, 120_000].map((ms) => searchRadiusM(policy, after(ms)))).toEqual([1_000, 1_000, 9_000]);
  });

  it('never to fewer offers or a smaller radius', () => {
    const wide = { ...policy, parallelOffers: 5, escalatedRadiusM: 500 };
    expect(parallelOffers(wide, { ...fresh, waitedMs: 600_000 })).toBe(5);
    expect(searchRadiusM(wide, { ...fresh, emptyRounds: 9, waitedMs: 600_000 })).toBe(2_000);
  });

  it('not at all where nobody set it', () => {
    expect(escalation(defaultPolicy, { ...fresh, offersMade: 15, waitedMs: 300_000 })).toBe(0);
  });

  it('assigning, to one at a time: there is nobody to wait for', () => {
    expect(parallelOffers({ ...policy, asking: 'assign' }, { ...fresh, waitedMs: 600_000 })).toBe(1);
  });

  it('within the offers that a ride may use up', () => {
    expect(policyProblems({ ...policy, offersMax: 3 })).toEqual([
      { setting: 'escalatedParallelOffers', problem: 'must be at most offersMax' },
    ]);
  });
});

it('the radius grows with each round that found nobody, to its maximum', () => {
  expect([0, 1, 2, 9].map((emptyRounds) => searchRadiusM(policy, { ...fresh, emptyRounds }))).toEqual([
    1_000, 1_500, 2_000, 2_000,
  ]);
});

it('the wait doubles, to its maximum and to the end of the patience', () => {
  const waits = [0, 1, 2, 3, 30].map((rounds) => retryWaitMs(defaultPolicy, rounds, 100_000));
  expect(waits).toEqual([2_000, 4_000, 8_000, 15_000, 15_000]);
  expect(retryWaitMs(defaultPolicy, 5, 1_234.4)).toBe(1_234);
  expect(retryWaitMs(defaultPolicy, 5, -1)).toBe(0);
});

it('places are what is neither held nor used up', () => {
  const two = { parallelOffers: 2, offersMax: 5 };
  expect([openPlaces(two, 0, 0), openPlaces(two, 1, 3), openPlaces(two, 0, 4), openPlaces(two, 2, 5)]).toEqual([
    2, 1, 1, 0,
  ]);
});
