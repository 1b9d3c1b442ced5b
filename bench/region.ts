/** Regions, drivers and rides put straight into a benchmark's database. */
import { cellOf, type Point } from '../domain/geo.ts';
import { defaultPolicy, type Policy } from '../domain/policy.ts';
import type { Sql } from '../src/database/connection.ts';
import { newId } from '../src/leasing/ids.ts';
import type { LeaseTerms, NewRide } from '../src/leasing/transitions.ts';

export const AT: Point = { lat: 48.0, lng: 7.85 };
export const TERMS: LeaseTerms = { ...defaultPolicy, policyVersion: 1 };

/** Returns the region's number. */
export async function addRegion(
  sql: Sql,
  id: string,
  policy: Partial<Policy> = {},
  center: Point = AT,
): Promise<number> {
  const [row] = await sql<{ number: number }[]>`
    insert into regions (id, name, center_lat, center_lng, radius_m, policy_version)
    values (${id}, ${id}, ${center.lat}, ${center.lng}, 20000, 1) returning number`;
  await sql`insert into policies (region, version, document, created_by)
    values (${row!.number}, 1, ${sql.json({ ...defaultPolicy, ...policy } as never)}, 'bench')`;
  return row!.number;
}

/** Drivers are the whole fleet's, so their ids carry the region. */
export const driverId = (region: number, index: number): string => `driver-${region}-${index}`;

/** In one statement, which has a deadline. */
const DRIVERS_STEP = 50_000;

/** So many drivers, available, all in one place. */
export async function addDrivers(sql: Sql, region: number, count: number): Promise<void> {
  const prefix = driverId(region, 0).slice(0, -1);
  for (let from = 0; from < count; from += DRIVERS_STEP) {
    const to = Math.min(count, from + DRIVERS_STEP) - 1;
    await sql`insert into drivers (id, region, vehicle_class)
      select ${prefix} || i, ${region}, 'economy' from generate_series(${from}::int, ${to}::int) i`;
    await sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
      select ${region}, ${prefix} || i, 'available', 'economy', clock_timestamp() from generate_series(${from}::int, ${to}::int) i`;
    await sql`insert into driver_presence (region, driver_id, seen_at, position_at, lat, lng, cell)
      select ${region}, ${prefix} || i, clock_timestamp(), clock_timestamp(), ${AT.lat}, ${AT.lng}, ${cellOf(AT)}::int8
      from generate_series(${from}::int, ${to}::int) i`;
  }
}

export const newRide = (region: number, pickup: Point = AT, dropoff: Point = AT): NewRide => ({
  rideId: newId(region),
  riderId: 'rider',
  vehicleClass: 'economy',
  seats: 1,
  attributes: [],
  acceptsLowerClass: false,
  pickup,
  dropoff,
  policyVersion: 1,
  patienceMs: defaultPolicy.patienceMs,
  idempotency: null,
});

/** Fails the benchmark: what it measures would be something else. */
export function demandApplied(answers: readonly { readonly refused: string | null }[]): void {
  const bad = answers.find(({ refused }) => refused !== null);
  if (bad !== undefined) throw new Error(`refused: ${bad.refused}`);
}
