import { expect, test } from 'vitest';
import { greatCircleM } from '../../domain/geo.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';

const from = { lat: 40.75, lng: -73.99 };
const to = { lat: 40.76, lng: -73.97 };

test('the estimate is the great circle, stretched by the detour, at the speed', () => {
  const travelTime = greatCircleTravelTime({ detourFactor: 1.4, speedMps: 7 });
  expect(travelTime.etaS(from, to)).toBeCloseTo((greatCircleM(from, to) * 1.4) / 7, 9);
  expect(travelTime.etaS(from, from)).toBe(0);
});

test('settings that make no sense are refused', () => {
  for (const detourFactor of [0.9, NaN, Infinity]) {
    expect(() => greatCircleTravelTime({ detourFactor, speedMps: 7 })).toThrow(RangeError);
  }
  for (const speedMps of [0, -1, NaN, Infinity]) {
    expect(() => greatCircleTravelTime({ detourFactor: 1.4, speedMps })).toThrow(RangeError);
  }
});
