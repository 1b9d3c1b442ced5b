import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { halve, middleOf, ONE_PLACE } from '../../../domain/matching/halves.ts';

const anywhere = fc.record({
  lat: fc.double({ min: -90, max: 90, noNaN: true }),
  lng: fc.integer({ min: -180, max: 180 }),
});
/** Many are at one of two places. */
const point = fc.oneof(anywhere, fc.constantFrom({ lat: 48, lng: 7.85 }, { lat: -17, lng: 180 }));

test('of each stretch the first half stands before the split, the second behind it, and only the last run is short', () => {
  fc.assert(
    fc.property(fc.array(point, { maxLength: 60 }), fc.integer({ min: 1, max: 9 }), (points, run) => {
      const { members, axes, splits, places } = halve(points, run);
      expect([...members].sort((a, b) => a - b)).toEqual([...points.keys()]);
      const visit = (from: number, to: number): void => {
        if (to - from <= run) return;
        const middle = middleOf(from, to, run);
        expect(middle % run).toBe(0);
        expect(middle).toBeGreaterThan(from);
        expect(middle).toBeLessThan(to);
        if (axes[middle] === ONE_PLACE) {
          const stretch = [...members.subarray(from, to)];
          expect(stretch).toEqual(stretch.toSorted((a, b) => a - b));
          for (let at = from; at < to; at++)
            expect(places.subarray(3 * at, 3 * at + 3)).toEqual(places.subarray(3 * from, 3 * from + 3));
          return;
        }
        const along = (at: number): number => places[3 * at + (axes[middle] ?? NaN)] ?? NaN;
        for (let at = from; at < middle; at++) expect(along(at)).toBeLessThanOrEqual(splits[middle] ?? NaN);
        for (let at = middle; at < to; at++) expect(along(at)).toBeGreaterThanOrEqual(splits[middle] ?? NaN);
        visit(from, middle);
        visit(middle, to);
      };
      visit(0, points.length);
    }),
  );
});
