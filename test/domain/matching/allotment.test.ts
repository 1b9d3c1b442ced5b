import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { greatCircleM, offsetPoint } from '../../../domain/geo.ts';
import { allot, type Call, type Stand } from '../../../domain/matching/allotment.ts';
import { createRandom, type Random } from '../../../domain/random.ts';
import { greatCircleTravelTime } from '../../../domain/travel-time.ts';

const center = { lat: 40.758, lng: -73.9855 };
const travelTime = greatCircleTravelTime({ detourFactor: 1.35, speedMps: 6 });
const place = fc.tuple(fc.nat(20), fc.nat(12)).map(([turn, step]) => offsetPoint(center, turn / 3, step * 300));
const vehicleClass = fc.constantFrom('standard', 'standard', 'xl');
const calls = fc.array(
  fc.record({
    pickup: place,
    vehicleClasses: fc.constantFrom<string[]>(['standard'], ['xl'], ['standard', 'xl'], ['van']),
    searchRadiusM: fc.constantFrom(600, 8000),
  }),
  { maxLength: 300 },
);
const stands = fc.array(fc.record({ position: place, vehicleClass }), { maxLength: 300 });

const near = (random: Random, distanceM: number) =>
  offsetPoint(center, random.next() * 6.28, random.next() * distanceM);
const crowdOf = (rides: number, random: Random, distanceM: number): Call[] =>
  Array.from({ length: rides }, () => ({
    pickup: near(random, distanceM),
    vehicleClasses: ['standard'],
    searchRadiusM: 50_000,
  }));

describe('an allotment', () => {
  test('is of drivers of a class that the ride asks for, each once, and expects prices that can be', () => {
    fc.assert(
      fc.property(calls, stands, (someCalls: Call[], someStands: Stand[]) => {
        const { allotted, expected } = allot(someCalls, someStands, travelTime);
        expect(allotted).toHaveLength(someCalls.length);
        expect(expected.leftOut).toHaveLength(someCalls.length);
        expect(expected.price).toHaveLength(someStands.length);
        for (const price of expected.price) expect(price).toBeLessThanOrEqual(0);
        for (const [nth, numbers] of allotted.entries()) {
          expect(new Set(numbers).size).toBe(numbers.length);
          const classes = numbers.map((number) => someStands[number]?.vehicleClass);
          expect(someCalls[nth]?.vehicleClasses).toEqual(expect.arrayContaining(classes));
        }
      }),
    );
  });

  test('sends a crowd to drivers far away when those near are not enough', () => {
    const random = createRandom('crowd');
    const crowd = crowdOf(300, random, 200);
    const far = offsetPoint(center, 1, 9_000);
    const drivers = Array.from({ length: 320 }, (_, nth) => ({
      position: nth < 100 ? near(random, 200) : offsetPoint(far, nth, nth),
      vehicleClass: 'standard',
    }));
    const { allotted } = allot(crowd, drivers, travelTime);
    const isFar = (number: number): boolean => greatCircleM(center, drivers[number]?.position ?? center) > 5_000;
    expect(allotted.filter((numbers) => numbers.some(isFar)).length).toBeGreaterThan(150);
  });

  test('is made of as many kinds of rides and drivers as there are', () => {
    const kinds = Array.from({ length: 100 }, (_, nth) => `class ${nth % 50}`);
    const rides = kinds.map((kind) => ({ pickup: center, vehicleClasses: [kind], searchRadiusM: 5_000 }));
    const drivers = kinds.map((kind) => ({ position: center, vehicleClass: kind }));
    const { allotted } = allot(rides, drivers, travelTime);
    expect(allotted.map((numbers) => [...numbers].sort((a, b) => a - b))).toEqual(
      kinds.map((_, nth) => [nth % 50, (nth % 50) + 50]),
    );
  });

  test('of a few rides and a large fleet asks for few travel times', () => {
    const random = createRandom('few');
    const few = crowdOf(120, random, 300);
    const fleet = Array.from({ length: 20_000 }, () => ({ position: near(random, 20_000), vehicleClass: 'standard' }));
    let asked = 0;
    const counting = { etaS: (...points: Parameters<typeof travelTime.etaS>) => (++asked, travelTime.etaS(...points)) };
    allot(few, fleet, counting);
    expect(asked).toBeLessThan(5_000);
  });
});
