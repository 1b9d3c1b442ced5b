/**
 * A ride as a state machine: searching → assigned → driver_arrived → in_progress → completed, or cancelled, or
 * no_drivers_available. Times are milliseconds of any one clock. `version` is +1 at every change, `events` counts what
 * its timeline tells.
 */
import { type ExclusionCause, liftable, type LossCause } from './eligibility.ts';
import type { Policy } from './policy.ts';
import { openPlaces } from './search.ts';
import { applied, refused, repeated, type Verdict } from './verdict.ts';

export interface RideExclusion {
  readonly driverId: string;
  readonly cause: ExclusionCause;
}

/** How the offer to a driver ended. */
export interface RideEnd {
  readonly driverId: string;
  readonly cause: ExclusionCause | 'withdrawn';
}

export interface Ride {
  readonly id: string;
  readonly riderId: string;
  readonly status:
    | 'searching'
    | 'assigned'
    | 'driver_arrived'
    | 'in_progress'
    | 'completed'
    | 'cancelled'
    | 'no_drivers_available';
  /** Kept when the ride is over; null again when its driver has given it back. */
  readonly assignment: { readonly driverId: string; readonly offerId: string } | null;
  readonly liveOffers: number;
  readonly offersMade: number;
  readonly emptyRounds: number;
  /** Waits for a match round. */
  readonly isQueued: boolean;
  readonly patienceUntilMs: number;
  /** Its patience is over, and until then an operator may still find somebody; null: it isn't. */
  readonly rescueUntilMs: number | null;
  /** An operator keeps it from the match rounds until then; null, or earlier than now: nobody does. */
  readonly heldUntilMs: number | null;
  /** Its driver doesn't come nearer the pickup. */
  readonly isStalled: boolean;
  /** What came of offers to no avail, in order; only lifting changes an entry, and none is taken out. */
  readonly exclusions: readonly RideExclusion[];
  /** The searches of this ride: +1 when it is given back. An offer belongs to the one it was made in. */
  readonly searchTry: number;
  /** The driver has arrived, and waits for so long; null: for ever. */
  readonly noShowAtMs: number | null;
  /** Have had the ride, and given it back. */
  readonly gaveBackDriverIds: readonly string[];
  readonly events: number;
  readonly version: number;
}

export const OVER: ReadonlySet<Ride['status']> = new Set(['completed', 'cancelled', 'no_drivers_available']);

export const requestRide = (id: string, riderId: string, patienceUntilMs: number): Ride => ({
  id,
  riderId,
  status: 'searching',
  assignment: null,
  liveOffers: 0,
  offersMade: 0,
  emptyRounds: 0,
  isQueued: true,
  patienceUntilMs,
  rescueUntilMs: null,
  heldUntilMs: null,
  isStalled: false,
  exclusions: [],
  searchTry: 1,
  noShowAtMs: null,
  gaveBackDriverIds: [],
  events: 1,
  version: 1,
});

/** One change: `events` things to tell of it. */
const changed = (ride: Ride, events: number, patch: Partial<Ride>): Ride => ({
  ...ride,
  ...patch,
  events: ride.events + events,
  version: ride.version + 1,
});

/** Whether another driver may be offered this ride now. */
export function judgeOffer(
  ride: Ride,
  policy: Pick<Policy, 'parallelOffers' | 'offersMax'>,
): Verdict<Ride, 'ride_not_searching' | 'ride_fully_offered'> {
  if (ride.status !== 'searching') return refused('ride_not_searching');
  if (openPlaces(policy, ride.liveOffers, ride.offersMade) === 0) return refused('ride_fully_offered');
  const liveOffers = ride.liveOffers + 1;
  const offersMade = ride.offersMade + 1;
  // Out of the queue as long as there is no room for another offer.
  const isFull = liveOffers >= policy.parallelOffers || offersMade >= policy.offersMax;
  return applied(changed(ride, 1, { liveOffers, offersMade, isQueued: ride.isQueued && !isFull }));
}

export const offerReceived = (ride: Ride): Ride => changed(ride, 1, {});

/** Offers of this ride ended without an assignment: it is looked at again at once. */
export function offersEnded(ride: Ride, ends: readonly RideEnd[], areExcluded: boolean): Ride {
  const isSearching = ride.status === 'searching';
  return changed(ride, ends.length, {
    liveOffers: isSearching ? ride.liveOffers - ends.length : 0,
    isQueued: isSearching,
    exclusions: areExcluded ? [...ride.exclusions, ...(ends as RideExclusion[])] : ride.exclusions,
  });
}

export const assignRide = (ride: Ride, driverId: string, offerId: string): Ride =>
  changed(ride, 1, {
    status: 'assigned',
    assignment: { driverId, offerId },
    isQueued: false,
    liveOffers: 0,
    heldUntilMs: null,
  });

/** `riderId` is whose ride it has to be; null: anybody's. */
export function cancelRide(
  ride: Ride,
  riderId: string | null,
): Verdict<Ride, 'wrong_rider' | 'ride_in_progress' | 'ride_over'> {
  if (riderId !== null && riderId !== ride.riderId) return refused('wrong_rider');
  if (ride.status === 'cancelled') return repeated;
  if (ride.status === 'in_progress') return refused('ride_in_progress');
  if (OVER.has(ride.status)) return refused('ride_over');
  return applied(changed(ride, 1, { status: 'cancelled', isQueued: false, isStalled: false, noShowAtMs: null }));
}

/**
 * The driver cancels after accepting, or the ride is taken from him: it searches on, without that driver and with its
 * patience from now on; not by itself when that has happened more than `givebacksMax` times. A driver for whom a better
 * one was found hasn't given anything back.
 */
export function giveBackRide(
  ride: Ride,
  driverId: string,
  atMs: number,
  { patienceMs, givebacksMax }: Pick<Policy, 'patienceMs' | 'givebacksMax'>,
  cause: LossCause = 'cancelled',
): Verdict<Ride, 'wrong_driver' | 'ride_in_progress' | 'ride_over'> {
  if (ride.assignment?.driverId !== driverId)
    return ride.gaveBackDriverIds.includes(driverId) ? repeated : refused('wrong_driver');
  if (ride.status === 'in_progress') return refused('ride_in_progress');
  if (OVER.has(ride.status)) return refused('ride_over');
  const givebacks = ride.exclusions.filter(({ cause: of }) => of === 'cancelled' || of === 'stalled').length;
  return applied(
    changed(ride, 1, {
      status: 'searching',
      assignment: null,
      isQueued: true,
      patienceUntilMs: givebacks >= givebacksMax ? atMs : Math.max(ride.patienceUntilMs, atMs + patienceMs),
      searchTry: ride.searchTry + 1,
      isStalled: false,
      noShowAtMs: null,
      exclusions: [...ride.exclusions, { driverId, cause }],
      gaveBackDriverIds: [...ride.gaveBackDriverIds, driverId],
    }),
  );
}

export type RideStep = 'driver_arrived' | 'in_progress' | 'completed';
const PHASES: readonly Ride['status'][] = ['assigned', 'driver_arrived', 'in_progress', 'completed'];

/** A step that was taken before is a repetition, one that isn't next is out of turn. */
export function advanceRide(
  ride: Ride,
  driverId: string,
  step: RideStep,
  noShowAtMs: number | null = null,
): Verdict<Ride, 'wrong_driver' | 'ride_cancelled' | 'wrong_phase'> {
  if (ride.assignment?.driverId !== driverId) return refused('wrong_driver');
  if (ride.status === 'cancelled') return refused('ride_cancelled');
  const ahead = PHASES.indexOf(step) - PHASES.indexOf(ride.status);
  if (ahead <= 0) return repeated;
  return ahead > 1
    ? refused('wrong_phase')
    : applied(
        changed(ride, 1, { status: step, isStalled: false, noShowAtMs: step === 'driver_arrived' ? noShowAtMs : null }),
      );
}

/**
 * A round found nobody: later again, or given up when patience or offers have run out and no offer is open. In between,
 * with `rescueMs`, operators are asked once.
 */
export function settleRide(
  ride: Ride,
  atMs: number,
  { offersMax, rescueMs }: { readonly offersMax: number; readonly rescueMs: number },
): Ride {
  if (ride.status !== 'searching' || !ride.isQueued || isHeld(ride, atMs)) return ride;
  const emptyRounds = ride.emptyRounds + 1;
  const isFinished = ride.liveOffers === 0 && (ride.patienceUntilMs <= atMs || ride.offersMade >= offersMax);
  if (isFinished && rescueMs > 0 && ride.rescueUntilMs === null)
    return changed(ride, 1, { emptyRounds, rescueUntilMs: atMs + rescueMs });
  if (!isFinished || (ride.rescueUntilMs !== null && ride.rescueUntilMs > atMs))
    return changed(ride, 0, { emptyRounds });
  return changed(ride, 1, { status: 'no_drivers_available', isQueued: false, emptyRounds });
}

export const isHeld = ({ heldUntilMs }: Ride, atMs: number): boolean => heldUntilMs !== null && heldUntilMs > atMs;

/** Patience and rescue stand still for so long. */
const standStill = ({ patienceUntilMs, rescueUntilMs }: Ride, ms: number): Partial<Ride> => ({
  patienceUntilMs: patienceUntilMs + ms,
  rescueUntilMs: rescueUntilMs === null ? null : rescueUntilMs + ms,
});

/** An operator keeps the ride from the match rounds; its offers have ended by then. */
export function holdRide(
  ride: Ride,
  atMs: number,
  { holdMs }: Pick<Policy, 'holdMs'>,
): Verdict<Ride, 'ride_not_searching'> {
  if (ride.status !== 'searching') return refused('ride_not_searching');
  if (isHeld(ride, atMs)) return repeated;
  return applied(changed(ride, 1, { ...standStill(ride, holdMs), heldUntilMs: atMs + holdMs, isQueued: true }));
}

export function releaseHold(ride: Ride, atMs: number): Verdict<Ride, 'ride_not_searching'> {
  if (ride.status !== 'searching') return refused('ride_not_searching');
  if (!isHeld(ride, atMs)) return repeated;
  return applied(changed(ride, 1, { ...standStill(ride, atMs - ride.heldUntilMs!), heldUntilMs: null }));
}

/** Its driver doesn't come nearer any more, or does so again; only for the assignment that was watched. */
export function flagPickup(ride: Ride, offerId: string, isStalled: boolean): Ride {
  const isWatched = ride.status === 'assigned' && ride.assignment?.offerId === offerId;
  return isWatched && ride.isStalled !== isStalled ? changed(ride, 1, { isStalled }) : ride;
}

/** Nobody else is there: whoever let an offer lapse may be asked once more. */
export function liftExclusions(ride: Ride, atMs: number): Ride {
  const drivers = liftable(ride.exclusions);
  if (ride.status !== 'searching' || !ride.isQueued || isHeld(ride, atMs) || drivers.size === 0) return ride;
  const isLifted = ({ driverId, cause }: RideExclusion): boolean =>
    drivers.has(driverId) && (cause === 'expired' || cause === 'undeliverable');
  const exclusions = ride.exclusions.map((each) => (isLifted(each) ? { ...each, cause: 'lifted' as const } : each));
  return changed(ride, 1, { exclusions });
}
