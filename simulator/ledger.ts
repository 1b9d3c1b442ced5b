import type { Ride, RideStatus } from '../src/client/contract.ts';
import type { Trip } from './demand/demand.ts';
import type { Tally } from './tally.ts';

/**
 * What the city knows of one ride. Times are wall milliseconds on the scheduler's clock, null until it happened.
 * Drivers may hear of a ride before its rider does: the offer can overtake the answer to the request.
 */
export interface RideRecord {
  readonly rideId: string;
  /** False for a ride that this run didn't request: one that an earlier run left behind with a driver. */
  own: boolean;
  /** Nobody will get in. */
  isNoShow: boolean;
  /** Who cancelled it and when, `rider:assigned`; null: nobody. */
  cancelledBy: string | null;
  /** Told of each status that drivers report. */
  onStatus: ((status: RideStatus) => void) | null;
  trip: Trip | null;
  status: RideStatus;
  /** Offers of it on drivers' screens right now. */
  openOffers: number;
  sentMs: number | null;
  firstOfferMs: number | null;
  firstAssignedMs: number | null;
  /** Last news of it; a ride nobody speaks of for long is asked about. */
  heardMs: number;
  /** Until when silence is what to expect. */
  quietUntilMs: number;
}

/** Rides of this run by where they are now. */
export interface RideCounts {
  readonly requested: number;
  readonly waiting: number;
  readonly offered: number;
  /** A driver is on the way, waits, or drives. */
  readonly underWay: number;
  readonly assignedEver: number;
  readonly completed: number;
  readonly cancelled: number;
  readonly noDriversAvailable: number;
}

const over: ReadonlySet<RideStatus> = new Set(['completed', 'cancelled', 'no_drivers_available']);

const assigned: ReadonlySet<RideStatus> = new Set(['assigned', 'driver_arrived', 'in_progress', 'completed']);

export const isOver = (record: RideRecord): boolean => over.has(record.status);

/** The rides of the city, as drivers and riders report them. */
export class RideLedger {
  readonly #records = new Map<string, RideRecord>();
  readonly #now: () => number;
  readonly #tally: Tally;

  constructor(now: () => number, tally: Tally) {
    this.#now = now;
    this.#tally = tally;
  }

  get(rideId: string): RideRecord {
    const known = this.#records.get(rideId);
    if (known !== undefined) return known;
    const nowMs = this.#now();
    const record: RideRecord = {
      rideId,
      own: false,
      isNoShow: false,
      cancelledBy: null,
      onStatus: null,
      trip: null,
      status: 'searching',
      openOffers: 0,
      sentMs: null,
      firstOfferMs: null,
      firstAssignedMs: null,
      heardMs: nowMs,
      quietUntilMs: nowMs,
    };
    this.#records.set(rideId, record);
    return record;
  }

  /** The service took the request that was sent at `sentMs`. */
  requested(rideId: string, trip: Trip, sentMs: number, quietMs: number): RideRecord {
    const record = this.get(rideId);
    record.own = true;
    record.trip = trip;
    record.sentMs = sentMs;
    if (record.status === 'searching') this.#heard(record, quietMs);
    // Whatever overtook the answer couldn't be measured until now.
    if (record.firstOfferMs !== null) this.#tally.requestToOfferMs.push(record.firstOfferMs - sentMs);
    if (record.firstAssignedMs !== null) this.#tally.requestToAssignedMs.push(record.firstAssignedMs - sentMs);
    return record;
  }

  offered(rideId: string): void {
    const record = this.get(rideId);
    record.openOffers++;
    record.heardMs = this.#now();
    if (record.firstOfferMs !== null) return;
    record.firstOfferMs = record.heardMs;
    if (record.sentMs !== null) this.#tally.requestToOfferMs.push(record.heardMs - record.sentMs);
  }

  offerEnded(rideId: string): void {
    this.get(rideId).openOffers--;
  }

  /** A driver has it, in any phase; no news is expected for `quietMs`. */
  underWay(rideId: string, status: 'assigned' | 'driver_arrived' | 'in_progress', quietMs: number): void {
    const record = this.get(rideId);
    if (isOver(record)) return;
    const isNews = record.status !== status;
    record.status = status;
    this.#heard(record, quietMs);
    if (isNews) record.onStatus?.(status);
    if (record.firstAssignedMs !== null) return;
    record.firstAssignedMs = record.heardMs;
    if (record.sentMs !== null) this.#tally.requestToAssignedMs.push(record.heardMs - record.sentMs);
  }

  /** Its driver gave it back. */
  searchingAgain(rideId: string, quietMs: number): void {
    const record = this.get(rideId);
    if (isOver(record)) return;
    record.status = 'searching';
    this.#heard(record, quietMs);
  }

  ended(rideId: string, status: 'completed' | 'cancelled'): void {
    this.get(rideId).status = status;
  }

  /** Something doesn't add up: ask the service soon. */
  doubtful(rideId: string): void {
    this.get(rideId).quietUntilMs = this.#now();
  }

  /** What the service itself says of a ride is what counts. */
  told(rideId: string, status: RideStatus, quietMs: number): void {
    const record = this.get(rideId);
    record.status = status;
    this.#heard(record, quietMs);
    // When it was assigned isn't known now: not a measurement.
    if (assigned.has(status)) record.firstAssignedMs ??= record.heardMs;
  }

  /** The service's word on one of our rides, known to us until now or not. */
  adopt(ride: Ride): void {
    const record = this.get(ride.id);
    record.own = true;
    this.told(ride.id, ride.status, 0);
    // Assigned and then cancelled, before its driver could tell.
    if (ride.assignment !== null) record.firstAssignedMs ??= record.heardMs;
    const { cancellation } = ride;
    if (cancellation !== null) record.cancelledBy = `${cancellation.source}:${cancellation.phase}`;
  }

  anyOpen(): boolean {
    for (const record of this.own()) if (!isOver(record)) return true;
    return false;
  }

  /** The rides this run requested. */
  *own(): Generator<RideRecord> {
    for (const record of this.#records.values()) if (record.own) yield record;
  }

  /** The cancelled rides by who cancelled them in which phase. */
  cancellations(): Record<string, number> {
    const by: Record<string, number> = {};
    for (const { cancelledBy } of this.own()) if (cancelledBy !== null) by[cancelledBy] = (by[cancelledBy] ?? 0) + 1;
    return by;
  }

  counts(): RideCounts {
    const by: Record<RideStatus, number> = {
      searching: 0,
      assigned: 0,
      driver_arrived: 0,
      in_progress: 0,
      completed: 0,
      cancelled: 0,
      no_drivers_available: 0,
    };
    let [requested, offered, assignedEver] = [0, 0, 0];
    for (const record of this.own()) {
      requested++;
      by[record.status]++;
      if (record.status === 'searching' && record.openOffers > 0) offered++;
      if (record.firstAssignedMs !== null) assignedEver++;
    }
    return {
      requested,
      waiting: by.searching - offered,
      offered,
      underWay: by.assigned + by.driver_arrived + by.in_progress,
      assignedEver,
      completed: by.completed,
      cancelled: by.cancelled,
      noDriversAvailable: by.no_drivers_available,
    };
  }

  #heard(record: RideRecord, quietMs: number): void {
    record.heardMs = this.#now();
    record.quietUntilMs = record.heardMs + quietMs;
  }
}
