/**
 * The transitions on sets: one call is one round trip and one transaction, in one region. Each is a function of the
 * database (the .sql file of its name), and answers item by item, in the order asked.
 *
 * `wait` says what happens to an item whose rows somebody else holds: with it the call waits (bounded by the
 * connection's lock timeout), without it the item is answered `busy`.
 */
import type { DriverProfile, ExclusionCause } from '../../domain/eligibility.ts';
import type { Point } from '../../domain/geo.ts';
import type { Policy } from '../../domain/policy.ts';
import type { RefusalOf } from '../../domain/refusals.ts';
import type { Sql } from '../database/connection.ts';
import type { OfferMessage } from '../gateway/notices.ts';

/** A lease term, as whoever holds its token names it. `driverId` is who asks, or null for a holder that isn't a driver. */
export interface TermClaim {
  readonly offerId: string;
  readonly leaseToken: string;
  readonly driverId: string | null;
}

export interface NewRide {
  readonly rideId: string;
  readonly riderId: string;
  readonly vehicleClass: string;
  readonly seats: number;
  readonly attributes: readonly string[];
  readonly acceptsLowerClass: boolean;
  readonly pickup: Point;
  readonly dropoff: Point;
  readonly policyVersion: number;
  readonly patienceMs: number;
  readonly idempotency: { subject: string; key: string; requestHash: Buffer } | null;
}

export interface CreatedRide {
  readonly refused: 'idempotency_key_reused' | null;
  readonly replayed: boolean;
  readonly ride_id: string;
  readonly requested_at: Date;
}

export async function createRides(sql: Sql, region: number, rides: readonly NewRide[]): Promise<CreatedRide[]> {
  return sql<CreatedRide[]>`select refused, replayed, ride_id, requested_at
    from create_rides(${region}::smallint, ${columnsOf(sql, rides)}) order by ord`;
}

/** A driver found for a ride that isn't made yet. */
export interface PairedRide {
  readonly ride: NewRide;
  readonly lease: (Omit<LeaseAsk, 'seenExclusions'> & { readonly terms: LeaseTerms }) | undefined;
}

export interface RequestedRide extends CreatedRide {
  /** Why the driver who was found isn't asked. */
  readonly lease_refused: RefusalOf<'lease'> | null;
  /** Of the lease; null: none was granted. */
  readonly fence: number | null;
  readonly first_offer_after_ms: number | null;
  /** When the lease was granted, which is what the ride's record says last. */
  readonly leased_at: Date | null;
}

/** Makes rides, and leases at once the drivers who were found for them. */
export async function requestRides(sql: Sql, region: number, paired: readonly PairedRide[]): Promise<RequestedRide[]> {
  const leases = paired.map(({ lease }) => lease);
  return sql<RequestedRide[]>`
    select refused, replayed, ride_id, requested_at, lease_refused, fence::float8, first_offer_after_ms, leased_at
    from request_rides(${region}::smallint, ${columnsOf(
      sql,
      paired.map(({ ride }) => ride),
    )},
    ${leases.map((l) => l?.driverId ?? null)}::text[], ${leases.map((l) => l?.offerId ?? null)}::uuid[],
    ${leases.map((l) => l?.leaseToken ?? null)}::text[], ${leases.map((l) => l?.pickupEtaS ?? null)}::real[],
    ${leases.map((l) => l?.terms.parallelOffers ?? null)}::int[], ${leases.map((l) => l?.terms.offersMax ?? null)}::int[],
    ${leases.map((l) => l?.terms.deliveryTtlMs ?? null)}::int[],
    ${leases.map((l) => l?.terms.decisionTtlMs ?? null)}::int[],
    ${leases.map((l) => l?.terms.maxLifetimeMs ?? null)}::int[]) order by ord`;
}

const columnsOf = (sql: Sql, rides: readonly NewRide[]) => sql`
    ${rides.map((r) => r.rideId)}::uuid[], ${rides.map((r) => r.riderId)}::text[],
    ${rides.map((r) => r.vehicleClass)}::text[], ${rides.map((r) => r.seats)}::smallint[],
    ${rides.map((r) => r.attributes.join(','))}::text[], ${rides.map((r) => String(r.acceptsLowerClass))}::text[],
    ${rides.map((r) => r.pickup.lat)}::float8[], ${rides.map((r) => r.pickup.lng)}::float8[],
    ${rides.map((r) => r.dropoff.lat)}::float8[], ${rides.map((r) => r.dropoff.lng)}::float8[],
    ${rides.map((r) => r.idempotency?.subject ?? null)}::text[],
    ${rides.map((r) => r.idempotency?.key ?? null)}::text[],
    ${rides.map((r) => r.idempotency?.requestHash.toString('hex') ?? null)}::text[],
    ${rides.map((r) => r.policyVersion)}::int[], ${rides.map((r) => r.patienceMs)}::int[]`;

export interface LeaseAsk {
  readonly rideId: string;
  readonly driverId: string;
  readonly offerId: string;
  readonly leaseToken: string;
  readonly pickupEtaS: number;
  /** How many of the ride's exclusions were known when the pair was made: a later one refuses it. Absent: none does. */
  readonly seenExclusions?: number;
}

/** The part of a policy that a lease runs under. */
export type LeaseTerms = Pick<
  Policy,
  'parallelOffers' | 'offersMax' | 'deliveryTtlMs' | 'decisionTtlMs' | 'maxLifetimeMs'
> & { readonly policyVersion: number };

export interface LeaseAnswer {
  readonly refused: RefusalOf<'lease'> | null;
  readonly fence: number;
  /** Request → this offer, if it is the ride's first. */
  readonly first_offer_after_ms: number | null;
}

export async function leaseDrivers(
  sql: Sql,
  region: number,
  asks: readonly LeaseAsk[],
  terms: LeaseTerms,
  wait: boolean,
): Promise<LeaseAnswer[]> {
  return sql<LeaseAnswer[]>`select refused, fence::float8, first_offer_after_ms from lease_drivers(${region}::smallint,
    ${asks.map((a) => a.rideId)}::uuid[], ${asks.map((a) => a.driverId)}::text[],
    ${asks.map((a) => a.offerId)}::uuid[], ${asks.map((a) => a.leaseToken)}::text[],
    ${asks.map((a) => a.pickupEtaS)}::real[], ${asks.map((a) => a.seenExclusions ?? null)}::int[],
    ${terms.policyVersion}::int, ${terms.parallelOffers}::int, ${terms.offersMax}::int,
    ${terms.deliveryTtlMs}::int, ${terms.decisionTtlMs}::int, ${terms.maxLifetimeMs}::int, ${wait}) order by ord`;
}

export interface AssignAnswer extends LeaseAnswer {
  readonly assigned_at: Date;
  readonly since_request_ms: number;
  /** The version that the ride was requested under. */
  readonly policy_version: number;
}

/** Leases that are confirmed with their grant. */
export async function assignDrivers(
  sql: Sql,
  region: number,
  asks: readonly LeaseAsk[],
  terms: LeaseTerms,
  wait: boolean,
): Promise<AssignAnswer[]> {
  return sql<
    AssignAnswer[]
  >`select refused, fence::float8, first_offer_after_ms, assigned_at, since_request_ms, policy_version
    from assign_drivers(${region}::smallint,
    ${asks.map((a) => a.rideId)}::uuid[], ${asks.map((a) => a.driverId)}::text[],
    ${asks.map((a) => a.offerId)}::uuid[], ${asks.map((a) => a.leaseToken)}::text[],
    ${asks.map((a) => a.pickupEtaS)}::real[], ${asks.map((a) => a.seenExclusions ?? null)}::int[],
    ${terms.policyVersion}::int, ${terms.offersMax}::int,
    ${terms.deliveryTtlMs}::int, ${terms.decisionTtlMs}::int, ${terms.maxLifetimeMs}::int, ${wait}) order by ord`;
}

export interface LeaseOnceAnswer {
  readonly refused: RefusalOf<'lease'> | 'idempotency_key_reused' | null;
  readonly replayed: boolean;
  readonly offer_id: string;
  readonly fence: number;
  readonly first_offer_after_ms: number | null;
}

/** One lease under an idempotency key. */
export async function leaseDriverOnce(
  sql: Sql,
  region: number,
  ask: LeaseAsk,
  terms: LeaseTerms,
  idempotency: { subject: string; key: string; requestHash: Buffer },
): Promise<LeaseOnceAnswer> {
  const [answer] = await sql<LeaseOnceAnswer[]>`
    select refused, replayed, offer_id, fence::float8, first_offer_after_ms from lease_driver_once(${region}::smallint,
      ${idempotency.subject}, ${idempotency.key}, ${idempotency.requestHash},
      ${ask.rideId}::uuid, ${ask.driverId}, ${ask.offerId}::uuid, ${ask.leaseToken}, ${ask.pickupEtaS}::real,
      ${terms.policyVersion}::int, ${terms.parallelOffers}::int, ${terms.offersMax}::int,
      ${terms.deliveryTtlMs}::int, ${terms.decisionTtlMs}::int, ${terms.maxLifetimeMs}::int)`;
  return answer!;
}

export interface ReceiptAnswer {
  readonly refused: RefusalOf<'received'> | null;
  readonly applied: boolean;
  readonly expires_in_ms: number;
}

export async function receiveOffers(
  sql: Sql,
  region: number,
  claims: readonly TermClaim[],
  wait: boolean,
): Promise<ReceiptAnswer[]> {
  return sql<ReceiptAnswer[]>`select refused, applied, expires_in_ms from receive_offers(${region}::smallint,
    ${claims.map((c) => c.offerId)}::uuid[], ${claims.map((c) => c.leaseToken)}::text[],
    ${claims.map((c) => c.driverId)}::text[], ${wait}) order by ord`;
}

export interface ConfirmAnswer {
  readonly refused: RefusalOf<'confirm'> | null;
  /** False for a repetition, which hears what the first confirm heard. */
  readonly applied: boolean;
  readonly ride_id: string;
  readonly driver_id: string;
  readonly fence: number;
  readonly assigned_at: Date;
  readonly pickup_lat: number;
  readonly pickup_lng: number;
  readonly dropoff_lat: number;
  readonly dropoff_lng: number;
  readonly since_request_ms: number;
  /** The version that the ride was requested under. */
  readonly policy_version: number;
  readonly held_ms: number;
  readonly withdrawn_offer_ids: string[] | null;
  readonly withdrawn_driver_ids: string[] | null;
  readonly withdrawn_held_ms: number[] | null;
}

export async function confirmOffers(
  sql: Sql,
  region: number,
  claims: readonly TermClaim[],
  wait: boolean,
): Promise<ConfirmAnswer[]> {
  return sql<ConfirmAnswer[]>`select refused, applied, ride_id, driver_id, fence::float8, assigned_at,
      pickup_lat, pickup_lng, dropoff_lat, dropoff_lng, since_request_ms, held_ms,
      withdrawn_offer_ids, withdrawn_driver_ids, withdrawn_held_ms, policy_version
    from confirm_offers(${region}::smallint,
    ${claims.map((c) => c.offerId)}::uuid[], ${claims.map((c) => c.leaseToken)}::text[],
    ${claims.map((c) => c.driverId)}::text[], ${wait}) order by ord`;
}

export interface ReturnAnswer {
  readonly refused: RefusalOf<'decline'> | null;
  readonly applied: boolean;
  readonly ride_id: string;
  readonly driver_id: string;
  readonly held_ms: number;
}

export async function returnOffers(
  sql: Sql,
  region: number,
  claims: readonly (TermClaim & { readonly reason: string })[],
  status: 'declined' | 'withdrawn',
  wait: boolean,
): Promise<ReturnAnswer[]> {
  return sql<
    ReturnAnswer[]
  >`select refused, applied, ride_id, driver_id, held_ms from return_offers(${region}::smallint,
    ${claims.map((c) => c.offerId)}::uuid[], ${claims.map((c) => c.leaseToken)}::text[],
    ${claims.map((c) => c.driverId)}::text[], ${status}, ${claims.map((c) => c.reason)}::text[], ${wait}) order by ord`;
}

/** A term that ended because it was over. */
export interface EndedTerm {
  readonly offer_id: string;
  readonly driver_id: string;
  readonly ended_as: 'expired' | 'undeliverable';
  readonly held_ms: number;
}

/** Not ended: renewed meanwhile, or held by somebody else. */
type NotEnded = { readonly [Field in 'ended_as' | 'held_ms' | 'late_ms']: null } & Pick<
  EndedTerm,
  'offer_id' | 'driver_id'
>;

/** `late_ms`: how long after its end the term was ended; `due_at`: by the database's clock, as text, which has its microseconds. */
export type DueOffer = ((EndedTerm & { readonly late_ms: number }) | NotEnded) & { readonly due_at: string };

/** Where a walk along what is due has come to. */
export interface DuePlace {
  readonly due_at: string;
  readonly offer_id: string | null;
}

export const FROM_THE_FIRST: DuePlace = { due_at: '-infinity', offer_id: null };

export interface TermAhead {
  readonly offer_id: string;
  /** How long it may live, however often it is renewed. */
  readonly lifetime_ms: number;
}

/** Terms that begin in the future: the database's clock was put back. */
export async function termsAhead(sql: Sql, region: number, limit: number): Promise<TermAhead[]> {
  return sql<TermAhead[]>`select offer_id, lifetime_ms from terms_ahead(${region}::smallint, ${limit}::int)`;
}

/** For a caller who has known of each for longer than it may live. */
export async function endTermsAhead(sql: Sql, region: number, offerIds: readonly string[]): Promise<EndedTerm[]> {
  return sql<EndedTerm[]>`select offer_id, driver_id, ended_as, held_ms
    from end_terms_ahead(${region}::smallint, ${offerIds as string[]}::uuid[])`;
}

/** Rides that are due later than in `waitMaxMs`, and than their own policy's waits last, are due now; how many. */
export async function bringRidesForward(sql: Sql, region: number, waitMaxMs: number, limit: number): Promise<number> {
  const [row] = await sql<
    { moved: number }[]
  >`select bring_rides_forward(${region}::smallint, ${waitMaxMs}::int, ${limit}::int) as moved`;
  return row!.moved;
}

/** Behind every how many of the leases that are over a set of them ends, in the order of `expireLeases`. */
export async function duePlaces(sql: Sql, region: number, setSize: number, limit: number): Promise<DuePlace[]> {
  return sql<DuePlace[]>`select due_at::text, id as offer_id from (
      select due_at, id, row_number() over (order by due_at, id) as nth from offers
      where region = ${region}::smallint and due_at is not null
        and due_at > '-infinity' and due_at <= (select clock_timestamp())
      order by due_at, id limit ${limit}::int) due
    where nth % ${setSize}::int = 0 order by nth`;
}

/** In the order in which they were due. */
export async function expireLeases(sql: Sql, region: number, after: DuePlace, limit: number): Promise<DueOffer[]> {
  return sql<DueOffer[]>`select offer_id, driver_id, ended_as, due_at::text, late_ms, held_ms
    from expire_leases(${region}::smallint, ${after.due_at}::text::timestamptz, ${limit}::int, ${after.offer_id}::uuid) e
    order by e.due_at, e.offer_id`;
}

export interface CancelAsk {
  readonly rideId: string;
  /** Whose ride it has to be; null: anybody's. */
  readonly riderId: string | null;
  readonly source: 'rider' | 'operator' | 'system';
  readonly reason: string;
}

export interface CancelAnswer {
  readonly refused: RefusalOf<'cancel'> | null;
  readonly applied: boolean;
  readonly released_driver_id: string | null;
  readonly withdrawn_offer_ids: string[] | null;
  readonly withdrawn_driver_ids: string[] | null;
  readonly withdrawn_held_ms: number[] | null;
}

export async function cancelRides(
  sql: Sql,
  region: number,
  asks: readonly CancelAsk[],
  wait: boolean,
): Promise<CancelAnswer[]> {
  return sql<CancelAnswer[]>`select refused, applied, released_driver_id, withdrawn_offer_ids, withdrawn_driver_ids,
      withdrawn_held_ms
    from cancel_rides(${region}::smallint,
    ${asks.map((a) => a.rideId)}::uuid[], ${asks.map((a) => a.riderId)}::text[],
    ${asks.map((a) => a.source)}::text[], ${asks.map((a) => a.reason)}::text[], ${wait}) order by ord`;
}

export interface UnassignAsk {
  readonly rideId: string;
  /** Who has the ride, as whoever asks knows it. */
  readonly driverId: string;
  /** Who takes it from the driver; the driver unless given. */
  readonly source?: 'driver' | 'operator' | 'system';
  readonly reason: string;
}

export interface UnassignAnswer {
  readonly refused: RefusalOf<'driverCancel'> | null;
  readonly applied: boolean;
}

export async function unassignRides(
  sql: Sql,
  region: number,
  asks: readonly UnassignAsk[],
  wait: boolean,
): Promise<UnassignAnswer[]> {
  return sql<UnassignAnswer[]>`select refused, applied from unassign_rides(${region}::smallint,
    ${asks.map((a) => a.rideId)}::uuid[], ${asks.map((a) => a.driverId)}::text[],
    ${asks.map((a) => a.source ?? 'driver')}::text[], ${asks.map((a) => a.reason)}::text[], ${wait}) order by ord`;
}

export type RideStep = 'driver_arrived' | 'in_progress' | 'completed';

export interface AdvanceAsk {
  readonly rideId: string;
  readonly driverId: string;
  readonly status: RideStep;
}

export interface AdvanceAnswer {
  readonly refused: RefusalOf<'advance'> | null;
  readonly applied: boolean;
}

export async function advanceRides(
  sql: Sql,
  region: number,
  asks: readonly AdvanceAsk[],
  wait: boolean,
): Promise<AdvanceAnswer[]> {
  return sql<AdvanceAnswer[]>`select refused, applied from advance_rides(${region}::smallint,
    ${asks.map((a) => a.rideId)}::uuid[], ${asks.map((a) => a.driverId)}::text[],
    ${asks.map((a) => a.status)}::text[], ${wait}) order by ord`;
}

export interface ReassignAsk extends LeaseAsk {
  /** Who has the ride; `driverId` gets it. */
  readonly fromDriverId: string;
  readonly source: 'operator' | 'system';
  readonly reason: string;
}

export interface ReassignAnswer {
  readonly refused: RefusalOf<'reassign'> | null;
  readonly applied: boolean;
  readonly fence: number;
  readonly assigned_at: Date;
}

/** From one driver to another in one transaction, or nothing. */
export async function reassignRide(
  sql: Sql,
  region: number,
  ask: ReassignAsk,
  terms: LeaseTerms,
): Promise<ReassignAnswer> {
  const [answer] = await sql<ReassignAnswer[]>`
    select refused, applied, fence::float8, assigned_at from reassign_ride(${region}::smallint, ${ask.rideId}::uuid,
      ${ask.fromDriverId}, ${ask.driverId}, ${ask.source}, ${ask.reason}, ${ask.offerId}::uuid, ${ask.leaseToken},
      ${ask.pickupEtaS}::real, ${terms.policyVersion}::int, ${terms.offersMax}::int, ${terms.deliveryTtlMs}::int,
      ${terms.decisionTtlMs}::int, ${terms.maxLifetimeMs}::int)`;
  return answer!;
}

export interface HoldAnswer {
  readonly refused: RefusalOf<'hold'> | null;
  readonly applied: boolean;
  readonly withdrawn_offer_ids: string[] | null;
  readonly withdrawn_driver_ids: string[] | null;
  readonly withdrawn_held_ms: number[] | null;
}

/** Keeps a searching ride from the match rounds for its policy's `holdMs`. */
export async function holdRide(sql: Sql, region: number, rideId: string, reason: string): Promise<HoldAnswer> {
  const [answer] = await sql<HoldAnswer[]>`
    select * from hold_ride(${region}::smallint, ${rideId}::uuid, ${reason})`;
  return answer!;
}

export async function releaseHold(
  sql: Sql,
  region: number,
  rideId: string,
  reason: string,
): Promise<Pick<HoldAnswer, 'refused' | 'applied'>> {
  const [answer] = await sql<HoldAnswer[]>`
    select * from release_hold(${region}::smallint, ${rideId}::uuid, ${reason})`;
  return answer!;
}

/** A ride whose driver is on the way, and how the driver comes along. */
export interface RideOnPickup extends Omit<DueRide, 'empty_rounds' | 'live_offers' | 'patience_left_ms'> {
  readonly driver_id: string;
  readonly offer_id: string;
  /** Null: not known, or too old. */
  readonly driver_lat: number | null;
  readonly driver_lng: number | null;
  /** How near the pickup the driver has come; null: not known yet. */
  readonly nearest_m: number | null;
  /** How long ago the driver came nearer; null: nobody has looked yet. */
  readonly since_nearer_ms: number | null;
  readonly stalled: boolean;
}

/** One step along the region, by ride id. */
export const ridesOnPickup = async (
  sql: Sql,
  region: number,
  after: string,
  limit: number,
  staleMs: number,
): Promise<RideOnPickup[]> =>
  sql<
    RideOnPickup[]
  >`select * from rides_on_pickup(${region}::smallint, ${after}::uuid, ${limit}::int, ${staleMs}::int)`;

interface PickupRef {
  readonly rideId: string;
  readonly offerId: string;
}

/** The drivers of these assignments have come nearer, to `distanceM` (null: not known), or are looked at for the first time. */
export async function recordPickups(
  sql: Sql,
  region: number,
  pickups: readonly (PickupRef & { readonly distanceM: number | null })[],
): Promise<void> {
  await sql`select record_pickups(${region}::smallint, ${pickups.map((p) => p.rideId)}::uuid[],
    ${pickups.map((p) => p.offerId)}::uuid[], ${pickups.map((p) => p.distanceM)}::real[])`;
}

/** Drops up to `limit` records of drivers who aren't on the way any more; returns how many. */
export async function dropPickups(sql: Sql, region: number, limit: number): Promise<number> {
  const [row] = await sql<{ dropped: number }[]>`select drop_pickups(${region}::smallint, ${limit}::int) as dropped`;
  return row!.dropped;
}

/** Flags those that have stood still for `stalledMs`, and takes the flag from the others (null). Never waits. */
export const flagPickups = async (
  sql: Sql,
  region: number,
  pickups: readonly (PickupRef & { readonly stalledMs: number | null })[],
): Promise<{ ride_id: string; stalled: boolean }[]> =>
  sql`select ride_id, stalled from flag_pickups(${region}::smallint, ${pickups.map((p) => p.rideId)}::uuid[],
    ${pickups.map((p) => p.offerId)}::uuid[], ${pickups.map((p) => p.stalledMs)}::float8[])`;

/** Takes flagged rides from their drivers, who haven't arrived; which. Never waits. */
export const replaceStalled = async (
  sql: Sql,
  region: number,
  pickups: readonly PickupRef[],
): Promise<{ ride_id: string; driver_id: string }[]> =>
  sql`select ride_id, driver_id from replace_stalled(${region}::smallint, ${pickups.map((p) => p.rideId)}::uuid[],
    ${pickups.map((p) => p.offerId)}::uuid[])`;

/** Regions in which a lease, or a wait at a pickup, is over within `withinMs`, and in how many ms the first is; 0: now. */
export async function endingRegions(sql: Sql, withinMs: number): Promise<ReadonlyMap<number, number>> {
  const rows = await sql<{ number: number; in_ms: number }[]>`select * from ending_regions(${withinMs}::int)`;
  return new Map(rows.map(({ number, in_ms }) => [number, in_ms]));
}

/** Cancels up to `limit` rides whose riders didn't come in time; each with the driver who waited. Never waits. */
export const cancelNoShows = async (
  sql: Sql,
  region: number,
  limit: number,
): Promise<{ ride_id: string; driver_id: string }[]> =>
  sql`select ride_id, driver_id from cancel_no_shows(${region}::smallint, ${limit}::int)`;

/** Relieves rides of their exclusions for lapsed offers; answers with those that had any. Never waits. */
export const liftExclusions = async (
  sql: Sql,
  region: number,
  rideIds: readonly string[],
): Promise<{ ride_id: string; lifted: number }[]> =>
  sql`select ride_id, lifted from lift_exclusions(${region}::smallint, ${rideIds as string[]}::uuid[])`;

export interface SettledRide {
  readonly ride_id: string;
  readonly given_up: boolean;
  readonly to_rescue: boolean;
  readonly reason: string;
  /** When it is due again; null: its search is over. */
  readonly again_in_ms: number | null;
}

/** Later again after `waitMs`, for the `reason` that nobody was found; or given up when patience or offers have run out. Never waits. */
export async function settleRides(
  sql: Sql,
  region: number,
  rides: readonly { rideId: string; waitMs: number; reason: string }[],
  terms: { offersMax: number; rescueMs: number; recoveryMs: number },
): Promise<SettledRide[]> {
  return sql`select * from settle_rides(${region}::smallint,
    ${rides.map((r) => r.rideId)}::uuid[], ${rides.map((r) => r.waitMs)}::int[], ${rides.map((r) => r.reason)}::text[],
    ${terms.offersMax}::int, ${terms.rescueMs}::int, ${terms.recoveryMs}::int)`;
}

export interface ShiftAnswer {
  readonly refused: RefusalOf<'offline'> | null;
  readonly applied: boolean;
  /** The offer that ended `declined` because its driver left. */
  readonly ended_offer_id: string | null;
  readonly held_ms: number | null;
}

export async function bringOnline(
  sql: Sql,
  region: number,
  driverIds: readonly string[],
  wait: boolean,
): Promise<ShiftAnswer[]> {
  return sql<ShiftAnswer[]>`select refused, applied, null as ended_offer_id, null as held_ms
    from bring_online(${region}::smallint, ${driverIds as string[]}::text[], ${wait}) order by ord`;
}

export async function takeOffline(
  sql: Sql,
  region: number,
  driverIds: readonly string[],
  reason: string,
  wait: boolean,
): Promise<ShiftAnswer[]> {
  return sql<ShiftAnswer[]>`select refused, applied, ended_offer_id, held_ms
    from take_offline(${region}::smallint, ${driverIds as string[]}::text[], ${reason}, ${wait}) order by ord`;
}

/** One step along the region's drivers; `last_driver_id` is null when the region is done. */
export async function retireAbsent(
  sql: Sql,
  region: number,
  after: string,
  limit: number,
  graceMs: number,
): Promise<{ last_driver_id: string | null; retired: string[] }> {
  const [step] = await sql<{ last_driver_id: string | null; retired: string[] }[]>`
    select * from retire_absent(${region}::smallint, ${after}, ${limit}::int, ${graceMs}::int)`;
  return step!;
}

/** A gateway watches these regions: who isn't seen there within `graceMs` is gone. */
export async function watchRegions(
  sql: Sql,
  regions: readonly { readonly number: number; readonly graceMs: number }[],
): Promise<void> {
  await sql`select watch_regions(${regions.map(({ number }) => number)}::smallint[],
    ${regions.map(({ graceMs }) => graceMs)}::int[])`;
}

export interface PositionReport {
  readonly driverId: string;
  /** Null: the driver is there, and hasn't moved as far as we know. */
  readonly position: (Point & { readonly cell: number }) | null;
}

export async function recordPositions(sql: Sql, region: number, reports: readonly PositionReport[]): Promise<void> {
  await sql`select record_positions(${region}::smallint, ${reports.map((r) => r.driverId)}::text[],
    ${reports.map((r) => r.position?.lat ?? null)}::float8[], ${reports.map((r) => r.position?.lng ?? null)}::float8[],
    ${reports.map((r) => r.position?.cell ?? null)}::int8[])`;
}

export interface DueRide {
  readonly ride_id: string;
  readonly pickup_lat: number;
  readonly pickup_lng: number;
  readonly dropoff_lat: number;
  readonly dropoff_lng: number;
  readonly vehicle_class: string;
  readonly seats: number;
  readonly attributes: string[];
  readonly accepts_lower_class: boolean;
  readonly policy_version: number;
  readonly empty_rounds: number;
  readonly live_offers: number;
  readonly offers_made: number;
  readonly excluded_driver_ids: string[];
  readonly excluded_as: ExclusionCause[];
  readonly excluded_ages_ms: number[];
  readonly blocked_driver_ids: string[];
  readonly requested_at_ms: number;
  readonly waited_ms: number;
  readonly patience_left_ms: number;
}

export interface OpenRound {
  /** Leases, or waits at the pickup, are over, and nobody has ended them yet. */
  readonly is_overdue: boolean;
  /** When the next ride that isn't due yet will be; null: there is none. */
  readonly next_in_ms: number | null;
  /** Those waiting longest first, `limit` at most. */
  readonly rides: readonly DueRide[];
}

export async function openRound(sql: Sql, region: number, limit: number): Promise<OpenRound> {
  const [round] = await sql<OpenRound[]>`select * from open_round(${region}::smallint, ${limit}::int)`;
  return round!;
}

/** A driver as read for a round. */
export interface SeenDriver extends DriverProfile {
  readonly cell: number;
}

const NONE: readonly string[] = [];

/** `available`: who may be asked; `leased`: whom an open offer hides. */
export async function driversNear(
  sql: Sql,
  region: number,
  status: 'available' | 'leased',
  cells: readonly number[] | null,
  staleMs: number,
): Promise<SeenDriver[]> {
  const [row] = await sql<{ drivers: string | null }[]>`
    select drivers_near(${region}::smallint, ${status}, ${cells as number[] | null}::int8[], ${staleMs}::int) as drivers`;
  return row!.drivers === null ? [] : row!.drivers.split(';').map(driverOfLine);
}

function driverOfLine(line: string): SeenDriver {
  const [driverId, lat, lng, vehicleClass, seats, attributes, maxPickupM, shiftLeftS, cell] = line.split(',') as Line;
  return {
    driverId,
    position: { lat: Number(lat) / 1e7, lng: Number(lng) / 1e7 },
    vehicleClass,
    seats: Number(seats),
    attributes: attributes === '' ? NONE : attributes.split('+'),
    maxPickupM: maxPickupM === '' ? Infinity : Number(maxPickupM),
    shiftLeftS: shiftLeftS === '' ? Infinity : Number(shiftLeftS),
    cell: Number(cell),
  };
}
type Line = [string, string, string, string, string, string, string, string, string];

/** Whether a ride has been due for longer than `byMs`, so that no round can be on its way to it. */
export async function isRideOverdue(sql: Sql, region: number, byMs: number): Promise<boolean> {
  const [row] = await sql<{ overdue: boolean }[]>`select is_ride_overdue(${region}::smallint, ${byMs}::int) as overdue`;
  return row!.overdue;
}

/** How many rides, up to `limit`, have been due for longer than `byMs`. */
export async function overdueRides(sql: Sql, region: number, byMs: number, limit: number): Promise<number> {
  const [row] = await sql<
    { rides: number }[]
  >`select overdue_rides(${region}::smallint, ${byMs}::int, ${limit}::int) as rides`;
  return row!.rides;
}

/** Drops up to `limit` idempotency keys that are older than a day; returns how many. */
export async function dropOldKeys(sql: Sql, region: number, limit: number): Promise<number> {
  const [row] = await sql<{ dropped: number }[]>`select drop_old_keys(${region}::smallint, ${limit}::int) as dropped`;
  return row!.dropped;
}

/** What a driver's device was told last: that it is off duty, free (an offer may be open), or the id of the ride it has. */
export type Standing = 'offline' | 'free' | (string & {});

/** Those to whom something else has applied for longer than `afterMs`. */
export async function mistakenDrivers(
  sql: Sql,
  region: number,
  told: readonly { readonly driverId: string; readonly standing: Standing }[],
  afterMs: number,
): Promise<string[]> {
  const rows = await sql<{ driver_id: string }[]>`select driver_id from mistaken_drivers(${region}::smallint,
    ${told.map(({ driverId }) => driverId)}::text[], ${told.map(({ standing }) => standing)}::text[], ${afterMs}::int) driver_id`;
  return rows.map((row) => row.driver_id);
}

/** Live offers that no device has acknowledged within `afterMs` of their grant, as they are pushed. */
export async function undeliveredOffers(
  sql: Sql,
  region: number,
  afterMs: number,
  limit: number,
): Promise<(OfferMessage & { readonly driverId: string })[]> {
  const rows = await sql<
    UndeliveredRow[]
  >`select offer_id, ride_id, driver_id, lease_token, fence::float8, decision_ttl_ms,
      pickup_lat, pickup_lng, dropoff_lat, dropoff_lng, pickup_eta_s
    from undelivered_offers(${region}::smallint, ${afterMs}::int, ${limit}::int)`;
  return rows.map((row) => ({
    offerId: row.offer_id,
    rideId: row.ride_id,
    driverId: row.driver_id,
    leaseToken: row.lease_token,
    fence: row.fence,
    expiresInMs: row.decision_ttl_ms,
    pickup: { lat: row.pickup_lat, lng: row.pickup_lng },
    dropoff: { lat: row.dropoff_lat, lng: row.dropoff_lng },
    pickupEtaS: row.pickup_eta_s,
  }));
}

interface UndeliveredRow {
  readonly offer_id: string;
  readonly ride_id: string;
  readonly driver_id: string;
  readonly lease_token: string;
  readonly fence: number;
  readonly decision_ttl_ms: number;
  readonly pickup_lat: number;
  readonly pickup_lng: number;
  readonly dropoff_lat: number;
  readonly dropoff_lng: number;
  readonly pickup_eta_s: number;
}
