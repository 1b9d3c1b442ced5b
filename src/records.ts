/**
 * What is read from the database for people, as they see it: times in ISO 8601, positions as points. Nothing here
 * decides anything, and nothing that decides reads through here.
 *
 * Lists read a bounded number of rows for each page: with a filter that few rows pass, a page may come back short,
 * even empty, with a cursor to go on from.
 */
import type { Point } from '../domain/geo.ts';
import type { Database, Sql } from './database/connection.ts';
import type { AssignmentMessage, OfferMessage } from './gateway/notices.ts';

export const RIDE_STATUSES = [
  'searching',
  'assigned',
  'driver_arrived',
  'in_progress',
  'completed',
  'cancelled',
  'no_drivers_available',
] as const;
export const DRIVER_STATUSES = ['offline', 'available', 'leased', 'assigned'] as const;
export const OFFER_STATUSES = ['pending', 'accepted', 'declined', 'expired', 'withdrawn', 'undeliverable'] as const;
/** What happens to a ride, as the transitions tell it; docs/webhooks.md says what each means. */
export const RIDE_EVENT_TYPES = [
  'ride_requested',
  'offer_made',
  'offer_received',
  'offer_accepted',
  'offer_declined',
  'offer_expired',
  'offer_undeliverable',
  'offer_withdrawn',
  'driver_arrived',
  'ride_started',
  'ride_completed',
  'ride_cancelled',
  'driver_cancelled',
  'driver_unassigned',
  'pickup_stalled',
  'pickup_resumed',
  'ride_held',
  'ride_released',
  'exclusions_lifted',
  'rescue_needed',
  'no_drivers_available',
] as const;

export type RideStatus = (typeof RIDE_STATUSES)[number];
export type DriverStatus = (typeof DRIVER_STATUSES)[number];
export type OfferStatus = (typeof OFFER_STATUSES)[number];
export type RideEventType = (typeof RIDE_EVENT_TYPES)[number];

type Reads = Pick<Database, 'cold'>;

/** A region, as far as reading its rows needs it. */
export interface RegionName {
  readonly number: number;
  readonly id: string;
}

export interface RideRecord {
  readonly id: string;
  readonly regionId: string;
  readonly riderId: string;
  readonly status: RideStatus;
  readonly vehicleClass: string;
  readonly seats: number;
  readonly attributes: string[];
  readonly acceptsLowerClass: boolean;
  readonly pickup: Point;
  readonly dropoff: Point;
  readonly requestedAt: string;
  readonly patienceUntil: string;
  readonly rescueUntil: string | null;
  readonly heldUntil: string | null;
  readonly stalledSince: string | null;
  readonly offersMade: number;
  readonly assignment: {
    readonly rideId: string;
    readonly driverId: string;
    readonly offerId: string;
    readonly fence: number;
    readonly assignedAt: string;
  } | null;
  readonly cancellation: {
    readonly source: 'rider' | 'driver' | 'operator' | 'system';
    readonly reasonCode: string;
    readonly phase: RideStatus;
  } | null;
  readonly endedAt: string | null;
  readonly policyVersion: number;
  readonly version: number;
  readonly updatedAt: string;
}

export interface TimelineRecord {
  readonly seq: number;
  readonly type: RideEventType;
  readonly at: string;
  readonly driverId: string | null;
  readonly offerId: string | null;
  readonly fence: number | null;
  readonly reason: string | null;
}

/** What a driver is doing now; what the socket's `state` event is made of. */
export interface DriverSnapshot {
  readonly driverId: string;
  /** The region's number. */
  readonly region: number;
  readonly status: DriverStatus;
  readonly vehicleClass: string;
  readonly seats: number;
  readonly attributes: string[];
  readonly maxPickupM: number | null;
  readonly shiftEndsAt: string | null;
  readonly position: Point | null;
  readonly positionAt: string | null;
  readonly fence: number;
  /**
   * The offer to decide on; null once its term is over, also before anybody noticed. `expiresInMs` is by the
   * database's clock: the whole decision window until the device has acknowledged, afterwards what is left of it.
   */
  readonly offer: OfferMessage | null;
  /** Whether the device has acknowledged that offer. */
  readonly offerReceived: boolean;
  readonly assignment: (AssignmentMessage & { readonly rideStatus: RideStatus }) | null;
  readonly version: number;
  readonly updatedAt: string;
}

export interface OfferRecord {
  readonly id: string;
  readonly regionId: string;
  readonly rideId: string;
  readonly driverId: string;
  readonly status: OfferStatus;
  readonly fence: number;
  /** Null once the offer has ended. Not for everybody's eyes. */
  readonly leaseToken: string | null;
  /** As in `DriverSnapshot.offer`; null once the term is over. */
  readonly expiresInMs: number | null;
  readonly pickup: Point;
  readonly dropoff: Point;
  readonly pickupEtaS: number;
  readonly grantedAt: string;
  readonly receivedAt: string | null;
  readonly expiresAt: string;
  readonly endedAt: string | null;
  readonly endReason: string | null;
  readonly policyVersion: number;
}

export interface Page<Item> {
  readonly items: Item[];
  /** Null: there is no more. */
  readonly after: string | null;
}

/** Rows that one page of a filtered list may look at. */
const SCAN_MAX = 5_000;
/** A ride has a few dozen events; one that has more than this is a mistake, and not a reason to fail. */
const TIMELINE_MAX = 5_000;

// Larger than any id: where a list of rides begins.
const NEWEST = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

export async function findRide({ cold: sql }: Reads, region: RegionName, rideId: string): Promise<RideRecord | null> {
  const [row] = await sql<RideRow[]>`
    select ${rideColumns(sql)} from rides r ${joinAssignment(sql)} where r.region = ${region.number} and r.id = ${rideId}`;
  return row === undefined ? null : rideRecord(row, region);
}

/** The newest first, which is by id. `before` is the `after` of the page that came before. */
export async function listRides(
  { cold: sql }: Reads,
  region: RegionName,
  {
    status,
    needsRescue,
    isStalled,
    before,
    limit,
  }: { status: RideStatus | null; needsRescue: boolean; isStalled: boolean; before: string | null; limit: number },
): Promise<Page<RideRecord>> {
  const start = before ?? NEWEST;
  // Open rides have an index of their own; the planner takes it only if the query says what the index says.
  const isOpen =
    needsRescue ||
    isStalled ||
    (status !== null && !['completed', 'cancelled', 'no_drivers_available'].includes(status));
  const looked = sql`from rides where region = ${region.number} and id < ${start}
    ${isOpen ? sql`and ended_at is null` : sql``} order by id desc`;
  const rows = await sql<RideRow[]>`
    select ${rideColumns(sql)} from (select * ${looked} limit ${SCAN_MAX}) r ${joinAssignment(sql)}
    where true ${status === null ? sql`` : sql`and r.status = ${status}`}
      ${needsRescue ? sql`and r.status = 'searching' and r.rescue_until is not null` : sql``}
      ${isStalled ? sql`and r.stalled_since is not null` : sql``} order by r.id desc limit ${limit + 1}`;
  const items = rows.slice(0, limit).map((row) => rideRecord(row, region));
  if (rows.length > limit) return { items, after: items.at(-1)!.id };
  const [last] = await sql<{ id: string }[]>`select id ${looked} offset ${SCAN_MAX - 1} limit 1`;
  return { items, after: last?.id ?? null };
}

/** Everything that happened to a ride, in order. */
export async function rideTimeline(
  { cold: sql }: Reads,
  region: RegionName,
  rideId: string,
): Promise<TimelineRecord[]> {
  const rows = await sql<TimelineRow[]>`
    select seq, type, at, driver_id, offer_id, fence::float8, reason from ride_events
    where region = ${region.number} and ride_id = ${rideId} order by seq limit ${TIMELINE_MAX}`;
  return rows.map((row) => ({
    seq: row.seq,
    type: row.type,
    at: row.at.toISOString(),
    driverId: row.driver_id,
    offerId: row.offer_id,
    fence: row.fence,
    reason: row.reason,
  }));
}

/** The number of the region a driver belongs to; null for a driver nobody registered. */
export async function regionNumberOfDriver(reads: Reads, driverId: string): Promise<number | null> {
  return (await regionNumbersOfDrivers(reads, [driverId])).get(driverId) ?? null;
}

/** Of those that have a profile. */
export async function regionNumbersOfDrivers(
  { cold: sql }: Reads,
  driverIds: string[],
): Promise<ReadonlyMap<string, number>> {
  const rows = await sql<{ id: string; region: number }[]>`select id, region from drivers where id = any(${driverIds})`;
  return new Map(rows.map(({ id, region }) => [id, region]));
}

export async function driverSnapshot(reads: Reads, driverId: string): Promise<DriverSnapshot | null> {
  return (await driverSnapshots(reads, [driverId])).get(driverId) ?? null;
}

/** Of those that have a profile. */
export async function driverSnapshots(
  { cold: sql }: Reads,
  driverIds: string[],
): Promise<ReadonlyMap<string, DriverSnapshot>> {
  const rows = await sql<DriverRow[]>`
    select ${driverColumns(sql)} from drivers v
    join driver_state d on d.region = v.region and d.driver_id = v.id ${joinDriver(sql)} where v.id = any(${driverIds})`;
  return new Map(rows.map((row) => [row.driver_id, snapshotOf(row)]));
}

/** By id. `after` is that of the page that came before. */
export async function listDrivers(
  { cold: sql }: Reads,
  region: RegionName,
  { status, after, limit }: { status: DriverStatus | null; after: string | null; limit: number },
): Promise<Page<DriverSnapshot>> {
  const looked = sql`from driver_state where region = ${region.number} and driver_id > ${after ?? ''} order by driver_id`;
  const rows = await sql<DriverRow[]>`
    select ${driverColumns(sql)} from (select * ${looked} limit ${SCAN_MAX}) d ${joinDriver(sql)}
    ${status === null ? sql`` : sql`where d.status = ${status}`} order by d.driver_id limit ${limit + 1}`;
  const items = rows.slice(0, limit).map(snapshotOf);
  if (rows.length > limit) return { items, after: items.at(-1)!.driverId };
  const [last] = await sql<{ driver_id: string }[]>`select driver_id ${looked} offset ${SCAN_MAX - 1} limit 1`;
  return { items, after: last?.driver_id ?? null };
}

export async function findOffer(
  { cold: sql }: Reads,
  region: RegionName,
  offerId: string,
): Promise<OfferRecord | null> {
  const [row] = await sql<OfferRow[]>`
    select o.id, o.ride_id, o.driver_id, o.status, o.fence::float8, o.pickup_eta_s, o.granted_at, o.ended_at,
      o.end_reason, o.policy_version, r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng, d.lease_token,
      coalesce(d.lease_received_at, o.received_at) as received_at,
      coalesce(d.lease_expires_at, o.expires_at) as expires_at, ${remainingMs(sql)} as expires_in_ms
    from offers o
    join rides r on r.region = o.region and r.id = o.ride_id
    left join driver_state d on d.region = o.region and d.driver_id = o.driver_id
      and d.status = 'leased' and d.offer_id = o.id
    where o.region = ${region.number} and o.id = ${offerId}`;
  return row === undefined ? null : offerRecord(row, region);
}

/** What a lease of this driver for this ride needs to know; the position is the driver's last, if there is one. */
export async function findPairing(
  { cold: sql }: Reads,
  region: RegionName,
  rideId: string,
  driverId: string,
): Promise<{ pickup: Point; dropoff: Point; position: Point | null } | null> {
  const [row] = await sql<(RouteRow & PositionRow)[]>`
    select r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng, p.lat, p.lng
    from rides r left join driver_presence p on p.region = r.region and p.driver_id = ${driverId}
    where r.region = ${region.number} and r.id = ${rideId}`;
  return row === undefined ? null : { ...routeOf(row), position: positionOf(row) };
}

const rideColumns = (sql: Sql) => sql`r.id, r.rider_id, r.status, r.vehicle_class, r.seats, r.attributes,
  r.accepts_lower_class,  r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng, r.requested_at, r.patience_until, r.rescue_until,
  case when r.held_until > now() then r.held_until end as held_until, r.stalled_since, r.offers_made,
  r.ended_at, r.cancel_source, r.cancel_reason, r.cancel_phase, r.policy_version, r.version, r.updated_at,
  a.driver_id, a.offer_id, a.fence::float8, a.assigned_at`;

const joinAssignment = (sql: Sql) =>
  sql`left join assignments a on a.region = r.region and a.offer_id = r.assigned_offer_id`;

const driverColumns = (sql: Sql) => sql`d.region, d.driver_id, d.status, d.vehicle_class, d.seats,
  d.attributes, d.max_pickup_m, d.shift_ends_at, d.fence::float8,
  d.version::float8, d.updated_at, p.lat, p.lng, p.position_at, d.leased_to_ride_id as ride_id, d.offer_id,
  d.lease_token, d.lease_received_at, ${remainingMs(sql)} as expires_in_ms, o.pickup_eta_s, r.status as ride_status,
  r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng, a.assigned_at`;

const joinDriver = (sql: Sql) => sql`
  left join driver_presence p on p.region = d.region and p.driver_id = d.driver_id
  left join offers o on o.region = d.region and o.id = d.offer_id
  left join rides r on r.region = d.region and r.id = d.leased_to_ride_id
  left join assignments a on a.region = d.region and a.offer_id = d.offer_id`;

/** What is left of a live term; null when there is none. A clock that stepped back doesn't lengthen it. */
const remainingMs = (sql: Sql) => sql`case
  when d.lease_expires_at <= greatest(clock_timestamp(), d.updated_at) then null
  when d.status = 'leased' and d.lease_received_at is null then o.decision_ttl_ms
  else ceil(extract(epoch from d.lease_expires_at - greatest(clock_timestamp(), d.updated_at)) * 1000)::int end`;

interface RouteRow {
  readonly pickup_lat: number;
  readonly pickup_lng: number;
  readonly dropoff_lat: number;
  readonly dropoff_lng: number;
}

interface PositionRow {
  readonly lat: number | null;
  readonly lng: number | null;
}

interface RideRow extends RouteRow {
  readonly id: string;
  readonly rider_id: string;
  readonly status: RideStatus;
  readonly vehicle_class: string;
  readonly seats: number;
  readonly attributes: string[];
  readonly accepts_lower_class: boolean;
  readonly requested_at: Date;
  readonly patience_until: Date;
  readonly rescue_until: Date | null;
  readonly held_until: Date | null;
  readonly stalled_since: Date | null;
  readonly offers_made: number;
  readonly ended_at: Date | null;
  readonly cancel_source: 'rider' | 'driver' | 'operator' | 'system' | null;
  readonly cancel_reason: string | null;
  readonly cancel_phase: RideStatus | null;
  readonly policy_version: number;
  readonly version: number;
  readonly updated_at: Date;
  /** Of the assignment: all null without one. */
  readonly driver_id: string | null;
  readonly offer_id: string | null;
  readonly fence: number | null;
  readonly assigned_at: Date | null;
}

interface TimelineRow {
  readonly seq: number;
  readonly type: RideEventType;
  readonly at: Date;
  readonly driver_id: string | null;
  readonly offer_id: string | null;
  readonly fence: number | null;
  readonly reason: string | null;
}

interface DriverRow extends RouteRow, PositionRow {
  readonly region: number;
  readonly driver_id: string;
  readonly status: DriverStatus;
  readonly vehicle_class: string;
  readonly seats: number;
  readonly attributes: string[];
  readonly max_pickup_m: number | null;
  readonly shift_ends_at: Date | null;
  readonly fence: number;
  readonly version: number;
  readonly updated_at: Date;
  readonly position_at: Date | null;
  /** Of the lease or assignment: null without one, as are those after it. */
  readonly ride_id: string | null;
  readonly offer_id: string | null;
  readonly lease_token: string | null;
  readonly lease_received_at: Date | null;
  readonly expires_in_ms: number | null;
  readonly pickup_eta_s: number;
  readonly ride_status: RideStatus;
  readonly assigned_at: Date | null;
}

interface OfferRow extends RouteRow {
  readonly id: string;
  readonly ride_id: string;
  readonly driver_id: string;
  readonly status: OfferStatus;
  readonly fence: number;
  readonly pickup_eta_s: number;
  readonly granted_at: Date;
  readonly received_at: Date | null;
  readonly expires_at: Date;
  readonly ended_at: Date | null;
  readonly end_reason: string | null;
  readonly policy_version: number;
  readonly lease_token: string | null;
  readonly expires_in_ms: number | null;
}

const routeOf = (row: RouteRow): { pickup: Point; dropoff: Point } => ({
  pickup: { lat: row.pickup_lat, lng: row.pickup_lng },
  dropoff: { lat: row.dropoff_lat, lng: row.dropoff_lng },
});

const positionOf = ({ lat, lng }: PositionRow): Point | null => (lat === null || lng === null ? null : { lat, lng });

function rideRecord(row: RideRow, region: RegionName): RideRecord {
  return {
    id: row.id,
    regionId: region.id,
    riderId: row.rider_id,
    status: row.status,
    vehicleClass: row.vehicle_class,
    seats: row.seats,
    attributes: row.attributes,
    acceptsLowerClass: row.accepts_lower_class,
    ...routeOf(row),
    requestedAt: row.requested_at.toISOString(),
    patienceUntil: row.patience_until.toISOString(),
    rescueUntil: row.rescue_until?.toISOString() ?? null,
    heldUntil: row.held_until?.toISOString() ?? null,
    stalledSince: row.stalled_since?.toISOString() ?? null,
    offersMade: row.offers_made,
    assignment:
      row.assigned_at === null
        ? null
        : {
            rideId: row.id,
            driverId: row.driver_id!,
            offerId: row.offer_id!,
            fence: row.fence!,
            assignedAt: row.assigned_at.toISOString(),
          },
    cancellation:
      row.cancel_source === null
        ? null
        : { source: row.cancel_source, reasonCode: row.cancel_reason!, phase: row.cancel_phase! },
    endedAt: row.ended_at === null ? null : row.ended_at.toISOString(),
    policyVersion: row.policy_version,
    version: row.version,
    updatedAt: row.updated_at.toISOString(),
  };
}

function snapshotOf(row: DriverRow): DriverSnapshot {
  return {
    driverId: row.driver_id,
    region: row.region,
    status: row.status,
    vehicleClass: row.vehicle_class,
    seats: row.seats,
    attributes: row.attributes,
    maxPickupM: row.max_pickup_m,
    shiftEndsAt: row.shift_ends_at === null ? null : row.shift_ends_at.toISOString(),
    position: positionOf(row),
    positionAt: row.position_at === null ? null : row.position_at.toISOString(),
    fence: row.fence,
    offer: row.status === 'leased' && row.expires_in_ms !== null ? offerMessage(row, row.expires_in_ms) : null,
    offerReceived: row.lease_received_at !== null,
    assignment: row.status === 'assigned' ? currentAssignment(row) : null,
    version: row.version,
    updatedAt: row.updated_at.toISOString(),
  };
}

const offerMessage = (row: DriverRow, expiresInMs: number): OfferMessage => ({
  offerId: row.offer_id!,
  rideId: row.ride_id!,
  leaseToken: row.lease_token!,
  fence: row.fence,
  expiresInMs,
  ...routeOf(row),
  pickupEtaS: row.pickup_eta_s,
});

// The fence moves only at a grant, and nobody is granted an assigned driver: the driver's is the assignment's.
const currentAssignment = (row: DriverRow): NonNullable<DriverSnapshot['assignment']> => ({
  rideId: row.ride_id!,
  driverId: row.driver_id,
  offerId: row.offer_id!,
  fence: row.fence,
  assignedAt: row.assigned_at!.toISOString(),
  ...routeOf(row),
  rideStatus: row.ride_status,
});

function offerRecord(row: OfferRow, region: RegionName): OfferRecord {
  return {
    id: row.id,
    regionId: region.id,
    rideId: row.ride_id,
    driverId: row.driver_id,
    status: row.status,
    fence: row.fence,
    leaseToken: row.lease_token,
    expiresInMs: row.expires_in_ms,
    ...routeOf(row),
    pickupEtaS: row.pickup_eta_s,
    grantedAt: row.granted_at.toISOString(),
    receivedAt: row.received_at === null ? null : row.received_at.toISOString(),
    expiresAt: row.expires_at.toISOString(),
    endedAt: row.ended_at === null ? null : row.ended_at.toISOString(),
    endReason: row.end_reason,
    policyVersion: row.policy_version,
  };
}
