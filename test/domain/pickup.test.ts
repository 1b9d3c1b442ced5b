import { expect, test } from 'vitest';
import { judgePickup } from '../../domain/pickup.ts';

const policy = { stalledAfterMs: 60_000, stalledReplacedAfterMs: 120_000 };
const watch = { nearestM: 1_000, sinceNearerMs: 0, isStalled: false };

test('who is looked at for the first time, or has come nearer, is remembered with where he is', () => {
  expect(judgePickup({ nearestM: null, sinceNearerMs: null, isStalled: false }, 900, policy)).toBe('nearer');
  expect(judgePickup({ nearestM: null, sinceNearerMs: null, isStalled: false }, null, policy)).toBe('nearer');
  expect(judgePickup({ ...watch, nearestM: null }, 900, policy)).toBe('nearer');
  expect(judgePickup(watch, 950, policy)).toBe('nearer');
  expect(judgePickup({ ...watch, isStalled: true }, 900, policy)).toBe('resumed');
});

test('a few metres are the noise of positioning, and a way round is no way nearer', () => {
  for (const distanceM of [951, 1_000, 4_000, null]) {
    expect(judgePickup({ ...watch, sinceNearerMs: 59_999 }, distanceM, policy)).toBe('waiting');
    expect(judgePickup({ ...watch, sinceNearerMs: 60_000 }, distanceM, policy)).toBe('stalled');
  }
});

test('who is at the pickup is never late', () => {
  expect(judgePickup({ nearestM: 20, sinceNearerMs: 1e9, isStalled: false }, 99, policy)).toBe('nearer');
});

test('the ride is taken from a flagged driver when the policy says so, and from no other', () => {
  const late = { ...watch, sinceNearerMs: 120_000 };
  expect(judgePickup(late, 1_000, policy)).toBe('stalled');
  expect(judgePickup({ ...late, isStalled: true }, 1_000, policy)).toBe('replaced');
  expect(judgePickup({ ...late, isStalled: true }, 1_000, { ...policy, stalledReplacedAfterMs: 0 })).toBe('waiting');
  expect(judgePickup(late, 1_000, { stalledAfterMs: 0, stalledReplacedAfterMs: 0 })).toBe('waiting');
});
