/**
 * The lease protocol in memory: one region's rides, drivers and offers, and every transition as one atomic step. It is
 * the executable specification of `src/leasing/`: the same commands, answers and records, without a database, a clock
 * or randomness of its own.
 */
import * as drivers from './driver.ts';
import type { Driver } from './driver.ts';
import { endOffer, judgeTerm, type Offer, type OfferEnd, type TermClaim } from './offer.ts';
import type { LossCause } from './eligibility.ts';
import type { Policy } from './policy.ts';
import type { RefusalCode } from './refusals.ts';
import * as rides from './ride.ts';
import type { Ride, RideStep } from './ride.ts';

export interface Answer {
  readonly refused: RefusalCode | null;
  /** False for a repetition, and for what was refused. */
  readonly applied: boolean;
}

export type LeaseTerms = Pick<
  Policy,
  'parallelOffers' | 'offersMax' | 'deliveryTtlMs' | 'decisionTtlMs' | 'maxLifetimeMs'
>;

const DONE: Answer = { refused: null, applied: true };
const AGAIN: Answer = { refused: null, applied: false };
const no = (refused: RefusalCode): Answer => ({ refused, applied: false });

export class LeaseStore {
  readonly rides = new Map<string, Ride>();
  readonly drivers = new Map<string, Driver>();
  readonly offers = new Map<string, Offer>();
  /** `RIDER DRIVER`: who aren't brought together. */
  readonly blocks = new Set<string>();

  requestRide(id: string, riderId: string, patienceUntilMs: number): void {
    this.rides.set(id, rides.requestRide(id, riderId, patienceUntilMs));
  }

  registerDriver(id: string): void {
    this.drivers.set(id, drivers.registerDriver(id));
  }

  bringOnline(driverId: string): Answer {
    const driver = this.drivers.get(driverId);
    if (driver === undefined) return no('driver_not_found');
    const verdict = drivers.bringOnline(driver);
    if (verdict.kind !== 'applied') return AGAIN;
    this.drivers.set(driverId, verdict.to);
    return DONE;
  }

  /** An open offer ends declined. */
  takeOffline(driverId: string): Answer {
    const driver = this.drivers.get(driverId);
    if (driver === undefined) return no('driver_not_found');
    if (driver.status === 'leased')
      this.#endOffers([driver.term.offerId], 'declined', { isProven: false, isExcluding: true });
    const verdict = drivers.takeOffline(this.drivers.get(driverId)!);
    if (verdict.kind === 'refused') return no(verdict.code);
    if (verdict.kind === 'repeated') return AGAIN;
    this.drivers.set(driverId, verdict.to);
    return DONE;
  }

  /** available → leased, if the driver is available and the ride searches and has room. */
  lease(
    ask: { rideId: string; driverId: string; offerId: string; token: string; seenExclusions?: number },
    terms: LeaseTerms,
    atMs: number,
  ): Answer {
    const { rideId, driverId, offerId, token, seenExclusions = Infinity } = ask;
    const ride = this.rides.get(rideId);
    const driver = this.drivers.get(driverId);
    if (ride === undefined) return no('ride_not_found');
    if (driver === undefined) return no('driver_not_found');
    if (ride.status !== 'searching') return no('ride_not_searching');
    if (seenExclusions < Infinity && rides.isHeld(ride, atMs)) return no('ride_held');
    if (this.blocks.has(`${ride.riderId} ${driverId}`)) return no('driver_blocked');
    const unseen = ride.exclusions.slice(seenExclusions);
    if (unseen.some((exclusion) => exclusion.driverId === driverId)) return no('driver_excluded');
    const term = { offerId, rideId, grantedAtMs: atMs, expiresAtMs: atMs + terms.deliveryTtlMs, isReceived: false };
    const leased = drivers.leaseDriver(driver, term);
    if (leased.kind !== 'applied') return no('driver_unavailable');
    const offered = rides.judgeOffer(ride, terms);
    if (offered.kind !== 'applied') return no('ride_fully_offered');
    this.drivers.set(driverId, leased.to);
    this.rides.set(rideId, offered.to);
    this.offers.set(offerId, {
      id: offerId,
      rideId,
      driverId,
      fence: leased.to.fence,
      searchTry: ride.searchTry,
      token,
      status: 'pending',
      isProven: false,
      decisionTtlMs: terms.decisionTtlMs,
      lifetimeEndsAtMs: atMs + terms.maxLifetimeMs,
      version: 1,
    });
    return DONE;
  }

  /** available → assigned: the lease is confirmed with its grant. Only for a ride that has no offer out. */
  assign(ask: Parameters<LeaseStore['lease']>[0], terms: LeaseTerms, atMs: number): Answer {
    const leased = this.lease(ask, { ...terms, parallelOffers: 1 }, atMs);
    if (!leased.applied) return leased;
    return this.confirm({ offerId: ask.offerId, token: ask.token, driverId: ask.driverId }, atMs);
  }

  /** The device has the offer: the decision window begins. A repeated receipt renews nothing. */
  receive(claim: TermClaim, atMs: number): Answer {
    const verdict = this.#judge(claim, atMs, null);
    if (verdict !== 'live') return verdict === 'repeated' ? AGAIN : no(verdict);
    const offer = this.offers.get(claim.offerId)!;
    const driver = this.#leased(offer.driverId);
    if (driver.term.isReceived) return AGAIN;
    this.drivers.set(driver.id, drivers.renewTerm(driver, atMs + offer.decisionTtlMs, offer.lifetimeEndsAtMs));
    this.rides.set(offer.rideId, rides.offerReceived(this.rides.get(offer.rideId)!));
    return DONE;
  }

  /** The first accept wins, and the ride's other offers are withdrawn with it. */
  confirm(claim: TermClaim, atMs: number): Answer {
    const verdict = this.#judge(claim, atMs, 'accepted');
    if (verdict !== 'live') return verdict === 'repeated' ? AGAIN : no(verdict);
    const offer = this.offers.get(claim.offerId)!;
    this.offers.set(offer.id, endOffer(offer, 'accepted', true));
    this.drivers.set(offer.driverId, drivers.assignDriver(this.#leased(offer.driverId)));
    this.rides.set(offer.rideId, rides.assignRide(this.rides.get(offer.rideId)!, offer.driverId, offer.id));
    this.#endOffers(this.#openOffers(offer.rideId), 'withdrawn', { isProven: false, isExcluding: false });
    return DONE;
  }

  /** The driver declines, or the holder takes the offer back. */
  giveBackOffer(claim: TermClaim, endsAs: 'declined' | 'withdrawn', atMs: number): Answer {
    const verdict = this.#judge(claim, atMs, endsAs);
    if (verdict !== 'live') return verdict === 'repeated' ? AGAIN : no(verdict);
    this.#endOffers([claim.offerId], endsAs, { isProven: true, isExcluding: endsAs === 'declined' });
    return DONE;
  }

  /** Ends every term that is over; returns the offers. */
  expire(atMs: number): string[] {
    const over = [...this.drivers.values()].flatMap((driver) =>
      driver.status === 'leased' && driver.term.expiresAtMs <= atMs ? [driver.term] : [],
    );
    for (const [rideId, terms] of Map.groupBy(over, (term) => term.rideId)) {
      const ids = terms.map(({ offerId }) => offerId);
      const wasReceived = new Map(terms.map(({ offerId, isReceived }) => [offerId, isReceived]));
      const endOf = (id: string): OfferEnd => (wasReceived.get(id) === true ? 'expired' : 'undeliverable');
      this.#endOffersOf(rideId, ids, endOf, { isProven: false, isExcluding: true });
    }
    return over.map(({ offerId }) => offerId);
  }

  cancel(rideId: string, riderId: string | null): Answer {
    const ride = this.rides.get(rideId);
    if (ride === undefined) return no('ride_not_found');
    const verdict = rides.cancelRide(ride, riderId);
    if (verdict.kind === 'refused') return no(verdict.code);
    if (verdict.kind === 'repeated') return AGAIN;
    this.#endOffers(this.#openOffers(rideId), 'withdrawn', { isProven: false, isExcluding: false });
    const cancelled = rides.cancelRide(this.rides.get(rideId)!, riderId);
    if (cancelled.kind === 'applied') this.rides.set(rideId, cancelled.to);
    if (ride.assignment !== null) this.#free(ride.assignment.driverId);
    return DONE;
  }

  driverCancel(
    rideId: string,
    driverId: string,
    atMs: number,
    policy: Pick<Policy, 'patienceMs' | 'givebacksMax'>,
    cause: LossCause = 'cancelled',
  ): Answer {
    const ride = this.rides.get(rideId);
    if (ride === undefined) return no('ride_not_found');
    const verdict = rides.giveBackRide(ride, driverId, atMs, policy, cause);
    if (verdict.kind === 'refused') return no(verdict.code);
    if (verdict.kind === 'repeated') return AGAIN;
    this.rides.set(rideId, verdict.to);
    this.#free(driverId);
    return DONE;
  }

  /** To another driver, or nothing at all; by the system, which found a better one, once and before the first arrives. */
  reassign(
    fromDriverId: string,
    ask: Parameters<LeaseStore['lease']>[0],
    policy: LeaseTerms & Pick<Policy, 'patienceMs' | 'givebacksMax'>,
    atMs: number,
    by: 'operator' | 'system',
  ): Answer {
    const ride = this.rides.get(ask.rideId);
    const isTooLate = ride?.status === 'driver_arrived' || ride?.exclusions.some(({ cause }) => cause === 'replaced');
    if (by === 'system' && isTooLate === true) return no('wrong_phase');
    const before = { rides: new Map(this.rides), drivers: new Map(this.drivers) };
    const taken = this.driverCancel(ask.rideId, fromDriverId, atMs, policy, by === 'system' ? 'replaced' : 'cancelled');
    if (!taken.applied) return taken;
    const given = this.assign(ask, policy, atMs);
    if (given.applied) return given;
    for (const [id, known] of before.rides) this.rides.set(id, known);
    for (const [id, driver] of before.drivers) this.drivers.set(id, driver);
    return given;
  }

  /** Keeps a ride from the match rounds; its open offers are withdrawn. */
  hold(rideId: string, policy: Pick<Policy, 'holdMs'>, atMs: number): Answer {
    const ride = this.rides.get(rideId);
    if (ride === undefined) return no('ride_not_found');
    const verdict = rides.holdRide(ride, atMs, policy);
    if (verdict.kind === 'refused') return no(verdict.code);
    if (verdict.kind === 'repeated') return AGAIN;
    this.#endOffers(this.#openOffers(rideId), 'withdrawn', { isProven: false, isExcluding: false });
    const held = rides.holdRide(this.rides.get(rideId)!, atMs, policy);
    if (held.kind === 'applied') this.rides.set(rideId, held.to);
    return DONE;
  }

  releaseHold(rideId: string, atMs: number): Answer {
    const ride = this.rides.get(rideId);
    if (ride === undefined) return no('ride_not_found');
    const verdict = rides.releaseHold(ride, atMs);
    if (verdict.kind === 'refused') return no(verdict.code);
    if (verdict.kind === 'repeated') return AGAIN;
    this.rides.set(rideId, verdict.to);
    return DONE;
  }

  flagPickup(rideId: string, offerId: string, isStalled: boolean): void {
    const ride = this.rides.get(rideId);
    if (ride !== undefined) this.rides.set(rideId, rides.flagPickup(ride, offerId, isStalled));
  }

  /** Takes a flagged ride from the driver who doesn't come; whether it did. */
  replaceStalled(
    rideId: string,
    offerId: string,
    atMs: number,
    policy: Pick<Policy, 'patienceMs' | 'givebacksMax'>,
  ): boolean {
    const ride = this.rides.get(rideId);
    if (ride?.status !== 'assigned' || !ride.isStalled || ride.assignment?.offerId !== offerId) return false;
    return this.driverCancel(rideId, ride.assignment.driverId, atMs, policy, 'stalled').applied;
  }

  /** Cancels the rides whose drivers have waited long enough; which. */
  cancelNoShows(atMs: number): string[] {
    const over = [...this.rides.values()].filter(({ noShowAtMs }) => noShowAtMs !== null && noShowAtMs <= atMs);
    for (const { id } of over) this.cancel(id, null);
    return over.map(({ id }) => id);
  }

  advance(rideId: string, driverId: string, step: RideStep, noShowAtMs: number | null = null): Answer {
    const ride = this.rides.get(rideId);
    if (ride === undefined) return no('ride_not_found');
    const verdict = rides.advanceRide(ride, driverId, step, noShowAtMs);
    if (verdict.kind === 'refused') return no(verdict.code);
    if (verdict.kind === 'repeated') return AGAIN;
    this.rides.set(rideId, verdict.to);
    if (step === 'completed') this.#free(driverId);
    return DONE;
  }

  lift(rideId: string, atMs: number): void {
    const ride = this.rides.get(rideId);
    if (ride !== undefined) this.rides.set(rideId, rides.liftExclusions(ride, atMs));
  }

  settle(rideId: string, terms: { readonly offersMax: number; readonly rescueMs: number }, atMs: number): void {
    const ride = this.rides.get(rideId);
    if (ride !== undefined) this.rides.set(rideId, rides.settleRide(ride, atMs, terms));
  }

  #judge(claim: TermClaim, atMs: number, endedAs: OfferEnd | null) {
    const offer = this.offers.get(claim.offerId);
    const ride = this.rides.get(offer?.rideId ?? '');
    return judgeTerm(claim, offer, ride, this.drivers.get(offer?.driverId ?? ''), atMs, endedAs);
  }

  #openOffers(rideId: string): string[] {
    return [...this.offers.values()].flatMap(({ id, rideId: of, status }) =>
      of === rideId && status === 'pending' ? [id] : [],
    );
  }

  #endOffers(ids: readonly string[], end: OfferEnd, how: { isProven: boolean; isExcluding: boolean }): void {
    for (const [rideId, ofRide] of Map.groupBy(ids, (id) => this.offers.get(id)!.rideId))
      this.#endOffersOf(rideId, ofRide, () => end, how);
  }

  /** leased → available without an assignment: the one place where a term ends so. */
  #endOffersOf(
    rideId: string,
    ids: readonly string[],
    endOf: (offerId: string) => OfferEnd,
    { isProven, isExcluding }: { isProven: boolean; isExcluding: boolean },
  ): void {
    // By id, which is the order in which they were asked for.
    const ending = ids.toSorted().map((id) => this.offers.get(id)!);
    for (const offer of ending) {
      this.offers.set(offer.id, endOffer(offer, endOf(offer.id), isProven));
      this.#free(offer.driverId);
    }
    const ends = ending.map(({ id, driverId }) => ({ driverId, cause: endOf(id) as rides.RideEnd['cause'] }));
    this.rides.set(rideId, rides.offersEnded(this.rides.get(rideId)!, ends, isExcluding));
  }

  #free(driverId: string): void {
    this.drivers.set(driverId, drivers.freeDriver(this.drivers.get(driverId)!));
  }

  #leased(driverId: string): Driver & { status: 'leased' } {
    return this.drivers.get(driverId) as Driver & { status: 'leased' };
  }
}
