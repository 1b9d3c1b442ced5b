import { describe, expect, it } from 'vitest';
import { greatCircleM } from '../../../domain/geo.ts';
import { createRandom } from '../../../domain/random.ts';
import { type SyntheticCity, syntheticDemand } from '../../../simulator/demand/synthetic.ts';

const hour = 3_600_000;
const city: SyntheticCity = {
  center: { lat: 64.1, lng: -21.9 },
  radiusM: 5_000,
  peakRidesPerHour: 3_000,
  fromMs: 18 * hour,
  minutes: 60,
};

describe('a made-up city', () => {
  it('is the same for the same seed, and another for another', () => {
    expect(syntheticDemand(city, createRandom(1))).toEqual(syntheticDemand(city, createRandom(1)));
    expect(syntheticDemand(city, createRandom(1)).trips).not.toEqual(syntheticDemand(city, createRandom(2)).trips);
  });

  it('asks for its peak’s rides at its busiest hour, and for few at night', () => {
    const busy = syntheticDemand(city, createRandom(1)).trips.length;
    const quiet = syntheticDemand({ ...city, fromMs: 3 * hour }, createRandom(1)).trips.length;
    expect(busy).toBeGreaterThan(2_750);
    expect(busy).toBeLessThan(3_100);
    expect(quiet).toBeLessThan(busy / 4);
  });

  it('keeps trips in order, in its time and within its radius, and makes hardly any too short to be worth a cab', () => {
    const { trips } = syntheticDemand(city, createRandom(3));
    const times = trips.map(({ requestMs }) => requestMs);
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect(times.at(-1)).toBeLessThan(hour);
    for (const place of trips.flatMap(({ pickup, dropoff }) => [pickup, dropoff])) {
      expect(greatCircleM(city.center, place)).toBeLessThanOrEqual(city.radiusM + 1);
    }
    const short = trips.filter(({ pickup, dropoff }) => greatCircleM(pickup, dropoff) < 400);
    expect(short.length / trips.length).toBeLessThan(0.001);
  });

  it('has hot spots: far more pick-ups in its densest places than an even spread would put there', () => {
    const { trips } = syntheticDemand(city, createRandom(4));
    const cells = new Map<string, number>();
    for (const { pickup } of trips) {
      const cell = `${Math.floor(pickup.lat * 200)} ${Math.floor(pickup.lng * 100)}`;
      cells.set(cell, (cells.get(cell) ?? 0) + 1);
    }
    const densest = [...cells.values()]
      .sort((a, b) => b - a)
      .slice(0, 10)
      .reduce((sum, count) => sum + count, 0);
    expect(densest / trips.length).toBeGreaterThan(0.25);
  });

  it('runs past midnight', () => {
    const { trips, startsAtMs } = syntheticDemand({ ...city, fromMs: 23.5 * hour, minutes: 120 }, createRandom(5));
    expect(startsAtMs).toBe(23.5 * hour);
    expect(trips.at(-1)?.requestMs).toBeGreaterThan(110 * 60_000);
  });
});
