/** A small region with its drivers and rides, put straight into a test's database. */
import { defaultPolicy, type Policy } from '../../domain/policy.ts';
import { cellOf, type Point } from '../../domain/geo.ts';
import { connectDatabase, type Database, type Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { createTestDatabase } from './database.ts';

export const CENTER: Point = { lat: 52.52, lng: 13.405 };

export async function addRegion(sql: Sql, id = 'berlin', policy: Partial<Policy> = {}): Promise<number> {
  const [row] = await sql<{ number: number }[]>`
    insert into regions (id, name, center_lat, center_lng, radius_m, policy_version)
    values (${id}, ${id}, ${CENTER.lat}, ${CENTER.lng}, 20000, 1) returning number`;
  await sql`insert into policies (region, version, document, created_by)
    values (${row!.number}, 1, ${sql.json({ ...defaultPolicy, ...policy } as never)}, 'test')`;
  return row!.number;
}

/** Drivers d1…dn, available and standing at `at`. */
export async function addDrivers(sql: Sql, region: number, count: number, at: Point = CENTER): Promise<string[]> {
  const ids = Array.from({ length: count }, (_, i) => `d${i + 1}`);
  await sql`insert into drivers (id, region, vehicle_class) select id, ${region}, 'economy' from unnest(${ids}::text[]) id`;
  await sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
    select ${region}, id, 'available', 'economy', clock_timestamp() from unnest(${ids}::text[]) id`;
  await transitions.recordPositions(
    sql,
    region,
    ids.map((driverId) => ({ driverId, position: { ...at, cell: cellOf(at) } })),
  );
  return ids;
}

export const newRide = (region: number, patch: Partial<transitions.NewRide> = {}): transitions.NewRide => ({
  rideId: newId(region),
  riderId: 'rider-1',
  vehicleClass: 'economy',
  seats: 1,
  attributes: [],
  acceptsLowerClass: false,
  pickup: CENTER,
  dropoff: { lat: 52.5, lng: 13.4 },
  policyVersion: 1,
  patienceMs: defaultPolicy.patienceMs,
  idempotency: null,
  ...patch,
});

/** Rides that search, each requested at the database's time. */
export async function addRides(sql: Sql, region: number, count: number, patienceMs?: number): Promise<string[]> {
  const rides = Array.from({ length: count }, () => newRide(region, patienceMs === undefined ? {} : { patienceMs }));
  return (await transitions.createRides(sql, region, rides)).map(({ ride_id }) => ride_id);
}

export const leaseTerms: transitions.LeaseTerms = { ...defaultPolicy, policyVersion: 1 };

export interface Term extends transitions.TermClaim {
  readonly rideId: string;
  readonly driverId: string;
  readonly fence: number;
}

/** Leases `driverId` for `rideId`; throws when refused. */
export async function lease(
  sql: Sql,
  region: number,
  rideId: string,
  driverId: string,
  terms: Partial<transitions.LeaseTerms> = {},
): Promise<Term> {
  const ask = { rideId, driverId, offerId: newId(region), leaseToken: newLeaseToken(), pickupEtaS: 60 };
  const [answer] = await transitions.leaseDrivers(sql, region, [ask], { ...leaseTerms, ...terms }, true);
  if (answer!.refused !== null) throw new Error(`not leased: ${answer!.refused}`);
  return { ...ask, fence: answer!.fence };
}

/** Moves the ends of the live terms of these drivers by `byMs`, as if the clock had run (or stood) so long. */
export async function moveExpiry(sql: Sql, region: number, driverIds: readonly string[], byMs: number): Promise<void> {
  const by = `${byMs} milliseconds`;
  const age = `${Math.min(0, byMs)} milliseconds`;
  await sql.begin(async (tx) => {
    await tx`update driver_state set lease_expires_at = lease_expires_at + ${by}::interval,
        lease_granted_at = lease_granted_at + ${age}::interval, updated_at = updated_at + ${age}::interval,
        lease_received_at = lease_received_at + ${age}::interval
      where region = ${region} and driver_id = any(${driverIds as string[]}) and status = 'leased'`;
    await tx`update offers set due_at = due_at + ${by}::interval, expires_at = expires_at + ${by}::interval,
        granted_at = granted_at + ${age}::interval,
        lifetime_ends_at = lifetime_ends_at + greatest(${by}::interval, interval '0')
      where region = ${region} and driver_id = any(${driverIds as string[]}) and due_at is not null`;
  });
}

export interface City extends AsyncDisposable {
  readonly database: Database;
  readonly sql: Sql;
  readonly url: string;
  readonly region: number;
  readonly driverIds: readonly string[];
  readonly ride: (id: string) => Promise<Record<string, unknown>>;
  readonly driver: (id: string) => Promise<Record<string, unknown>>;
  readonly offer: (id: string) => Promise<Record<string, unknown>>;
  /** The types of a ride's events, in order. */
  readonly events: (rideId: string) => Promise<string[]>;
  /** Everything that a command could have changed: equal before and after one that was refused. */
  readonly everything: () => Promise<unknown>;
}

/** A fresh database with one region, and `drivers` drivers who are available. */
export async function openCity(drivers: number, policy: Partial<Policy> = {}, hotConnections = 8): Promise<City> {
  const server = await createTestDatabase();
  const database = connectDatabase(server.url, { hotConnections });
  const sql = database.hot;
  const region = await addRegion(sql, 'berlin', policy);
  const driverIds = await addDrivers(sql, region, drivers);
  const row = async (found: Promise<Record<string, unknown>[]>): Promise<Record<string, unknown>> => (await found)[0]!;
  return {
    database,
    sql,
    url: server.url,
    region,
    driverIds,
    ride: (id) => row(sql`select * from rides where region = ${region} and id = ${id}`),
    driver: (id) => row(sql`select * from driver_state where region = ${region} and driver_id = ${id}`),
    offer: (id) => row(sql`select * from offers where region = ${region} and id = ${id}`),
    events: async (rideId) =>
      (await sql`select type from ride_events where region = ${region} and ride_id = ${rideId} order by seq`).map(
        (event) => event['type'] as string,
      ),
    everything: async () => ({
      rides: await sql`select * from rides order by id`,
      drivers: await sql`select * from driver_state order by driver_id`,
      offers: await sql`select * from offers order by id`,
      assignments: await sql`select * from assignments order by offer_id`,
      events: await sql`select * from ride_events order by ride_id, seq`,
    }),
    [Symbol.asyncDispose]: async () => {
      await database.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** A ride assigned to `driverId` through all the steps before. */
export async function assign(city: City, driverId = 'd1'): Promise<Term> {
  const [rideId] = await addRides(city.sql, city.region, 1);
  const term = await lease(city.sql, city.region, rideId!, driverId);
  const [answer] = await transitions.confirmOffers(city.sql, city.region, [term], true);
  if (answer!.refused !== null) throw new Error(`not confirmed: ${answer!.refused}`);
  return term;
}
