import { expect, it } from 'vitest';
import { parkedAt, positionAt } from '../../simulator/motion.ts';

it('a driver moves evenly from one place to the other, and stays there', () => {
  const leg = { from: { lat: 10, lng: 20 }, to: { lat: 12, lng: 24 }, departMs: 1_000, arriveMs: 2_000 };
  expect(positionAt(leg, 500)).toEqual({ lat: 10, lng: 20 });
  expect(positionAt(leg, 1_250)).toEqual({ lat: 10.5, lng: 21 });
  expect(positionAt(leg, 2_000)).toEqual(leg.to);
  expect(positionAt(leg, 9_000)).toEqual(leg.to);
  expect(positionAt(parkedAt(leg.from), 0)).toEqual(leg.from);
});

it('a driver crosses the date line the short way', () => {
  const leg = { from: { lat: 0, lng: 179.5 }, to: { lat: 0, lng: -179.5 }, departMs: 0, arriveMs: 100 };
  expect(positionAt(leg, 25).lng).toBeCloseTo(179.75);
  expect(positionAt(leg, 75).lng).toBeCloseTo(-179.75);
});
