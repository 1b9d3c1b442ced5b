/**
 * How people in a city are: riders who change their minds at every stage or don't come, drivers with shifts, vehicles and
 * preferences of their own. Shares are those of large fleets as far as they are told: about two in five bookings are
 * cancelled, most while the driver is on the way.
 */
import type { Policy } from '../domain/policy.ts';
import type { Random } from '../domain/random.ts';

/** What a rider wants, and will do. Durations are city milliseconds. */
export interface RiderPlan {
  readonly needs: {
    readonly vehicleClass?: string;
    readonly seats?: number;
    readonly attributes?: readonly string[];
    readonly acceptsLowerClass?: boolean;
  };
  /** Changes the mind so long after the ride has come to this stage, if it is still there by then; null: doesn't. */
  readonly changeOfMind: {
    readonly stage: 'searching' | 'assigned' | 'driver_arrived';
    readonly afterMs: number;
  } | null;
  /** Isn't there when the driver comes. */
  readonly staysAway: boolean;
  /** Has had enough of one driver. */
  readonly blocks: boolean;
}

export interface DriverPlan {
  readonly profile: {
    readonly vehicleClass?: string;
    readonly seats?: number;
    readonly attributes?: readonly string[];
    readonly maxPickupM?: number;
  };
  /** From the start of the day; null: drives on. */
  readonly shiftEndsAfterMs: number | null;
}

/** What a fleet with such people sets. City time. */
export const lifelikePolicy: Partial<Policy> = {
  vehicleClasses: ['economy', 'comfort'],
  higherClassAfterMs: 60_000,
  escalateAfterOffers: 2,
  escalateAfterMs: 90_000,
  escalatedParallelOffers: 3,
  escalatedRadiusM: 10_000,
  givebacksMax: 3,
  noShowAfterMs: 120_000,
  stalledAfterMs: 90_000,
  stalledReplacedAfterMs: 180_000,
  betterDriverSavesMs: 60_000,
  rescueMs: 30_000,
};

/** Drivers who give a ride back after accepting it, and who set out much later. */
export const LIFELIKE_RATES = { cancels: 0.03, dawdles: 0.02 } as const;

const MINDS = [
  { stage: 'searching', share: 0.22, meanMs: 6_000 },
  { stage: 'assigned', share: 0.3, meanMs: 20_000 },
  { stage: 'driver_arrived', share: 0.1, meanMs: 10_000 },
] as const;
const NO_SHOWS = 0.03;
const BLOCKS = 0.01;
const COMFORT = { rides: 0.12, drivers: 0.25 };
const LARGE = { rides: 0.03, drivers: 0.1, seats: 6 };
const PETS = { rides: 0.02, drivers: 0.5 };
const WHEELCHAIRS = { rides: 0.005, drivers: 0.05 };
const EASY = 0.5;
const SHORT_WAYS = { share: 0.2, maxPickupM: 1_500 };
const SHIFT_ENDS = { share: 0.3, fromMs: 10 * 60_000, toMs: 90 * 60_000 };

/** The same number of draws for everybody, so that one share doesn't shift another's draws. */
export function planRider(random: Random): RiderPlan {
  const isComfort = random.chance(COMFORT.rides);
  const isEasy = random.chance(EASY);
  const isLarge = random.chance(LARGE.rides);
  const attributes = [
    ...(random.chance(PETS.rides) ? ['pet'] : []),
    ...(random.chance(WHEELCHAIRS.rides) ? ['wheelchair'] : []),
  ];
  const draw = random.next();
  const wait = random.exponential(1);
  return {
    needs: {
      ...(isComfort && { vehicleClass: 'comfort', acceptsLowerClass: isEasy }),
      ...(isLarge && { seats: LARGE.seats }),
      ...(attributes.length > 0 && { attributes }),
    },
    changeOfMind: mindAt(draw, wait),
    staysAway: random.chance(NO_SHOWS),
    blocks: random.chance(BLOCKS),
  };
}

function mindAt(draw: number, wait: number): RiderPlan['changeOfMind'] {
  let left = draw;
  const mind = MINDS.find(({ share }) => (left -= share) < 0);
  return mind === undefined ? null : { stage: mind.stage, afterMs: wait * mind.meanMs };
}

export function planDriver(random: Random): DriverPlan {
  const isComfort = random.chance(COMFORT.drivers);
  const isLarge = random.chance(LARGE.drivers);
  const attributes = [
    ...(random.chance(PETS.drivers) ? ['pet'] : []),
    ...(random.chance(WHEELCHAIRS.drivers) ? ['wheelchair'] : []),
  ];
  const isShort = random.chance(SHORT_WAYS.share);
  const endsShift = random.chance(SHIFT_ENDS.share);
  const shiftMs = SHIFT_ENDS.fromMs + random.next() * (SHIFT_ENDS.toMs - SHIFT_ENDS.fromMs);
  return {
    profile: {
      ...(isComfort && { vehicleClass: 'comfort' }),
      ...(isLarge && { seats: LARGE.seats }),
      attributes,
      ...(isShort && { maxPickupM: SHORT_WAYS.maxPickupM }),
    },
    shiftEndsAfterMs: endsShift ? shiftMs : null,
  };
}
