import { expect, it } from 'vitest';
import { isInCanary } from '../../domain/canary.ts';

const rides = Array.from({ length: 20_000 }, (_, i) => `01a1fd48-d27c-7001-ac9e-${i.toString(16).padStart(12, '0')}`);
const inCanary = (version: number, share: number) => rides.filter((rideId) => isInCanary(rideId, { version, share }));

it('takes its share of the rides, however alike their ids', () => {
  expect(inCanary(2, 0.05).length / rides.length).toBeCloseTo(0.05, 2);
  expect(inCanary(2, 1)).toHaveLength(rides.length);
});

it('keeps the rides that were in when the share grows', () => {
  const few = inCanary(7, 0.1);
  expect(few.every((rideId) => isInCanary(rideId, { version: 7, share: 0.2 }))).toBe(true);
});

it('draws anew for each version', () => {
  const first = new Set(inCanary(2, 0.5));
  const both = inCanary(3, 0.5).filter((rideId) => first.has(rideId));
  expect(both.length / rides.length).toBeCloseTo(0.25, 1.5);
});
