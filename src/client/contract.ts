/** The shapes of the public contract (REST and websocket) that more than one client hands to its callers. */

/** WGS 84, degrees. */
export interface Position {
  readonly lat: number;
  readonly lng: number;
}

export type RideStatus =
  | 'searching'
  | 'assigned'
  | 'driver_arrived'
  | 'in_progress'
  | 'completed'
  | 'cancelled'
  | 'no_drivers_available';

/** Times are ISO 8601. */
export interface Ride {
  readonly id: string;
  readonly regionId: string;
  readonly riderId: string;
  readonly status: RideStatus;
  readonly pickup: Position;
  readonly dropoff: Position;
  /** Null until a driver has accepted, and again when that driver gave the ride back. */
  readonly assignment: Assignment | null;
  /** Null unless it was cancelled. */
  readonly cancellation: {
    readonly source: 'rider' | 'driver' | 'operator' | 'system';
    readonly reasonCode: string;
    /** The status it was cancelled in. */
    readonly phase: RideStatus;
  } | null;
}

export type DriverStatus = 'offline' | 'available' | 'leased' | 'assigned';

/** A confirmed lease. The fence orders the holders of one driver for ever: of two, the higher one is the newer. */
export interface Assignment {
  readonly rideId: string;
  readonly driverId: string;
  readonly offerId: string;
  readonly fence: number;
  readonly assignedAt: string;
}
