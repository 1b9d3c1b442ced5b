import * as fc from 'fast-check';
import { linearSumAssignment } from 'linear-sum-assignment';
import { assert, describe, expect, test } from 'vitest';
import { greatCircleM, offsetPoint, type Point } from '../../domain/geo.ts';
import type { DriverProfile } from '../../domain/eligibility.ts';
import {
  countServable,
  matchings as matchingsOfFleets,
  whyNobody,
  type MatchingContext,
  type Pairing,
  type WaitingRide,
} from '../../domain/matching.ts';
import { Fleet } from '../../domain/matching/fleet.ts';
import { createRandom } from '../../domain/random.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';

const withFleetOf =
  (name: 'nearest' | 'batch') =>
  (rides: readonly WaitingRide[], drivers: readonly DriverProfile[], context: MatchingContext) =>
    matchingsOfFleets[name](rides, Fleet.of(drivers), context);
const matchings = { nearest: withFleetOf('nearest'), batch: withFleetOf('batch') };

const travelTime = greatCircleTravelTime({ detourFactor: 1.35, speedMps: 6 });
const timesSquare: Point = { lat: 40.758, lng: -73.9855 };

interface Scene {
  rides: WaitingRide[];
  drivers: DriverProfile[];
  context: MatchingContext;
}

/** On a coarse raster around a centre: some points coincide, some are equally far; the antimeridian is near some. */
function scenes(size: { rides: number; drivers: number; candidates: number }): fc.Arbitrary<Scene> {
  const centers = fc.constantFrom(
    timesSquare,
    { lat: -17, lng: 179.99 },
    { lat: 89.99, lng: 0 },
    { lat: 1.3, lng: 103.8 },
  );
  return centers.chain((center) => {
    const place = fc.tuple(fc.nat(12), fc.nat(12)).map(([turn, step]) => offsetPoint(center, turn / 2, step * 300));
    const vehicleClass = fc.constantFrom('standard', 'standard', 'xl');
    const attributes = fc.constantFrom<string[]>([], [], [], ['pet'], ['pet', 'wheelchair']);
    const driver = fc.record({
      position: place,
      vehicleClass,
      seats: fc.constantFrom(4, 4, 6),
      attributes,
      maxPickupM: fc.constantFrom(Infinity, Infinity, 900),
      shiftLeftS: fc.constantFrom(Infinity, Infinity, 400),
    });
    const excluded = fc.uniqueArray(
      fc.nat(size.drivers).map((id) => `d${id}`),
      { maxLength: 2 },
    );
    const ride = fc.record({
      pickup: place,
      dropoff: place,
      vehicleClasses: fc.constantFrom<string[]>(['standard'], ['standard'], ['xl'], ['standard', 'xl']),
      seats: fc.constantFrom(1, 1, 1, 5),
      attributes: fc.constantFrom<string[]>([], [], [], ['pet']),
      searchRadiusM: fc.constantFrom(600, 2000, 8000),
      excluded: excluded.map((ids) => new Map(ids.map((id) => [id, 'declined' as const]))),
      places: fc.constantFrom(1, 1, 1, 2, 3),
      queuedAtMs: fc.nat(3),
    });
    return fc.record({
      rides: fc
        .array(ride, { maxLength: size.rides })
        .map((list) => list.map((item, id) => ({ rideId: `r${id}`, ...item }))),
      drivers: fc
        .array(driver, { maxLength: size.drivers })
        .map((list) => list.map((item, id) => ({ driverId: `d${id}`, ...item }))),
      context: fc.record({
        travelTime: fc.constant(travelTime),
        candidatesMax: fc.integer({ min: 1, max: size.candidates }),
      }),
    });
  });
}

const small = scenes({ rides: 4, drivers: 5, candidates: 5 });
const medium = scenes({ rides: 25, drivers: 25, candidates: 8 });
const onePlaceEach = (scene: Scene) => ({ ...scene, rides: scene.rides.map((ride) => ({ ...ride, places: 1 })) });

const inTurn = (rides: readonly WaitingRide[]) => {
  return rides.toSorted((a, b) => a.queuedAtMs - b.queuedAtMs || (a.rideId < b.rideId ? -1 : 1));
};

function isEligible(ride: WaitingRide, driver: DriverProfile): boolean {
  return (
    ride.vehicleClasses.includes(driver.vehicleClass) &&
    driver.seats >= ride.seats &&
    ride.attributes.every((attribute) => driver.attributes.includes(attribute)) &&
    greatCircleM(ride.pickup, driver.position) <= Math.min(ride.searchRadiusM, driver.maxPickupM) &&
    travelTime.etaS(driver.position, ride.pickup) + travelTime.etaS(ride.pickup, ride.dropoff) <= driver.shiftLeftS &&
    !ride.excluded.has(driver.driverId)
  );
}

function byDistance(ride: WaitingRide, drivers: readonly DriverProfile[]): DriverProfile[] {
  const distanceM = (driver: DriverProfile) => greatCircleM(driver.position, ride.pickup);
  return drivers.toSorted((a, b) => distanceM(a) - distanceM(b) || (a.driverId < b.driverId ? -1 : 1));
}

const totalS = (pairings: readonly Pairing[]) => pairings.reduce((sum, { pickupEtaS }) => sum + pickupEtaS, 0);

/** How many rides have a first driver, a second, … */
function servedByPlace(pairings: readonly { rideId: string }[]): number[] {
  const counts = [...Map.groupBy(pairings, ({ rideId }) => rideId).values()].map((list) => list.length);
  return [1, 2, 3].map((place) => counts.filter((count) => count >= place).length);
}

describe.each(['nearest', 'batch'] as const)('every pairing of %s', (name) => {
  test('is eligible; no driver is in two, no ride in more than it has places for', () => {
    fc.assert(
      fc.property(medium, ({ rides, drivers, context }) => {
        const pairings = matchings[name](rides, drivers, context);
        expect(new Set(pairings.map(({ driverId }) => driverId)).size).toBe(pairings.length);
        for (const { rideId, driverId, pickupEtaS } of pairings) {
          const ride = rides.find((candidate) => candidate.rideId === rideId);
          const driver = drivers.find((candidate) => candidate.driverId === driverId);
          assert(ride && driver);
          expect(isEligible(ride, driver)).toBe(true);
          expect(pickupEtaS).toBe(travelTime.etaS(driver.position, ride.pickup));
          expect(pairings.filter((pairing) => pairing.rideId === rideId).length).toBeLessThanOrEqual(ride.places);
        }
      }),
      { numRuns: 500 },
    );
  });

  test('comes in the order of waiting, those of one ride nearest first', () => {
    fc.assert(
      fc.property(medium, ({ rides, drivers, context }) => {
        const pairings = matchings[name](rides, drivers, context);
        const ofRide = Map.groupBy(pairings, ({ rideId }) => rideId);
        const expected = inTurn(rides).flatMap(({ rideId }) => {
          return (ofRide.get(rideId) ?? []).toSorted((a, b) => a.pickupEtaS - b.pickupEtaS);
        });
        expect(pairings).toEqual(expected);
      }),
    );
  });

  test('is the same in whatever order rides and drivers are given, which are left as they were', () => {
    fc.assert(
      fc.property(medium, ({ rides, drivers, context }) => {
        const given = structuredClone({ rides, drivers });
        const pairings = matchings[name](rides, drivers, context);
        expect({ rides, drivers }).toEqual(given);
        expect(matchings[name](rides.toReversed(), drivers.toReversed(), context)).toEqual(pairings);
      }),
    );
  });

  test('with some of a fleet is as if the others weren’t in it, however often it is matched with', () => {
    const busy = fc.uniqueArray(fc.nat(30), { maxLength: 30 }).map((ids) => new Set(ids.map((id) => `d${id}`)));
    fc.assert(
      fc.property(medium, busy, ({ rides, drivers, context }, some) => {
        const isFree = ({ driverId }: DriverProfile): boolean => !some.has(driverId);
        const fleet = Fleet.of(drivers);
        const pairings = matchings[name](rides, drivers.filter(isFree), context);
        expect(matchingsOfFleets[name](rides, fleet.only(isFree), context)).toEqual(pairings);
        expect(matchingsOfFleets[name](rides, fleet, context)).toEqual(matchings[name](rides, drivers, context));
      }),
      { numRuns: 300 },
    );
  });
});

describe('nearest', () => {
  test('each ride in order of waiting takes its nearest free driver, place by place', () => {
    fc.assert(
      fc.property(medium, (scene) => {
        const pairings = matchings.nearest(scene.rides, scene.drivers, scene.context);
        const found = pairings.map(({ rideId, driverId }) => `${rideId} ${driverId}`).sort();
        expect(found).toEqual(oneAfterAnother(scene));
      }),
      { numRuns: 1000 },
    );
  });

  test('leaves no ride without a driver while an eligible one is free', () => {
    fc.assert(
      fc.property(medium, ({ rides, drivers, context }) => {
        const pairings = matchings.nearest(rides, drivers, context);
        const free = drivers.filter(({ driverId }) => pairings.every((pairing) => pairing.driverId !== driverId));
        for (const ride of rides) {
          const open = pairings.filter(({ rideId }) => rideId === ride.rideId).length < ride.places;
          expect(open && free.some((driver) => isEligible(ride, driver))).toBe(false);
        }
      }),
    );
  });
});

function oneAfterAnother({ rides, drivers }: Scene): string[] {
  const taken = new Set<DriverProfile>();
  const pairs: string[] = [];
  for (const place of [1, 2, 3]) {
    for (const ride of inTurn(rides)) {
      if (ride.places < place) continue;
      const free = drivers.filter((driver) => !taken.has(driver) && isEligible(ride, driver));
      const [nearest] = byDistance(ride, free);
      if (!nearest) continue;
      taken.add(nearest);
      pairs.push(`${ride.rideId} ${nearest.driverId}`);
    }
  }
  return pairs.sort();
}

describe('batch', () => {
  test('is at least as good as any pairing among the candidates and what nearest would do', () => {
    fc.assert(
      fc.property(small, (scene) => {
        const pairings = matchings.batch(scene.rides, scene.drivers, scene.context);
        const found = { served: servedByPlace(pairings), costS: totalS(pairings) - 1e-6 };
        expect(isBetter(bestOfAll(scene, scene.context.candidatesMax), found)).toBe(false);
      }),
      { numRuns: 1000 },
    );
  });

  test('is the best of all pairings where every driver is a candidate', () => {
    fc.assert(
      fc.property(small, ({ rides, drivers, context }) => {
        const scene = { rides, drivers, context: { ...context, candidatesMax: drivers.length + 1 } };
        const pairings = matchings.batch(rides, drivers, scene.context);
        const best = bestOfAll(scene, drivers.length);
        expect(servedByPlace(pairings)).toEqual(best.served);
        expect(totalS(pairings)).toBeCloseTo(best.costS, 6);
      }),
      { numRuns: 1000 },
    );
  });

  test('comes within 1 % of the best of all pairings where riders crowd and the drivers are elsewhere', () => {
    const random = createRandom('crowd');
    const around = (center: Point, radiusM: number) =>
      offsetPoint(center, random.next() * 6.28, radiusM * Math.abs(random.normal()));
    const rides = Array.from({ length: 400 }, (_, id) =>
      rideAt(`r${id}`, around(timesSquare, id % 4 === 0 ? 3000 : 300)),
    );
    const drivers = Array.from({ length: 420 }, (_, id) => driverAt(`d${id}`, around(timesSquare, 2500)));
    const anywhere = rides.map((ride) => ({ ...ride, searchRadiusM: 50_000 }));
    const pairings = matchings.batch(anywhere, drivers, { travelTime, candidatesMax: 20 });
    const costs = anywhere.map(({ pickup }) => drivers.map(({ position }) => travelTime.etaS(position, pickup)));
    const { rowAssignments } = linearSumAssignment(costs, { maximaze: false });
    const least = costs.reduce((sum, ofRide, nth) => sum + (ofRide[rowAssignments[nth] ?? -1] ?? NaN), 0);
    expect(pairings).toHaveLength(400);
    expect(totalS(pairings) / least).toBeLessThan(1.01);
  });

  test('never pairs fewer than nearest, however few candidates it may look at', () => {
    fc.assert(
      fc.property(medium, ({ rides, drivers, context }) => {
        const batch = servedByPlace(matchings.batch(rides, drivers, context));
        const nearest = servedByPlace(matchings.nearest(rides, drivers, context));
        expect(sumUpTo(batch, 1)).toBeGreaterThanOrEqual(sumUpTo(nearest, 1));
        expect(sumUpTo(batch, 2)).toBeGreaterThanOrEqual(sumUpTo(nearest, 2));
        expect(sumUpTo(batch, 3)).toBeGreaterThanOrEqual(sumUpTo(nearest, 3));
      }),
      { numRuns: 1000 },
    );
  });

  test('costs no more than nearest where both pair as many', () => {
    fc.assert(
      fc.property(fc.oneof(medium, medium.map(onePlaceEach)), ({ rides, drivers, context }) => {
        const batch = matchings.batch(rides, drivers, context);
        const nearest = matchings.nearest(rides, drivers, context);
        if (servedByPlace(batch).join() !== servedByPlace(nearest).join()) return;
        expect(totalS(batch)).toBeLessThanOrEqual(totalS(nearest) + 1e-6);
      }),
      { numRuns: 1000 },
    );
  });

  test('makes a ride take a farther driver when another has no choice', () => {
    const pickup = timesSquare;
    const rides = [
      rideAt('has-a-choice', pickup, { searchRadiusM: 3000 }),
      rideAt('has-none', pickup, { searchRadiusM: 500 }),
    ];
    const drivers = [driverAt('near', offsetPoint(pickup, 0, 200)), driverAt('far', offsetPoint(pickup, 0, 2500))];
    const context = { travelTime, candidatesMax: 5 };
    expect(matchings.batch(rides, drivers, context).map(pair)).toEqual(['has-a-choice far', 'has-none near']);
    expect(matchings.nearest(rides, drivers, context).map(pair)).toEqual(['has-a-choice near']);
  });

  test('serves a crowd whose candidates are all the same few drivers', () => {
    const random = createRandom('stadium');
    const rides = Array.from({ length: 80 }, (_, id) =>
      rideAt(`r${id}`, offsetPoint(timesSquare, id, 10), { queuedAtMs: id }),
    );
    const drivers = Array.from({ length: 100 }, (_, id) => {
      return driverAt(`d${id}`, offsetPoint(timesSquare, random.next() * 6.28, 100 + random.next() * 1500));
    });
    expect(matchings.batch(rides, drivers, { travelTime, candidatesMax: 5 })).toHaveLength(80);
  });
});

const sumUpTo = (served: readonly number[], place: number) =>
  served.slice(0, place).reduce((sum, count) => sum + count, 0);
const pair = ({ rideId, driverId }: Pairing) => `${rideId} ${driverId}`;

interface Outcome {
  served: number[];
  costS: number;
}

function isBetter(a: Outcome, b: Outcome): boolean {
  for (const [place, count] of a.served.entries()) {
    const other = b.served[place] ?? 0;
    if (count !== other) return count > other;
  }
  return a.costS < b.costS;
}

/** Tries every way to send each driver to one of the rides that know it, or to none. */
function bestOfAll(scene: Scene, candidatesMax: number): Outcome {
  const { rides, drivers } = scene;
  const greedy = new Set(oneAfterAnother(scene));
  const known = new Set<string>(greedy);
  for (const ride of rides) {
    const eligible = drivers.filter((driver) => isEligible(ride, driver));
    for (const { driverId } of byDistance(ride, eligible).slice(0, candidatesMax))
      known.add(`${ride.rideId} ${driverId}`);
  }
  let best: Outcome = { served: [0, 0, 0], costS: 0 };
  const sent: { rideId: string }[] = [];
  const send = (next: number, costS: number): void => {
    const driver = drivers[next];
    if (!driver) {
      const found = { served: servedByPlace(sent), costS };
      if (isBetter(found, best)) best = found;
      return;
    }
    send(next + 1, costS);
    for (const ride of rides) {
      const full = sent.filter(({ rideId }) => rideId === ride.rideId).length === ride.places;
      if (full || !known.has(`${ride.rideId} ${driver.driverId}`)) continue;
      sent.push(ride);
      send(next + 1, costS + travelTime.etaS(driver.position, ride.pickup));
      sent.pop();
    }
  };
  send(0, 0);
  return best;
}

function rideAt(rideId: string, pickup: Point, changes: Partial<WaitingRide> = {}): WaitingRide {
  return {
    rideId,
    pickup,
    dropoff: pickup,
    vehicleClasses: ['standard'],
    seats: 1,
    attributes: [],
    excluded: new Map(),
    searchRadiusM: 5000,
    places: 1,
    queuedAtMs: 0,
    ...changes,
  };
}

function driverAt(driverId: string, position: Point): DriverProfile {
  return {
    driverId,
    position,
    vehicleClass: 'standard',
    seats: 4,
    attributes: [],
    maxPickupM: Infinity,
    shiftLeftS: Infinity,
  };
}

describe.each(['nearest', 'batch'] as const)('%s', (name) => {
  const match = matchings[name];
  const context = { travelTime, candidatesMax: 3 };

  test('gives every ride its first driver before any its second', () => {
    const rides = [rideAt('greedy', timesSquare, { places: 3 }), rideAt('modest', offsetPoint(timesSquare, 0, 900))];
    const drivers = [100, 200, 300].map((distanceM) =>
      driverAt(`at-${distanceM}`, offsetPoint(timesSquare, 0, distanceM)),
    );
    const pairings = match(rides, drivers, context);
    expect(pairings.filter(({ rideId }) => rideId === 'greedy')).toHaveLength(2);
    expect(pairings.filter(({ rideId }) => rideId === 'modest')).toHaveLength(1);
  });

  test('goes by travel time, not by distance, among the candidates', () => {
    const acrossTheRiver = offsetPoint(timesSquare, Math.PI / 2, 500);
    const drivers = [driverAt('across', acrossTheRiver), driverAt('this-side', offsetPoint(timesSquare, 0, 900))];
    const bridge = { etaS: (from: Point) => (from === acrossTheRiver ? 1200 : 300) };
    expect(match([rideAt('r', timesSquare)], drivers, { travelTime: bridge, candidatesMax: 2 })).toEqual([
      { rideId: 'r', driverId: 'this-side', pickupEtaS: 300 },
    ]);
  });

  test('never pairs where there is no way', () => {
    const island = { etaS: () => Infinity };
    expect(
      match([rideAt('r', timesSquare)], [driverAt('d', timesSquare)], { travelTime: island, candidatesMax: 2 }),
    ).toEqual([]);
  });

  test('finds drivers on the other side of the antimeridian', () => {
    const rides = [rideAt('r', { lat: -17, lng: 179.999 })];
    const drivers = [driverAt('far', { lat: -17, lng: 179.97 }), driverAt('across', { lat: -17, lng: -179.999 })];
    expect(match(rides, drivers, context).map(pair)).toEqual(['r across']);
  });

  test('equally near drivers go by id', () => {
    const drivers = ['c', 'a', 'b'].map((id) => driverAt(id, timesSquare));
    expect(match([rideAt('r', timesSquare)], drivers, context).map(pair)).toEqual(['r a']);
  });

  test('drivers who take equally long go by id, however far they are', () => {
    const drivers = ['c', 'a', 'b'].map((id, step) => driverAt(id, offsetPoint(timesSquare, 0, 100 * step)));
    const rides = [rideAt('r', timesSquare, { places: 3 })];
    const pairings = match(rides, drivers, { travelTime: { etaS: () => 300 }, candidatesMax: 3 });
    expect(pairings.map(pair)).toEqual(['r a', 'r b', 'r c']);
  });

  test('nobody to match is no error', () => {
    expect(match([], [], context)).toEqual([]);
    expect(match([rideAt('r', timesSquare)], [], context)).toEqual([]);
    expect(match([], [driverAt('d', timesSquare)], context)).toEqual([]);
    expect(match([rideAt('r', timesSquare, { places: 0 })], [driverAt('d', timesSquare)], context)).toEqual([]);
  });
});

test('in a large round batch pairs as many as nearest or more, at less', () => {
  const random = createRandom('large');
  const anywhere = () => ({ lat: 40.7 + random.next() * 0.18, lng: -74.02 + random.next() * 0.09 });
  const rides = Array.from({ length: 500 }, (_, id) =>
    rideAt(`r${id}`, anywhere(), { queuedAtMs: id, searchRadiusM: 2500 }),
  );
  const drivers = Array.from({ length: 1500 }, (_, id) => driverAt(`d${id}`, anywhere()));
  const context = { travelTime, candidatesMax: 20 };
  const [batch, nearest] = [matchings.batch(rides, drivers, context), matchings.nearest(rides, drivers, context)];
  expect([batch.length, nearest.length]).toEqual([500, 500]);
  expect(totalS(batch)).toBeLessThan(totalS(nearest));
});

describe('why a ride finds nobody', () => {
  const ride = rideAt('r', timesSquare, { searchRadiusM: 1_000 });
  const near = (driverId: string, changes: Partial<DriverProfile> = {}) => ({
    ...driverAt(driverId, timesSquare),
    ...changes,
  });
  const why = (drivers: DriverProfile[], changes: Partial<WaitingRide> = {}) =>
    whyNobody([{ ...ride, ...changes }], drivers, { travelTime }).get('r');

  test('is the commonest of what keeps those near, unless somebody would have done', () => {
    expect(why([])).toBe('nobody_near');
    expect(why([driverAt('far', offsetPoint(timesSquare, 0, 2_000))])).toBe('nobody_near');
    const vans = [near('a', { vehicleClass: 'van' }), near('b', { vehicleClass: 'van' }), near('c', { seats: 0 })];
    expect(why(vans)).toBe('vehicle_class');
    expect(why([...vans, near('d')])).toBe('taken');
  });

  test('names a lapsed offer first: that can be helped', () => {
    const vans = [near('a', { vehicleClass: 'van' }), near('b', { vehicleClass: 'van' })];
    expect(why([...vans, near('d')], { excluded: new Map([['d', 'lapsed']]) })).toBe('lapsed');
  });
});

test('rides that somebody near would suit are counted', () => {
  const rides = [
    rideAt('a', timesSquare),
    rideAt('b', timesSquare, { seats: 9 }),
    rideAt('c', offsetPoint(timesSquare, 0, 9_000)),
  ];
  expect(countServable(rides, [driverAt('d', timesSquare)], { travelTime })).toBe(1);
  expect(countServable(rides, [], { travelTime })).toBe(0);
});
