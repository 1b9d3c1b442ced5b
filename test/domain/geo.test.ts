import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  CELLS_MAX,
  cellOf,
  cellsWithin,
  columnsOfRow,
  EARTH_RADIUS_M,
  greatCircleM,
  offsetPoint,
  wrapLng,
  type Point,
} from '../../domain/geo.ts';

const DEGREE_M = (EARTH_RADIUS_M * Math.PI) / 180;
const timesSquare: Point = { lat: 40.758, lng: -73.9855 };

const edgyLats = fc.constantFrom(-90, -89.9999, -0.0025, 0, 0.0025, 85, 89.9975, 90);
const edgyLngs = fc.constantFrom(-180, -179.9999, 0, 179.9999, 180);
const anyPoint: fc.Arbitrary<Point> = fc.record({
  lat: fc.oneof({ weight: 4, arbitrary: fc.double({ min: -90, max: 90, noNaN: true }) }, edgyLats),
  lng: fc.oneof({ weight: 4, arbitrary: fc.double({ min: -180, max: 180, noNaN: true }) }, edgyLngs),
});
const anyBearingRad = fc.double({ min: 0, max: 2 * Math.PI, noNaN: true });
const shareOf1 = fc.oneof(fc.double({ min: 0, max: 1, noNaN: true }), fc.constant(1));

describe('greatCircleM', () => {
  test('one degree along the equator or a meridian is a 360th of the circumference', () => {
    expect(greatCircleM({ lat: 0, lng: 0 }, { lat: 0, lng: 1 })).toBeCloseTo(DEGREE_M, 5);
    expect(greatCircleM({ lat: 50, lng: 7 }, { lat: 51, lng: 7 })).toBeCloseTo(DEGREE_M, 5);
  });

  test('crosses the antimeridian the short way', () => {
    expect(greatCircleM({ lat: 0, lng: 179.5 }, { lat: 0, lng: -179.5 })).toBeCloseTo(DEGREE_M, 5);
    expect(greatCircleM({ lat: 0, lng: 180 }, { lat: 0, lng: -180 })).toBeCloseTo(0, 5);
  });

  test('crosses a pole, where every longitude is the same place', () => {
    expect(greatCircleM({ lat: 89.5, lng: 10 }, { lat: 89.5, lng: -170 })).toBeCloseTo(DEGREE_M, 5);
    expect(greatCircleM({ lat: -90, lng: 10 }, { lat: -90, lng: 100 })).toBeCloseTo(0, 5);
  });

  test('antipodes are half the circumference apart', () => {
    expect(greatCircleM({ lat: 30, lng: 40 }, { lat: -30, lng: -140 })).toBeCloseTo(180 * DEGREE_M, 0);
  });

  test('agrees with the angle between the points as vectors', () => {
    fc.assert(
      fc.property(anyPoint, anyPoint, (a, b) => {
        expect(Math.abs(greatCircleM(a, b) - vectorDistanceM(a, b))).toBeLessThan(1);
        expect(greatCircleM(a, b)).toBe(greatCircleM(b, a));
      }),
    );
  });
});

function vectorDistanceM(a: Point, b: Point): number {
  const [ax, ay, az] = vector(a);
  const [bx, by, bz] = vector(b);
  const cross = Math.hypot(ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx);
  return EARTH_RADIUS_M * Math.atan2(cross, ax * bx + ay * by + az * bz);
}

function vector({ lat, lng }: Point): [number, number, number] {
  const [phi, lambda] = [(lat * Math.PI) / 180, (lng * Math.PI) / 180];
  return [Math.cos(phi) * Math.cos(lambda), Math.cos(phi) * Math.sin(lambda), Math.sin(phi)];
}

describe('offsetPoint', () => {
  test('goes as far as it is told, from anywhere in any direction', () => {
    fc.assert(
      fc.property(
        anyPoint,
        anyBearingRad,
        fc.double({ min: 0, max: 1e6, noNaN: true }),
        (origin, bearing, distanceM) => {
          const reached = offsetPoint(origin, bearing, distanceM);
          expect(Math.abs(greatCircleM(origin, reached) - distanceM)).toBeLessThan(1e-4);
          expect(reached.lng).toBeGreaterThanOrEqual(-180);
          expect(reached.lng).toBeLessThan(180);
        },
      ),
    );
  });

  test('bearings count clockwise from north', () => {
    const north = offsetPoint(timesSquare, 0, 1000);
    const east = offsetPoint(timesSquare, Math.PI / 2, 1000);
    expect(north.lat).toBeGreaterThan(timesSquare.lat);
    expect(north.lng).toBeCloseTo(timesSquare.lng, 10);
    expect(east.lng).toBeGreaterThan(timesSquare.lng);
    expect(east.lat).toBeCloseTo(timesSquare.lat, 5);
  });

  test('passes over the antimeridian', () => {
    expect(offsetPoint({ lat: 0, lng: 179.5 }, Math.PI / 2, DEGREE_M).lng).toBeCloseTo(-179.5, 9);
  });
});

test('wrapLng brings every turn into [-180, 180) and leaves what is there alone', () => {
  expect([180, 540, -180, -181, 359, -540.5].map(wrapLng)).toEqual([-180, -180, -180, 179, -1, 179.5]);
  fc.assert(fc.property(fc.double({ min: -180, max: 179.9999, noNaN: true }), (lng) => wrapLng(lng) === lng));
  fc.assert(
    fc.property(fc.double({ min: -1e6, max: 1e6, noNaN: true }), (lng) => wrapLng(lng) >= -180 && wrapLng(lng) < 180),
  );
});

describe('cells', () => {
  test('a cell is an int4, and one only, whatever turn the longitude is of', () => {
    fc.assert(
      fc.property(anyPoint, (point) => {
        const cell = cellOf(point);
        expect(Number.isInteger(cell)).toBe(true);
        expect(Math.abs(cell)).toBeLessThan(2 ** 31);
        expect(cellOf({ lat: point.lat, lng: wrapLng(point.lng) })).toBe(cell);
      }),
    );
    expect(cellOf({ lat: 10, lng: 180 })).toBe(cellOf({ lat: 10, lng: -180 }));
  });

  test('every point within the radius lies in one of the cells', () => {
    const radiusM = fc.oneof(fc.double({ min: 0, max: 25_000, noNaN: true }), fc.constantFrom(0, 0.5, 556, 2000, 5000));
    fc.assert(
      fc.property(anyPoint, radiusM, anyBearingRad, shareOf1, (center, radius, bearing, share) => {
        const cells = cellsWithin(center, radius);
        const point = offsetPoint(center, bearing, radius * share);
        if (cells === 'everywhere' || greatCircleM(center, point) > radius) return;
        expect(cells).toContain(cellOf(point));
      }),
      { numRuns: 5000 },
    );
  });

  test('the rim of the circle lies in the cells all the way round', () => {
    const lats = fc.oneof(fc.double({ min: -89, max: 89, noNaN: true }), fc.constantFrom(0, 40.758, 60, -85));
    fc.assert(
      fc.property(lats, edgyLngs, fc.double({ min: 10, max: 9000, noNaN: true }), (lat, lng, radiusM) => {
        const cells = cellsWithin({ lat, lng }, radiusM);
        const rim = Array.from({ length: 180 }, (_, step) =>
          offsetPoint({ lat, lng }, (step * Math.PI) / 90, radiusM * (1 - 1e-9)),
        );
        const held = new Set(cells === 'everywhere' ? [] : cells);
        expect(rim.every((point) => held.has(cellOf(point)))).toBe(true);
      }),
      { numRuns: 1000 },
    );
  });

  test('every point within the radius lies in one of the cells, all around circles that hold a pole', () => {
    const nearPole = fc.record({
      lat: fc.double({ min: 89.9, max: 90, noNaN: true }),
      lng: fc.double({ min: -180, max: 180, noNaN: true }),
    });
    fc.assert(
      fc.property(nearPole, fc.constantFrom(1, -1), anyBearingRad, shareOf1, (north, hemisphere, bearing, share) => {
        const center = { lat: north.lat * hemisphere, lng: north.lng };
        const cells = cellsWithin(center, 12_000);
        const point = offsetPoint(center, bearing, 12_000 * share);
        if (greatCircleM(center, point) > 12_000) return;
        expect(cells).toContain(cellOf(point));
      }),
      { numRuns: 2000 },
    );
  });

  test('no cell is given twice, and never more than CELLS_MAX', () => {
    fc.assert(
      fc.property(anyPoint, fc.double({ min: 0, max: 30_000, noNaN: true }), (center, radiusM) => {
        const cells = cellsWithin(center, radiusM);
        if (cells === 'everywhere') return;
        expect(cells.length).toBeLessThanOrEqual(CELLS_MAX);
        expect(new Set(cells).size).toBe(cells.length);
      }),
    );
  });

  test('the cells cover little more than the circle', () => {
    fc.assert(
      fc.property(
        fc.double({ min: -75, max: 75, noNaN: true }),
        fc.double({ min: -180, max: 180, noNaN: true }),
        (lat, lng) => {
          const cellM = DEGREE_M / 200;
          // All that a circle touches lies within a cell's diagonal of it.
          const widest = Math.PI * (5000 + 1.6 * cellM) ** 2;
          expect(cellsWithin({ lat, lng }, 5000).length).toBeLessThan(widest / cellM ** 2);
        },
      ),
    );
    expect(cellsWithin(timesSquare, 1)).toEqual([cellOf(timesSquare)]);
  });

  test('a radius too large to list is everywhere, and so is one that is no number', () => {
    expect(cellsWithin(timesSquare, 15_000)).not.toBe('everywhere');
    for (const radiusM of [25_000, 1e6, 1e9, Infinity, NaN])
      expect(cellsWithin(timesSquare, radiusM)).toBe('everywhere');
    expect(cellsWithin({ lat: 90, lng: 0 }, 1e7)).toBe('everywhere');
  });

  test('cells are about square up to 85°', () => {
    const shapes: number[] = [];
    for (let row = 5 * 200; row < 175 * 200; row++) {
      const middle = (((row + 0.5) / 200 - 90) * Math.PI) / 180;
      const widthM = (360 * DEGREE_M * Math.cos(middle)) / columnsOfRow(row);
      shapes.push(widthM / (DEGREE_M / 200));
    }
    expect(Math.min(...shapes)).toBeGreaterThan(0.99);
    expect(Math.max(...shapes)).toBeLessThan(1.01);
  });

  test("no row's number of columns hangs on the last digit of a cosine, which engines may give differently", () => {
    let nearest = Infinity;
    for (let row = 0; row < 36_000; row++) {
      const exact = 72_000 * Math.cos((((row + 0.5) / 200 - 90) * Math.PI) / 180);
      nearest = Math.min(nearest, Math.abs(exact - Math.floor(exact) - 0.5));
    }
    expect(nearest).toBeGreaterThan(1e-6);
  });

  test('keys in the database stay what they are', () => {
    expect(cellOf({ lat: 0, lng: 0 })).toBe(36_000);
    expect(cellOf(timesSquare)).toBe(cellsWithin(timesSquare, 0)[0]);
    expect([cellOf(timesSquare), cellOf({ lat: 90, lng: 0 }), cellOf({ lat: -90, lng: -180 })]).toMatchInlineSnapshot(`
      [
        586888060,
        1295928001,
        -1296000000,
      ]
    `);
  });
});
