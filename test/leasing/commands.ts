/** What random tests of the lease protocol ask for: commands that name things by number, whatever there is then. */
import fc from 'fast-check';
import type { RideStep } from '../../domain/ride.ts';

export const RIDES = 3;
export const DRIVERS = 3;
export const RESCUE_MS = 7_200_000;

/** One more than there are: nobody's. Of offers the newest is 0. */
const ride = fc.constantFrom<number[]>(0, 0, 1, 1, 2, RIDES);
const driver = fc.constantFrom<number[]>(0, 0, 1, 1, 2, 2, DRIVERS);
const offer = fc.constantFrom<number[]>(0, 0, 0, 1, 1, 2, 3);
/** Whoever has the ride, or else the first. */
export const ITS_OWN = DRIVERS + 1;
const itsDriver = fc.constantFrom<number[]>(ITS_OWN, ITS_OWN, ITS_OWN, 0, 1, DRIVERS);
const claim = {
  offer,
  token: fc.constantFrom('own', 'own', 'own', 'other'),
  by: fc.constantFrom('driver', 'driver', 'other', 'holder'),
};

const lease = fc.record({
  kind: fc.constantFrom('lease' as const, 'lease' as const, 'lease' as const, 'assign' as const),
  ride,
  driver,
  seen: fc.constantFrom('none', 'some', 'all', null),
});
const receive = fc.record({ kind: fc.constant('receive' as const), ...claim });
const confirm = fc.record({ kind: fc.constant('confirm' as const), ...claim });
const decline = fc.record({ kind: fc.constant('decline' as const), ...claim });
const release = fc.record({ kind: fc.constant('release' as const), ...claim });
const cancel = fc.record({
  kind: fc.constant('cancel' as const),
  ride,
  by: fc.constantFrom('rider', 'stranger', null),
});
const driverCancel = fc.record({
  kind: fc.constant('driverCancel' as const),
  ride,
  driver: itsDriver,
  source: fc.constantFrom('driver' as const, 'operator' as const),
});
const advance = fc.record({
  kind: fc.constant('advance' as const),
  ride,
  driver: itsDriver,
  step: fc.constantFrom<RideStep>('driver_arrived', 'in_progress', 'completed'),
});
const online = fc.record({ kind: fc.constant('online' as const), driver });
const offline = fc.record({ kind: fc.constant('offline' as const), driver });

/** Transitions, which may also be asked for at the same time. */
const transitions = [
  { weight: 6, arbitrary: lease },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lift' as const), ride }) },
  { weight: 3, arbitrary: receive },
  { weight: 5, arbitrary: confirm },
  { weight: 2, arbitrary: decline },
  { weight: 1, arbitrary: release },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('sweep' as const) }) },
  { weight: 1, arbitrary: cancel },
  { weight: 2, arbitrary: driverCancel },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('reassign' as const),
      ride,
      driver: itsDriver,
      to: driver,
      by: fc.constantFrom('operator' as const, 'system' as const),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('hold' as const, 'releaseHold' as const), ride }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('flag' as const), ride, offer, isStalled: fc.boolean() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('replaceStalled' as const), ride, offer }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('cancelNoShows' as const) }) },
  { weight: 4, arbitrary: advance },
  { weight: 2, arbitrary: online },
  { weight: 1, arbitrary: offline },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('settle' as const), ride, rescueMs: fc.constantFrom(0, RESCUE_MS) }),
  },
] as const;

/** What comes over the city by itself. */
const circumstances = [
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('block' as const), driver, isBlocked: fc.boolean() }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('lapse' as const), driver }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('lookEarly' as const), driver }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom('outlastHold' as const, 'outlastWait' as const, 'outlastPatience' as const),
      ride,
    }),
  },
] as const;

export const transition = fc.oneof(...transitions);
export const command = fc.oneof(...transitions, ...circumstances);
export type Command = typeof command extends fc.Arbitrary<infer Value> ? Value : never;

const setOf = <T>(one: fc.Arbitrary<T>): fc.Arbitrary<T[]> => fc.array(one, { minLength: 2, maxLength: 4 });

/** Commands of one kind that a process gathered. */
export const set: fc.Arbitrary<Command[]> = fc.oneof(
  { weight: 4, arbitrary: setOf(lease.map((each) => ({ ...each, kind: 'lease' as const }))) },
  { weight: 1, arbitrary: setOf(lease.map((each) => ({ ...each, kind: 'assign' as const }))) },
  { weight: 1, arbitrary: setOf(receive) },
  { weight: 3, arbitrary: setOf(confirm) },
  { weight: 1, arbitrary: setOf(decline) },
  { weight: 1, arbitrary: setOf(release) },
  { weight: 1, arbitrary: setOf(cancel) },
  { weight: 1, arbitrary: setOf(driverCancel) },
  { weight: 1, arbitrary: setOf(advance) },
  { weight: 1, arbitrary: setOf(online) },
  { weight: 1, arbitrary: setOf(offline) },
);

/** On CI the larger number. CABRANK_SPEC_RUNS is the number for whoever looks for something. */
export const runs = (onCi: number, elsewhere: number): number =>
  Number(process.env['CABRANK_SPEC_RUNS'] ?? (process.env['CI'] === undefined ? elsewhere : onCi));
