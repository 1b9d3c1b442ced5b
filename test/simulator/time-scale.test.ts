import { describe, expect, it } from 'vitest';
import { defaultPolicy, policyProblems } from '../../domain/policy.ts';
import { scalePolicy } from '../../simulator/time-scale.ts';

describe('a scaled policy', () => {
  it('may run at every speedup from 1 to 600', () => {
    for (let speedup = 1; speedup <= 600; speedup++) {
      expect({ speedup, problems: policyProblems(scalePolicy(defaultPolicy, speedup)) }).toEqual({
        speedup,
        problems: [],
      });
    }
  });

  it('is the policy itself at the speed of the wall’s clock', () => {
    expect(scalePolicy(defaultPolicy, 1)).toEqual(defaultPolicy);
  });

  it('divides durations, multiplies the speed, and leaves distances and counts', () => {
    expect(scalePolicy(defaultPolicy, 4)).toEqual({
      ...defaultPolicy,
      roundIntervalMs: 125,
      holdMs: 75_000,
      escalateAfterMs: 21_600_000,
      higherClassAfterMs: 15_000,
      declinedExclusionMs: 150_000,
      lapsedExclusionMs: 150_000,
      patienceMs: 75_000,
      retryMs: 500,
      retryMaxMs: 3_750,
      deliveryTtlMs: 1_000,
      decisionTtlMs: 3_750,
      maxLifetimeMs: 7_500,
      pushRetryMs: 250,
      positionIntervalMs: 1_000,
      positionStaleMs: 3_750,
      presenceGraceMs: 7_500,
      speedMps: 26,
    });
  });

  it('never asks more of devices and networks than they can do', () => {
    expect(scalePolicy(defaultPolicy, 60)).toMatchObject({
      positionIntervalMs: 1_000,
      positionStaleMs: 3_000,
      presenceGraceMs: 3_000,
      deliveryTtlMs: 250,
      pushRetryMs: 63,
      decisionTtlMs: 250,
      maxLifetimeMs: 500,
    });
  });

  it('keeps a term longer than its push retry, however close they were', () => {
    const tight = { ...defaultPolicy, pushRetryMs: 3_999 };
    for (const speedup of [1, 2, 16, 60, 600]) expect(policyProblems(scalePolicy(tight, speedup))).toEqual([]);
  });

  it('exists for no clock that runs slower than the wall’s', () => {
    for (const speedup of [0, 0.5, -1, Number.NaN, Infinity])
      expect(() => scalePolicy(defaultPolicy, speedup)).toThrow(RangeError);
  });
});
