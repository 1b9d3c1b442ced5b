/**
 * The tables, and why each is shaped as it is. `migrations/` is generated from this file; the functions that
 * change the hot tables are the .sql files of `src/leasing/`.
 *
 * Every key starts with the region and every statement stays within one, so that the schema distributes by
 * region. `region` is the region's number: two bytes in each key instead of the fleet's own string.
 */
import type { Policy } from '../../domain/policy.ts';
import { orm, pgCore } from './drizzle.ts';

const { sql } = orm;
const {
  bigint,
  boolean,
  check,
  customType,
  doublePrecision,
  foreignKey,
  index,
  integer,
  jsonb,
  pgSequence,
  pgTable,
  primaryKey,
  real,
  smallint,
  text,
  timestamp,
  unique,
  uniqueIndex,
  uuid,
} = pgCore;

const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' });
const xid8 = customType<{ data: string }>({ dataType: () => 'xid8' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });

/** A city. Its number is in the ids of its rides and offers (12 bits of a UUIDv7), so an id alone tells where it lives. */
export const regions = pgTable(
  'regions',
  {
    number: smallint('number').primaryKey().generatedAlwaysAsIdentity({ minValue: 1, maxValue: 4095 }),
    id: text('id').notNull().unique(),
    name: text('name').notNull(),
    centerLat: doublePrecision('center_lat').notNull(),
    centerLng: doublePrecision('center_lng').notNull(),
    radiusM: doublePrecision('radius_m').notNull(),
    policyVersion: integer('policy_version').notNull(),
    /** A version that is tried on a share of the rides; null: none is. */
    canaryVersion: integer('canary_version'),
    canaryShare: real('canary_share'),
    createdAt: moment('created_at').notNull().defaultNow(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (t) => [
    check('regions_id_form', sql`${t.id} ~ '^[A-Za-z0-9_-]{1,64}$'`),
    check(
      'regions_canary',
      sql`(${t.canaryVersion} is null) = (${t.canaryShare} is null) and (${t.canaryShare} is null or (${t.canaryShare} > 0 and ${t.canaryShare} <= 1))`,
    ),
  ],
);

/** Every version of every region's policy: rides and offers name the one they ran under. */
export const policies = pgTable(
  'policies',
  {
    region: smallint('region')
      .notNull()
      .references(() => regions.number),
    version: integer('version').notNull(),
    document: jsonb('document').$type<Policy>().notNull(),
    createdAt: moment('created_at').notNull().defaultNow(),
    createdBy: text('created_by').notNull(),
  },
  (t) => [primaryKey({ columns: [t.region, t.version] })],
);

/** Who drives where. The one table keyed by the driver alone: it is how a driver's region is found. */
export const drivers = pgTable(
  'drivers',
  {
    id: text('id').primaryKey(),
    region: smallint('region')
      .notNull()
      .references(() => regions.number),
    vehicleClass: text('vehicle_class').notNull(),
    version: integer('version').notNull().default(1),
    createdAt: moment('created_at').notNull().defaultNow(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (t) => [check('drivers_id_form', sql`${t.id} ~ '^[A-Za-z0-9_-]{1,64}$'`)],
);

/**
 * The hot row: what a driver is doing now, with the live lease term. Narrow, with room on its page and no index
 * beside the key, so that each change of it is a HOT update (with a key on the fence none was).
 */
export const driverState = pgTable(
  'driver_state',
  {
    region: smallint('region').notNull(),
    driverId: text('driver_id').notNull(),
    /** `offline`, `available`, `leased`, `assigned`. */
    status: text('status').notNull(),
    vehicleClass: text('vehicle_class').notNull(),
    /** For how many riders there is room. */
    seats: smallint('seats').notNull().default(4),
    /** What a ride may ask for: `wheelchair`, `pet`, … in the fleet's own words. */
    attributes: text('attributes')
      .array()
      .notNull()
      .default(sql`'{}'::text[]`),
    /** The longest way to a pickup that the driver takes, great circle; null: any. */
    maxPickupM: real('max_pickup_m'),
    /** No trip is offered that wouldn't be over by then; null: the shift has no set end. */
    shiftEndsAt: moment('shift_ends_at'),
    /** The ride that holds the driver: while leased, and on while assigned. */
    leasedToRideId: uuid('leased_to_ride_id'),
    /** The offer whose term this is: while leased, and on while assigned. */
    offerId: uuid('offer_id'),
    /** Random, 128 bits, base64url. Only its hash outlives the term. */
    leaseToken: text('lease_token'),
    leaseGrantedAt: moment('lease_granted_at'),
    /** When the device acknowledged the offer; null until then. */
    leaseReceivedAt: moment('lease_received_at'),
    leaseExpiresAt: moment('lease_expires_at'),
    /** Rises with every grant, by one within an epoch; never reused, kept when the driver changes region. */
    fence: bigint('fence', { mode: 'number' }).notNull().default(0),
    /** +1 at every change. */
    version: bigint('version', { mode: 'number' }).notNull().default(1),
    /** The last time recorded on this driver: no later transition is dated before it. */
    updatedAt: moment('updated_at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.region, t.driverId] }),
    check('driver_state_status', sql`${t.status} in ('offline', 'available', 'leased', 'assigned')`),
    check(
      'driver_state_held',
      sql`(${t.status} in ('leased', 'assigned')) = (${t.leasedToRideId} is not null) and (${t.leasedToRideId} is null) = (${t.offerId} is null)`,
    ),
    check(
      'driver_state_term',
      sql`(${t.status} = 'leased') = (${t.leaseToken} is not null) and (${t.leaseToken} is null) = (${t.leaseExpiresAt} is null) and (${t.leaseToken} is null) = (${t.leaseGrantedAt} is null) and (${t.leaseReceivedAt} is null or ${t.leaseToken} is not null)`,
    ),
    check('driver_state_term_ends_after_grant', sql`${t.leaseExpiresAt} > ${t.leaseGrantedAt}`),
  ],
);

/**
 * Where drivers are and when they were last seen. Unlogged (its migration says so): after a crash it is empty and
 * drivers fill it again within seconds. `cell` is the grid cell of the position (domain/geo.ts).
 */
export const driverPresence = pgTable(
  'driver_presence',
  {
    region: smallint('region').notNull(),
    driverId: text('driver_id').notNull(),
    seenAt: moment('seen_at').notNull(),
    positionAt: moment('position_at'),
    lat: doublePrecision('lat'),
    lng: doublePrecision('lng'),
    cell: bigint('cell', { mode: 'number' }),
  },
  (t) => [
    primaryKey({ columns: [t.region, t.driverId] }),
    index('driver_presence_by_cell').on(t.region, t.cell),
    check(
      'driver_presence_position',
      sql`(${t.positionAt} is null) = (${t.lat} is null) and (${t.lat} is null) = (${t.lng} is null) and (${t.lat} is null) = (${t.cell} is null)`,
    ),
  ],
);

/**
 * One row per region, unlogged like the positions and so lost together with them: rides aren't given up before
 * drivers have had time to send their positions again. Nor after a time in which no gateway watched (`watched_at`: when one
 * last said that it does).
 */
export const presenceEpochs = pgTable('presence_epochs', {
  region: smallint('region').primaryKey(),
  since: moment('since').notNull(),
  watchedAt: moment('watched_at'),
});

/**
 * How near the drivers on their way to a pickup have come, and when they last came nearer. Kept by whoever watches them
 * (src/dispatch/pickups.ts), and unlogged like the positions it is made of.
 */
export const pickupProgress = pgTable(
  'pickup_progress',
  {
    region: smallint('region').notNull(),
    rideId: uuid('ride_id').notNull(),
    /** The assignment it is about. */
    offerId: uuid('offer_id').notNull(),
    /** Great circle; null: the driver's position isn't known yet. */
    nearestM: real('nearest_m'),
    nearerAt: moment('nearer_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.region, t.rideId] })],
);

export const rides = pgTable(
  'rides',
  {
    region: smallint('region').notNull(),
    id: uuid('id').notNull(),
    riderId: text('rider_id').notNull(),
    /** `searching`, `assigned`, `driver_arrived`, `in_progress`, `completed`, `cancelled`, `no_drivers_available`. */
    status: text('status').notNull(),
    vehicleClass: text('vehicle_class').notNull(),
    pickupLat: doublePrecision('pickup_lat').notNull(),
    pickupLng: doublePrecision('pickup_lng').notNull(),
    dropoffLat: doublePrecision('dropoff_lat').notNull(),
    dropoffLng: doublePrecision('dropoff_lng').notNull(),
    policyVersion: integer('policy_version').notNull(),
    requestedAt: moment('requested_at').notNull(),
    /** The search ends here, unless an offer is still open then. */
    patienceUntil: moment('patience_until').notNull(),
    /** Found nobody within its patience, and waits for an operator until then. */
    rescueUntil: moment('rescue_until'),
    /** An operator keeps it from the match rounds until then; earlier than now: nobody does. */
    heldUntil: moment('held_until'),
    /** Since then its driver hasn't come nearer the pickup; null: he does, or nobody watches. */
    stalledSince: moment('stalled_since'),
    /** The driver has arrived, and waits for the rider until then; null: no such limit. */
    noShowAt: moment('no_show_at'),
    /** When a match round shall look at this ride; null when no round needs to. */
    queueAt: moment('queue_at'),
    /** Rounds in a row that found nobody: sets the radius and the wait. */
    emptyRounds: integer('empty_rounds').notNull().default(0),
    /** The searches of this ride: +1 when it is given back. An offer belongs to the one it was made in. */
    searchTry: smallint('search_try').notNull().default(1),
    /** Offers out now, and in all. */
    liveOffers: smallint('live_offers').notNull().default(0),
    offersMade: smallint('offers_made').notNull().default(0),
    seats: smallint('seats').notNull().default(1),
    /** What the driver has to offer, all of it. */
    attributes: text('attributes')
      .array()
      .notNull()
      .default(sql`'{}'::text[]`),
    acceptsLowerClass: boolean('accepts_lower_class').notNull().default(false),
    /** Drivers who had an offer of this ride that came to nothing, in order; never taken out again. */
    excludedDriverIds: text('excluded_driver_ids')
      .array()
      .notNull()
      .default(sql`'{}'::text[]`),
    /** Of each why: `declined`, `expired`, `undeliverable`, `cancelled`, `stalled`, `replaced`, or `lifted`: it keeps the driver no more. */
    excludedAs: text('excluded_as')
      .array()
      .notNull()
      .default(sql`'{}'::text[]`),
    excludedAt: moment('excluded_at')
      .array()
      .notNull()
      .default(sql`'{}'::timestamptz[]`),
    assignedDriverId: text('assigned_driver_id'),
    assignedOfferId: uuid('assigned_offer_id'),
    endedAt: moment('ended_at'),
    cancelSource: text('cancel_source'),
    cancelReason: text('cancel_reason'),
    /** The status the ride was cancelled in. */
    cancelPhase: text('cancel_phase'),
    /** Number of the ride's last event. */
    eventSeq: integer('event_seq').notNull(),
    version: integer('version').notNull().default(1),
    updatedAt: moment('updated_at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.region, t.id] }),
    index('rides_queue')
      .on(t.region, t.queueAt)
      .where(sql`${t.queueAt} is not null`),
    index('rides_no_show')
      .on(t.region, t.noShowAt)
      .where(sql`${t.noShowAt} is not null`),
    index('rides_open')
      .on(t.region, t.id)
      .where(sql`${t.endedAt} is null`),
    check(
      'rides_status',
      sql`${t.status} in ('searching', 'assigned', 'driver_arrived', 'in_progress', 'completed', 'cancelled', 'no_drivers_available')`,
    ),
    check(
      'rides_ended',
      sql`(${t.status} in ('completed', 'cancelled', 'no_drivers_available')) = (${t.endedAt} is not null)`,
    ),
    // Each check is prepared anew by every statement that writes a ride (about 2 % of a transition): the lists' lengths and
    // when no_show_at may be set are left to `verify`.
    check('rides_queued_only_while_searching', sql`${t.queueAt} is null or ${t.status} = 'searching'`),
    check('rides_offers_only_while_searching', sql`${t.liveOffers} = 0 or ${t.status} = 'searching'`),
    check(
      'rides_searched_or_offered',
      sql`${t.status} <> 'searching' or ${t.queueAt} is not null or ${t.liveOffers} > 0`,
    ),
    check('rides_offers_counted', sql`${t.liveOffers} between 0 and ${t.offersMade}`),
    check(
      'rides_driver',
      sql`(${t.status} not in ('assigned', 'driver_arrived', 'in_progress', 'completed') or ${t.assignedDriverId} is not null) and (${t.status} not in ('searching', 'no_drivers_available') or ${t.assignedDriverId} is null) and (${t.assignedDriverId} is null) = (${t.assignedOfferId} is null)`,
    ),
    check(
      'rides_cancelled',
      sql`(${t.status} = 'cancelled') = (${t.cancelSource} is not null) and (${t.cancelSource} is null) = (${t.cancelReason} is null) and (${t.cancelSource} is null) = (${t.cancelPhase} is null) and (${t.cancelSource} is null or ${t.cancelSource} in ('rider', 'driver', 'operator', 'system'))`,
    ),
  ],
);

/** Riders and drivers who aren't brought together, in the driver's region. */
export const riderDriverBlocks = pgTable(
  'rider_driver_blocks',
  {
    region: smallint('region').notNull(),
    riderId: text('rider_id').notNull(),
    driverId: text('driver_id').notNull(),
    createdAt: moment('created_at').notNull().defaultNow(),
    createdBy: text('created_by').notNull(),
  },
  (t) => [primaryKey({ columns: [t.region, t.riderId, t.driverId] })],
);

/**
 * What a driver sees of a lease: one row for each term, from its grant to how it ended. Written when the term
 * begins and when it ends; what happens in between is in `driver_state`.
 */
export const offers = pgTable(
  'offers',
  {
    region: smallint('region').notNull(),
    id: uuid('id').notNull(),
    rideId: uuid('ride_id').notNull(),
    driverId: text('driver_id').notNull(),
    fence: bigint('fence', { mode: 'number' }).notNull(),
    /** `pending`, `accepted`, `declined`, `expired`, `withdrawn`, `undeliverable`. */
    status: text('status').notNull(),
    /** sha256 of the lease token. */
    tokenHash: bytea('token_hash').notNull(),
    /** sha256 of the token that was shown to end the term; null when the end needed none. */
    proof: bytea('proof'),
    grantedAt: moment('granted_at').notNull(),
    receivedAt: moment('received_at'),
    /** While pending the end of the first term (the live one is in `driver_state`), afterwards the end that held last. */
    expiresAt: moment('expires_at').notNull(),
    /** No renewal goes past this. */
    lifetimeEndsAt: moment('lifetime_ends_at').notNull(),
    endedAt: moment('ended_at'),
    endReason: text('end_reason'),
    /** When the sweeper shall look at this offer; null when ended. May lie before the live end: then it is moved there. */
    dueAt: moment('due_at'),
    decisionTtlMs: integer('decision_ttl_ms').notNull(),
    pickupEtaS: real('pickup_eta_s').notNull(),
    searchTry: smallint('search_try').notNull().default(1),
    policyVersion: integer('policy_version').notNull(),
    version: smallint('version').notNull().default(1),
  },
  (t) => [
    primaryKey({ columns: [t.region, t.id] }),
    unique('offers_term').on(t.region, t.id, t.driverId, t.fence),
    uniqueIndex('offers_pending_driver')
      .on(t.region, t.driverId)
      .where(sql`${t.dueAt} is not null`),
    index('offers_pending_ride')
      .on(t.region, t.rideId)
      .where(sql`${t.dueAt} is not null`),
    index('offers_due')
      .on(t.region, t.dueAt)
      .where(sql`${t.dueAt} is not null`),
    check(
      'offers_status',
      sql`${t.status} in ('pending', 'accepted', 'declined', 'expired', 'withdrawn', 'undeliverable')`,
    ),
    check(
      'offers_ended',
      sql`(${t.status} = 'pending') = (${t.endedAt} is null) and (${t.status} = 'pending') = (${t.dueAt} is not null)`,
    ),
    check('offers_term_times', sql`${t.expiresAt} > ${t.grantedAt} and ${t.expiresAt} <= ${t.lifetimeEndsAt}`),
    check('offers_ended_after_grant', sql`${t.endedAt} >= ${t.grantedAt} and ${t.receivedAt} >= ${t.grantedAt}`),
    check('offers_own_token', sql`${t.proof} is null or ${t.proof} = ${t.tokenHash}`),
    check(
      'offers_accepted_in_time',
      sql`${t.status} <> 'accepted' or (${t.proof} is not null and ${t.receivedAt} is not null and ${t.endedAt} < ${t.expiresAt})`,
    ),
    check(
      'offers_lapsed',
      sql`(${t.status} <> 'expired' or (${t.receivedAt} is not null and ${t.endedAt} >= ${t.expiresAt})) and (${t.status} <> 'undeliverable' or (${t.receivedAt} is null and ${t.endedAt} >= ${t.expiresAt}))`,
    ),
  ],
);

/** A confirmed lease. Its foreign key ties it to exactly one term: no offer, no fence, no assignment. */
export const assignments = pgTable(
  'assignments',
  {
    region: smallint('region').notNull(),
    offerId: uuid('offer_id').notNull(),
    rideId: uuid('ride_id').notNull(),
    driverId: text('driver_id').notNull(),
    fence: bigint('fence', { mode: 'number' }).notNull(),
    assignedAt: moment('assigned_at').notNull(),
    endedAt: moment('ended_at'),
    /** `completed`, `cancelled` (the ride was), `driver_cancelled`, `unassigned` by others (the ride searches again). */
    endedAs: text('ended_as'),
  },
  (t) => [
    primaryKey({ columns: [t.region, t.offerId] }),
    foreignKey({
      name: 'assignments_term',
      columns: [t.region, t.offerId, t.driverId, t.fence],
      foreignColumns: [offers.region, offers.id, offers.driverId, offers.fence],
    }),
    uniqueIndex('assignments_live_ride')
      .on(t.region, t.rideId)
      .where(sql`${t.endedAt} is null`),
    uniqueIndex('assignments_live_driver')
      .on(t.region, t.driverId)
      .where(sql`${t.endedAt} is null`),
    check(
      'assignments_end',
      sql`(${t.endedAs} is null) = (${t.endedAt} is null) and (${t.endedAs} is null or ${t.endedAs} in ('completed', 'cancelled', 'driver_cancelled', 'unassigned')) and (${t.endedAt} is null or ${t.endedAt} >= ${t.assignedAt})`,
    ),
  ],
);

/** The outbox: what happened to a ride, written by the transaction that did it, numbered from 1 without gaps. */
export const rideEvents = pgTable(
  'ride_events',
  {
    region: smallint('region').notNull(),
    rideId: uuid('ride_id').notNull(),
    seq: integer('seq').notNull(),
    type: text('type').notNull(),
    at: moment('at').notNull(),
    driverId: text('driver_id'),
    offerId: uuid('offer_id'),
    fence: bigint('fence', { mode: 'number' }),
    reason: text('reason'),
    /** The transaction that did it: what every older transaction has ended before is complete, and can be published. */
    tx: xid8('tx')
      .notNull()
      .default(sql`pg_current_xact_id()`),
  },
  (t) => [
    primaryKey({ columns: [t.region, t.rideId, t.seq] }),
    index('ride_events_in_order').on(t.region, t.tx, t.rideId, t.seq),
  ],
);

/** What a creating request made, so that its repetition finds it: 24 hours, by subject and route. */
export const idempotencyKeys = pgTable(
  'idempotency_keys',
  {
    region: smallint('region').notNull(),
    subject: text('subject').notNull(),
    route: text('route').notNull(),
    key: text('key').notNull(),
    /** sha256 of the canonical request: the same key with another request is refused. */
    requestHash: bytea('request_hash').notNull(),
    /** The ride or offer that was made. */
    resultId: uuid('result_id').notNull(),
    createdAt: moment('created_at').notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.region, t.subject, t.route, t.key] }),
    index('idempotency_keys_by_age').on(t.region, t.createdAt),
  ],
);

/** Bytewise order: the same on every server, and what a cursor needs. */
const bytewise = customType<{ data: string }>({ dataType: () => 'text COLLATE "C"' });

/**
 * Any resource somebody leases by name, with its newest term. The row stays when the term is over: it has the fence,
 * which never goes back. Nothing is indexed that a renewal changes, so that renewals stay on their page.
 */
export const resourceLeases = pgTable(
  'resource_leases',
  {
    resource: bytewise('resource').primaryKey(),
    fence: bigint('fence', { mode: 'number' }).notNull().default(0),
    /** How the newest term ended; `active` and `confirmed` until somebody finds that it is over; `free` before the first. */
    status: text('status')
      .notNull()
      .default('free')
      .$type<'free' | 'active' | 'confirmed' | 'released' | 'expired' | 'recovered' | 'broken'>(),
    holder: text('holder'),
    tokenHash: bytea('token_hash'),
    grantedAt: moment('granted_at'),
    renewedAt: moment('renewed_at'),
    renewals: integer('renewals').notNull().default(0),
    /** The term's end, unless it is renewed; of a confirmed one only when it was broken. Others may take it from `free_at`. */
    endsAt: moment('ends_at'),
    freeAt: moment('free_at'),
    lifetimeEndsAt: moment('lifetime_ends_at'),
    /** An operator's end, which no renewal passes. */
    breakAt: moment('break_at'),
    brokenBy: text('broken_by'),
    /** Others asked for recovery: the end they get unless the holder renews first. */
    recoverAt: moment('recover_at'),
    ttlMs: bigint('ttl_ms', { mode: 'number' }),
    lockDelayMs: bigint('lock_delay_ms', { mode: 'number' }),
    graceMs: bigint('grace_ms', { mode: 'number' }),
    softTtlMs: bigint('soft_ttl_ms', { mode: 'number' }),
    confirmedAt: moment('confirmed_at'),
    data: jsonb('data'),
    /** When the sweeper looks: moved to the real end lazily, once a term and not at each renewal. */
    dueAt: moment('due_at'),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (t) => [
    index('resource_leases_due')
      .on(t.dueAt)
      .where(sql`${t.dueAt} is not null`),
    check('resource_leases_resource', sql`octet_length(${t.resource}) between 1 and 256`),
    check(
      'resource_leases_term',
      sql`case ${t.status}
        when 'free' then ${t.fence} = 0 and ${t.endsAt} is null and ${t.dueAt} is null
        when 'active' then num_nulls(${t.endsAt}, ${t.freeAt}, ${t.dueAt}) = 0 and ${t.confirmedAt} is null
        when 'confirmed' then ${t.confirmedAt} is not null and num_nulls(${t.endsAt}, ${t.freeAt}, ${t.dueAt}) in (0, 3)
        else ${t.endsAt} is not null and ${t.dueAt} is null and ${t.status} in ('released', 'expired', 'recovered', 'broken')
        end and (${t.fence} = 0 or num_nulls(${t.holder}, ${t.tokenHash}, ${t.grantedAt}, ${t.ttlMs}) = 0)
        and (${t.endsAt} is null or ${t.endsAt} >= ${t.grantedAt}) and (${t.freeAt} is null or ${t.freeAt} >= ${t.endsAt})`,
    ),
  ],
);

/** Every term that has ended, written once, when its end is found out; never changed. */
export const resourceLeaseTerms = pgTable(
  'resource_lease_terms',
  {
    resource: bytewise('resource').notNull(),
    fence: bigint('fence', { mode: 'number' }).notNull(),
    holder: text('holder').notNull(),
    tokenHash: bytea('token_hash').notNull(),
    grantedAt: moment('granted_at').notNull(),
    renewedAt: moment('renewed_at'),
    renewals: integer('renewals').notNull(),
    confirmedAt: moment('confirmed_at'),
    data: jsonb('data'),
    endedAt: moment('ended_at').notNull(),
    endedAs: text('ended_as').notNull().$type<'released' | 'expired' | 'recovered' | 'broken'>(),
    /** The operator who broke it. */
    endedBy: text('ended_by'),
  },
  (t) => [
    primaryKey({ columns: [t.resource, t.fence] }),
    check(
      'resource_lease_terms_end',
      sql`${t.endedAt} >= ${t.grantedAt} and ${t.endedAs} in ('released', 'expired', 'recovered', 'broken')`,
    ),
  ],
);

export const resourceLeaseTicket = pgSequence('resource_lease_ticket');

/** Who queues for a resource: of one ticket, a row for each resource. A ticket whose process is gone counts no more. */
export const resourceLeaseTickets = pgTable(
  'resource_lease_tickets',
  {
    resource: bytewise('resource').notNull(),
    ticket: bigint('ticket', { mode: 'number' }).notNull(),
    priority: integer('priority').notNull(),
    seenAt: moment('seen_at').notNull(),
  },
  (t) => [primaryKey({ columns: [t.resource, t.ticket] }), index('resource_lease_tickets_by_ticket').on(t.ticket)],
);

/** Work to be done once under a claim: what is done is kept for a day by its key, what is dead until somebody looks. */
export const workItems = pgTable(
  'work_items',
  {
    id: bigint('id', { mode: 'number' }).primaryKey().generatedAlwaysAsIdentity(),
    queue: bytewise('queue').notNull(),
    key: bytewise('key').notNull(),
    /** Items of one group are claimed in the order of their ids, one at a time. */
    groupName: bytewise('group_name'),
    payload: jsonb('payload').notNull(),
    attempts: integer('attempts').notNull().default(0),
    /** When it may be claimed: due, or after the end of a claim that was lost. Null: done, or dead. */
    readyAt: moment('ready_at'),
    tokenHash: bytea('token_hash'),
    lastError: text('last_error'),
    createdAt: moment('created_at').notNull().defaultNow(),
    doneAt: moment('done_at'),
    deadAt: moment('dead_at'),
  },
  (t) => [
    unique('work_items_key').on(t.queue, t.key),
    index('work_items_ready')
      .on(t.queue, t.readyAt)
      .where(sql`${t.readyAt} is not null`),
    index('work_items_group')
      .on(t.queue, t.groupName, t.id)
      .where(sql`${t.readyAt} is not null and ${t.groupName} is not null`),
    index('work_items_done')
      .on(t.doneAt)
      .where(sql`${t.doneAt} is not null`),
    index('work_items_dead')
      .on(t.queue, t.id)
      .where(sql`${t.deadAt} is not null`),
    check('work_items_state', sql`num_nonnulls(${t.readyAt}, ${t.doneAt}, ${t.deadAt}) = 1`),
  ],
);

/**
 * The database's lives: a new one begins when it is promoted or restored, so that no fence is handed out twice. A fence is
 * its epoch's number times 2^32 and a count.
 */
export const epochs = pgTable('epochs', {
  number: integer('number').primaryKey(),
  systemIdentifier: bigint('system_identifier', { mode: 'bigint' }).notNull(),
  /** The first eight characters of its WAL files' names. */
  timeline: text('timeline').notNull(),
  since: moment('since').notNull(),
});

/** How far a region's events have been published; the fence is the last publisher's. */
export const outboxCursors = pgTable('outbox_cursors', {
  region: smallint('region').primaryKey(),
  tx: xid8('tx').notNull(),
  rideId: uuid('ride_id').notNull(),
  seq: integer('seq').notNull(),
  fence: bigint('fence', { mode: 'number' }).notNull(),
  updatedAt: moment('updated_at').notNull().defaultNow(),
});

/** Where events are sent. */
export const webhooks = pgTable(
  'webhooks',
  {
    id: text('id').primaryKey(),
    /** Null: the events of all regions. */
    region: smallint('region').references(() => regions.number),
    url: text('url').notNull(),
    secret: text('secret').notNull(),
    /** Null: all types. */
    types: text('types').array(),
    /** It hears of what happened from here on. */
    createdTx: xid8('created_tx')
      .notNull()
      .default(sql`pg_current_xact_id()`),
    createdAt: moment('created_at').notNull().defaultNow(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (t) => [check('webhooks_id_form', sql`${t.id} ~ '^[A-Za-z0-9_-]{1,64}$'`)],
);
