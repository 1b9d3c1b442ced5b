import { describe, expect, it } from 'vitest';
import {
  type DriverProfile,
  type Exclusion,
  excludedDrivers,
  liftable,
  type Needs,
  unsuitability,
  vehicleClassesFor,
} from '../../domain/eligibility.ts';
import { offsetPoint } from '../../domain/geo.ts';
import { defaultPolicy } from '../../domain/policy.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';

const HERE = { lat: 48, lng: 7.8 };
const travelTime = greatCircleTravelTime({ detourFactor: 1, speedMps: 10 });
const ride: Needs = {
  pickup: HERE,
  dropoff: offsetPoint(HERE, 0, 3_000),
  vehicleClasses: ['economy'],
  seats: 2,
  attributes: ['pet'],
  excluded: new Map(),
};
const driver: DriverProfile = {
  driverId: 'd',
  position: offsetPoint(HERE, 1, 1_000),
  vehicleClass: 'economy',
  seats: 4,
  attributes: ['pet', 'wheelchair'],
  maxPickupM: Infinity,
  shiftLeftS: Infinity,
};
const between = (r: Partial<Needs>, d: Partial<DriverProfile> = {}) =>
  unsuitability({ ...ride, ...r }, { ...driver, ...d }, travelTime);

describe('a driver is kept from a ride', () => {
  it('by nothing', () => expect(between({})).toBeNull());
  it.each<[string, Partial<Needs>, Partial<DriverProfile>]>([
    ['vehicle_class', {}, { vehicleClass: 'van' }],
    ['seats', { seats: 5 }, {}],
    ['attributes', { attributes: ['pet', 'child_seat'] }, {}],
    ['blocked', { excluded: new Map([['d', 'blocked']]) }, {}],
    ['declined', { excluded: new Map([['d', 'declined']]) }, {}],
    ['pickup_too_far', {}, { maxPickupM: 999 }],
    ['shift_ends', {}, { shiftLeftS: 399 }],
  ])('by %s', (reason, r, d) => expect(between(r, d)).toBe(reason));

  it('not by a limit that is just met', () => {
    expect(between({ seats: 4 })).toBeNull();
    expect(between({}, { maxPickupM: 1_001 })).toBeNull();
    // 100 s to the pickup, 300 s to the drop-off.
    expect(between({}, { shiftLeftS: 401 })).toBeNull();
  });
});

describe('vehicle classes', () => {
  const policy = { vehicleClasses: ['economy', 'comfort', 'premium'], higherClassAfterMs: 60_000 };
  const classes = (vehicleClass: string, waitedMs: number, acceptsLowerClass = false) =>
    vehicleClassesFor({ vehicleClass, acceptsLowerClass }, policy, waitedMs);

  it('higher ones come in time, one after the other', () => {
    expect(classes('economy', 59_999)).toEqual(['economy']);
    expect(classes('economy', 60_000)).toEqual(['economy', 'comfort']);
    expect(classes('economy', 120_000)).toEqual(['economy', 'comfort', 'premium']);
    expect(classes('premium', 1e9)).toEqual(['premium']);
  });

  it('lower ones only when the rider allows it', () => {
    expect(classes('premium', 1e9, true)).toEqual(['premium', 'comfort', 'economy']);
    expect(classes('comfort', 60_000, true)).toEqual(['comfort', 'premium', 'economy']);
  });

  it('a class that isn’t listed keeps to itself', () => expect(classes('van', 1e9, true)).toEqual(['van']));
});

describe('exclusions', () => {
  const policy = { ...defaultPolicy, declinedExclusionMs: 1_000, lapsedExclusionMs: 500 };
  const of = (driverId: string, cause: Exclusion['cause'], ageMs = 0) => ({ driverId, cause, ageMs });

  it('end with their time, but for a driver who gave the ride back', () => {
    const exclusions = [
      of('a', 'declined', 999),
      of('b', 'declined', 1_000),
      of('c', 'expired', 499),
      of('d', 'undeliverable', 500),
      of('e', 'cancelled', 1e9),
      of('f', 'lifted'),
    ];
    expect([...excludedDrivers(exclusions, ['g'], policy)]).toEqual([
      ['g', 'blocked'],
      ['a', 'declined'],
      ['c', 'lapsed'],
      ['e', 'cancelled'],
    ]);
  });

  it('of several the gravest has the name', () => {
    expect(excludedDrivers([of('a', 'expired'), of('a', 'declined')], [], policy).get('a')).toBe('declined');
    expect(excludedDrivers([of('a', 'declined')], ['a'], policy).get('a')).toBe('blocked');
  });

  it('for lapsed offers can be lifted, of each driver once', () => {
    const exclusions = [of('a', 'expired'), of('b', 'declined'), of('c', 'lifted'), of('c', 'undeliverable')];
    expect([...liftable(exclusions)]).toEqual(['a']);
  });
});
