/** What drivers are told. A notice may be lost at any time: gateways find in the records who wasn't told. */
import type { Point } from '../../domain/geo.ts';

export interface OfferMessage {
  readonly offerId: string;
  readonly rideId: string;
  readonly leaseToken: string;
  readonly fence: number;
  /** The decision window, counted by the device from receipt. */
  readonly expiresInMs: number;
  readonly pickup: Point;
  readonly dropoff: Point;
  readonly pickupEtaS: number;
}

export interface AssignmentMessage {
  readonly rideId: string;
  readonly driverId: string;
  readonly offerId: string;
  readonly fence: number;
  /** ISO 8601. */
  readonly assignedAt: string;
  readonly pickup: Point;
  readonly dropoff: Point;
}

export type DriverNotice = { readonly driverId: string } & (
  | { readonly event: 'offer'; readonly data: OfferMessage }
  | { readonly event: 'offer:withdrawn'; readonly data: { readonly offerId: string; readonly reason: string } }
  /** `accepted`: the driver's own accept, whose answer says the same. */
  | { readonly event: 'assignment'; readonly data: AssignmentMessage; readonly accepted: boolean }
  | {
      readonly event: 'ride:cancelled';
      readonly data: { readonly rideId: string; readonly reasonCode: string; readonly source: string };
    }
  /** It began or ended, and the device's socket didn't ask for that. Told as `state`. */
  | { readonly event: 'shift' }
);
