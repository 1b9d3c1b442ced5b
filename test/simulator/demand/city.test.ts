import { describe, expect, it } from 'vitest';
import { greatCircleM, offsetPoint, type Point } from '../../../domain/geo.ts';
import { createRandom } from '../../../domain/random.ts';
import { cityOf, middleOf, startPosition } from '../../../simulator/demand/city.ts';
import type { Trip } from '../../../simulator/demand/demand.ts';

const places: Record<string, Point> = {
  Berlin: { lat: 52.52, lng: 13.4 },
  Quito: { lat: -0.18, lng: -78.47 },
  'Taveuni on the date line': { lat: -16.83, lng: 180 },
  Longyearbyen: { lat: 78.22, lng: 15.65 },
  'the South Pole': { lat: -90, lng: 0 },
};

function tripsAround(center: Point, count = 200): Trip[] {
  const random = createRandom('trips');
  const place = (): Point => offsetPoint(center, random.next() * 2 * Math.PI, random.next() * 5_000);
  return Array.from({ length: count }, (_, index) => ({
    requestMs: index,
    pickup: place(),
    dropoff: place(),
    driveMs: null,
  }));
}

describe.each(Object.entries(places))('a city at %s', (_name, center) => {
  const trips = tripsAround(center);
  const city = cityOf(trips);

  it('lies around the middle of its trips and holds all of them, with little to spare', () => {
    expect(greatCircleM(city.center, center)).toBeLessThan(1_000);
    const reachM = Math.max(
      ...trips.flatMap(({ pickup, dropoff }) => [
        greatCircleM(city.center, pickup),
        greatCircleM(city.center, dropoff),
      ]),
    );
    expect(city.radiusM).toBeGreaterThan(reachM);
    expect(city.radiusM).toBeLessThan(reachM + 1_000);
  });

  it('has its drivers start near its pick-ups', () => {
    const random = createRandom('drivers');
    for (let driver = 0; driver < 50; driver++) {
      const start = startPosition(trips, random);
      expect(Math.min(...trips.map(({ pickup }) => greatCircleM(pickup, start)))).toBeLessThan(1_000);
    }
  });
});

it('one stray point doesn’t move the middle of many', () => {
  const berlin = places['Berlin'] as Point;
  const pickups = tripsAround(berlin).map(({ pickup }) => pickup);
  expect(greatCircleM(middleOf([...pickups, { lat: -33.9, lng: 151.2 }]), middleOf(pickups))).toBeLessThan(500);
});
