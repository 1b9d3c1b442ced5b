/** An offer, which is what a driver sees of a lease term: pending, then ended in one of five ways, for ever. */
import type { Driver } from './driver.ts';
import type { RefusalOf } from './refusals.ts';
import type { Ride } from './ride.ts';

export interface Offer {
  readonly id: string;
  readonly rideId: string;
  readonly driverId: string;
  readonly fence: number;
  /** Of the ride, when it was made. */
  readonly searchTry: number;
  readonly token: string;
  readonly status: 'pending' | 'accepted' | 'declined' | 'expired' | 'withdrawn' | 'undeliverable';
  /** Ended by whoever held the token: a repetition gets its first answer. */
  readonly isProven: boolean;
  readonly decisionTtlMs: number;
  readonly lifetimeEndsAtMs: number;
  readonly version: number;
}

export type OfferEnd = Exclude<Offer['status'], 'pending'>;

export const endOffer = (offer: Offer, status: OfferEnd, isProven: boolean): Offer => ({
  ...offer,
  status,
  isProven,
  version: offer.version + 1,
});

/** Who claims a term, and by which token; `driverId` null: a holder that isn't a driver. */
export interface TermClaim {
  readonly offerId: string;
  readonly token: string;
  readonly driverId: string | null;
}

/**
 * What a token may do to the term it belongs to: `live`, `repeated` (it ended as `endedAs` by this token before), or
 * why nothing. The order of the refusals is part of the contract.
 */
export function judgeTerm(
  claim: TermClaim,
  offer: Offer | undefined,
  ride: Ride | undefined,
  driver: Driver | undefined,
  atMs: number,
  endedAs: OfferEnd | null,
): 'live' | 'repeated' | Exclude<RefusalOf<'confirm'>, 'busy'> {
  if (offer === undefined || ride === undefined || driver === undefined) return 'offer_not_found';
  if (claim.driverId !== null && claim.driverId !== offer.driverId) return 'wrong_driver';
  if (claim.token !== offer.token) return 'wrong_token';
  if (offer.status === endedAs && offer.isProven) return 'repeated';
  const isItsTerm = driver.status === 'leased' && driver.term.offerId === offer.id;
  const isOfThisSearch = offer.searchTry === ride.searchTry;
  if (offer.status === 'pending' && isItsTerm && isOfThisSearch && atMs < driver.term.expiresAtMs) return 'live';
  if (ride.status === 'cancelled') return 'ride_cancelled';
  if (ride.assignment !== null && ride.assignment.offerId !== offer.id) return 'ride_taken';
  const ranOut = offer.status === 'pending' || offer.status === 'expired' || offer.status === 'undeliverable';
  return ranOut && driver.fence === offer.fence ? 'lease_expired' : 'lease_lost';
}
