import { randomUUID } from 'node:crypto';
import type { Position, Ride } from './contract.ts';
import { Rest, type RestOptions } from './rest.ts';

export interface RideRequest {
  readonly regionId: string;
  readonly riderId: string;
  readonly pickup: Position;
  readonly dropoff: Position;
  readonly vehicleClass?: string;
  /** 1 unless given. */
  readonly seats?: number;
  /** What the driver has to offer, all of it. */
  readonly attributes?: readonly string[];
  readonly acceptsLowerClass?: boolean;
}

/** One thing that happened to a ride, in order from 1; null for what its type doesn't have. */
export interface TimelineEntry {
  readonly seq: number;
  readonly type: string;
  readonly at: string;
  readonly driverId: string | null;
  readonly offerId: string | null;
  readonly fence: number | null;
  readonly reason: string | null;
}

/**
 * What a rider's app or its backend needs (token roles `rider` and `service`). Every call has a deadline and throws
 * `Problem` when refused, `Unreachable` when nobody answered in time; calls that may be repeated are, until then.
 */
export class RiderClient {
  readonly #rest: Rest;

  constructor(options: RestOptions) {
    this.#rest = new Rest(options);
  }

  /**
   * Requests a ride. The key makes the call repeatable: the service answers the same key with the same ride. One is
   * made for each call; pass your own to go on with a request whose outcome you never heard.
   */
  request(ride: RideRequest, idempotencyKey: string = randomUUID()): Promise<Ride> {
    return this.#rest.call({ method: 'POST', path: '/v1/rides', body: ride, idempotencyKey, repeatable: true });
  }

  get(rideId: string): Promise<Ride> {
    return this.#rest.call({ method: 'GET', path: ridePath(rideId), repeatable: true });
  }

  /** Refused with `ride_in_progress` or `ride_over` once it is too late. */
  cancel(rideId: string, reasonCode: string): Promise<Ride> {
    return this.#rest.call({
      method: 'POST',
      path: `${ridePath(rideId)}/cancel`,
      body: { reasonCode },
      repeatable: true,
    });
  }

  timeline(rideId: string): Promise<{ items: TimelineEntry[] }> {
    return this.#rest.call({ method: 'GET', path: `${ridePath(rideId)}/timeline`, repeatable: true });
  }

  close(): void {
    this.#rest.close();
  }
}

const ridePath = (rideId: string): string => `/v1/rides/${encodeURIComponent(rideId)}`;
