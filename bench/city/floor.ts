/** The floor: every transition of a ride one at a time on each connection, with no service and no set around it. */
import { cellOf } from '../../domain/geo.ts';
import { defaultPolicy } from '../../domain/policy.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { startMember } from '../member.ts';

export interface FloorFigures {
  readonly ridesPerSecond: number;
  readonly connections: number;
  readonly byConnections: Readonly<Record<number, number>>;
}

const CONNECTIONS = [4, 8, 16, 32];
const WARM_RIDES = 60;
const MEASURE_MS = 4_000;
/** Each connection takes its own drivers in turn, so that nobody waits for a row. */
const DRIVERS_EACH = 50;
const AT = { lat: 48.0, lng: 7.85 };

/** On a database of its own, with the settings of the service's. */
export async function measureFloor(say: (line: string) => void, signal: AbortSignal): Promise<FloorFigures> {
  await using server = await startMember(['database', '--temporary']);
  const byConnections: Record<number, number> = {};
  for (const connections of CONNECTIONS) {
    signal.throwIfAborted();
    byConnections[connections] = await measure(server.databaseUrl, connections);
    say(`  ${String(connections).padStart(6)} connections: ${byConnections[connections]} rides/s`);
  }
  const best = CONNECTIONS.reduce((a, b) => (byConnections[b]! > byConnections[a]! ? b : a));
  return { ridesPerSecond: byConnections[best]!, connections: best, byConnections };
}

async function measure(databaseUrl: string, connections: number): Promise<number> {
  const database = connectDatabase(databaseUrl, { hotConnections: connections });
  try {
    const sql = database.hot;
    const region = await openRegion(sql, connections);
    const lanes = Array.from({ length: connections }, (_, lane) => ({ lane, rides: 0 }));
    await Promise.all(
      lanes.map(async (each) => {
        for (let i = 0; i < WARM_RIDES; i++) await rideThrough(sql, region, each);
      }),
    );
    for (const each of lanes) each.rides = 0;
    const startedMs = performance.now();
    await Promise.all(
      lanes.map(async (each) => {
        while (performance.now() - startedMs < MEASURE_MS) await rideThrough(sql, region, each);
      }),
    );
    const rides = lanes.reduce((sum, each) => sum + each.rides, 0);
    return Math.round((rides * 1000) / (performance.now() - startedMs));
  } finally {
    await database.close();
  }
}

/** Ids are the whole fleet's, and each number of connections has its own region. */
const driverId = (region: number, lane: number, index: number): string => `driver-${region}-${lane}-${index}`;

async function openRegion(sql: Sql, connections: number): Promise<number> {
  const id = `floor-${connections}`;
  const [row] = await sql<{ number: number }[]>`
    insert into regions (id, name, center_lat, center_lng, radius_m, policy_version)
    values (${id}, ${id}, ${AT.lat}, ${AT.lng}, 20000, 1) returning number`;
  const region = row!.number;
  await sql`insert into policies (region, version, document, created_by)
    values (${region}, 1, ${sql.json(defaultPolicy as never)}, 'bench')`;
  const drivers = Array.from({ length: connections * DRIVERS_EACH }, (_, i) =>
    driverId(region, Math.floor(i / DRIVERS_EACH), i % DRIVERS_EACH),
  );
  await sql`insert into drivers (id, region, vehicle_class)
    select id, ${region}, 'economy' from unnest(${drivers}::text[]) id`;
  await sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
    select ${region}, id, 'available', 'economy', clock_timestamp() from unnest(${drivers}::text[]) id`;
  await transitions.recordPositions(
    sql,
    region,
    drivers.map((driver) => ({ driverId: driver, position: { ...AT, cell: cellOf(AT) } })),
  );
  return region;
}

/** Created, leased, received, confirmed, arrived, started, completed: seven transactions, each durable. */
async function rideThrough(sql: Sql, region: number, each: { lane: number; rides: number }): Promise<void> {
  const driver = driverId(region, each.lane, each.rides % DRIVERS_EACH);
  const rideId = newId(region);
  const term = { offerId: newId(region), leaseToken: newLeaseToken(), driverId: driver };
  const terms = { ...defaultPolicy, policyVersion: 1 };
  await transitions.createRides(sql, region, [
    {
      rideId,
      riderId: 'rider',
      vehicleClass: 'economy',
      seats: 1,
      attributes: [],
      acceptsLowerClass: false,
      pickup: AT,
      dropoff: AT,
      policyVersion: 1,
      patienceMs: defaultPolicy.patienceMs,
      idempotency: null,
    },
  ]);
  demand(await transitions.leaseDrivers(sql, region, [{ ...term, rideId, pickupEtaS: 60 }], terms, true));
  demand(await transitions.receiveOffers(sql, region, [term], true));
  demand(await transitions.confirmOffers(sql, region, [term], true));
  for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
    demand(await transitions.advanceRides(sql, region, [{ rideId, driverId: driver, status }], true));
  each.rides++;
}

function demand(answers: readonly { readonly refused: string | null }[]): void {
  if (answers[0]?.refused !== null) throw new Error(`refused: ${answers[0]?.refused}`);
}
