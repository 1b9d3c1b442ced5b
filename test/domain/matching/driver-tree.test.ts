import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { greatCircleM, offsetPoint, type Point } from '../../../domain/geo.ts';
import { DriverTree } from '../../../domain/matching/driver-tree.ts';
import { createRandom } from '../../../domain/random.ts';

interface Phone {
  readonly position: Point;
  readonly number: number;
}

const phonesAt = (positions: readonly Point[]): Phone[] => positions.map((position, number) => ({ position, number }));

function find(tree: DriverTree<Phone>, center: Point, radiusM: number, limit: number): number[] {
  return tree.nearest(center, radiusM, limit, () => true).map(({ number }) => number);
}

function bruteForce(positions: readonly Point[], center: Point, radiusM: number, limit: number): number[] {
  return positions
    .map((position, driver) => ({ driver, distanceM: greatCircleM(center, position) }))
    .filter(({ distanceM }) => distanceM <= radiusM)
    .sort((a, b) => a.distanceM - b.distanceM || a.driver - b.driver)
    .slice(0, limit)
    .map(({ driver }) => driver);
}

const anyPoint = fc.record({
  lat: fc.oneof(fc.double({ min: -90, max: 90, noNaN: true }), fc.constantFrom(-90, 0, 40.7, 90)),
  lng: fc.oneof(fc.double({ min: -180, max: 180, noNaN: true }), fc.constantFrom(-180, -74, 0, 179.999, 180)),
});

/** A city: points around a centre, on a coarse raster, so that some coincide and some are equally far. */
const anyCity = fc.oneof(
  anyPoint,
  fc.constantFrom({ lat: 40.75, lng: -73.98 }, { lat: -17, lng: 180 }, { lat: 89.98, lng: 3 }),
);
const inCity = fc
  .tuple(fc.nat(20), fc.nat(40))
  .map(([turn, step]) => ({ bearingRad: turn * 0.3, distanceM: step * 250 }));

describe('the nearest drivers', () => {
  test('are those that measuring every distance finds, in any city', () => {
    fc.assert(
      fc.property(
        anyCity,
        fc.array(inCity, { maxLength: 80 }),
        fc.array(inCity, { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 0, max: 25 }),
        fc.constantFrom(0, 300, 1000, 4000, 30_000),
        (city, drivers, pickups, limit, radiusM) => {
          const at = (place: { bearingRad: number; distanceM: number }) =>
            offsetPoint(city, place.bearingRad, place.distanceM);
          const positions = drivers.map(at);
          const tree = new DriverTree(phonesAt(positions));
          for (const center of pickups.map(at)) {
            expect(find(tree, center, radiusM, limit)).toEqual(bruteForce(positions, center, radiusM, limit));
          }
        },
      ),
      { numRuns: 1000 },
    );
  });

  test('are found from anywhere, with drivers all over the globe', () => {
    fc.assert(
      fc.property(
        fc.array(anyPoint, { maxLength: 60 }),
        fc.array(anyPoint, { minLength: 1, maxLength: 5 }),
        fc.integer({ min: 1, max: 10 }),
        fc.constantFrom(10_000, 1e6, 1e7),
        (positions, pickups, limit, radiusM) => {
          const tree = new DriverTree(phonesAt(positions));
          for (const center of pickups) {
            expect(find(tree, center, radiusM, limit)).toEqual(bruteForce(positions, center, radiusM, limit));
          }
        },
      ),
      { numRuns: 1000 },
    );
  });

  test('are the same for a large fleet with a few phones that are wrong about where they are', () => {
    const random = createRandom('fleet');
    const inTown = () => ({ lat: 40.75 + random.normal() * 0.03, lng: -73.98 + random.normal() * 0.02 });
    const positions = Array.from({ length: 5000 }, inTown);
    positions.push({ lat: 0, lng: 0 }, { lat: -90, lng: 0 }, { lat: 40.75, lng: 106 });
    const tree = new DriverTree(phonesAt(positions));
    for (let query = 0; query < 100; query++) {
      const center = inTown();
      expect(find(tree, center, 2000, 20)).toEqual(bruteForce(positions, center, 2000, 20));
    }
  });

  test('are looked for only among those accepted', () => {
    const center = { lat: 52.5, lng: 13.4 };
    const positions = Array.from({ length: 30 }, (_, driver) => offsetPoint(center, driver, driver * 10));
    const found = new DriverTree(phonesAt(positions)).nearest(center, 1000, 4, ({ number }) => number % 3 !== 0);
    expect(found.map(({ number }) => number)).toEqual([1, 2, 4, 5]);
  });

  test('of a crowd in one place no more are looked at than are wanted', () => {
    const positions = Array.from({ length: 10_000 }, (_, nth) => ({
      lat: nth % 10 === 0 ? 48.8 + nth * 1e-6 : 48.85,
      lng: 2.35,
    }));
    let looked = 0;
    const counting = () => ++looked > 0;
    const found = new DriverTree(phonesAt(positions)).nearest({ lat: 48.86, lng: 2.35 }, 5000, 20, counting);
    expect(found.map(({ number }) => number)).toEqual(bruteForce(positions, { lat: 48.86, lng: 2.35 }, 5000, 20));
    expect(looked).toBeLessThan(500);
  });

  test('all of a crowd in one place count as equally near: in the order given', () => {
    const positions = Array.from({ length: 500 }, () => ({ lat: 48.85, lng: 2.35 }));
    expect(find(new DriverTree(phonesAt(positions)), { lat: 48.86, lng: 2.35 }, 5000, 3)).toEqual([0, 1, 2]);
  });
});

test('looking takes no more than the neighbourhood, even with an outlier on the other side of the globe', () => {
  const random = createRandom('neighbourhood');
  const positions = Array.from({ length: 10_000 }, () => ({
    lat: 40.7 + random.next() * 0.2,
    lng: -74 + random.next() * 0.1,
  }));
  positions.push({ lat: 0, lng: 0 }, { lat: -40, lng: 106 });
  let looked = 0;
  const counting = () => ++looked > 0;
  new DriverTree(phonesAt(positions)).nearest({ lat: 40.8, lng: -73.95 }, 5000, 20, counting);
  expect(looked).toBeLessThan(300);
});
