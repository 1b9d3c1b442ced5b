/** The floor: every transition of a ride one at a time on each connection, with no service and no set around it. */
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { fillWal, startMember } from '../member.ts';
import { addDrivers, addRegion, demandApplied, driverId, newRide, TERMS } from '../region.ts';

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

/** On a database of its own, with the settings of the service's. */
export async function measureFloor(say: (line: string) => void, signal: AbortSignal): Promise<FloorFigures> {
  await using server = await startMember(['database', '--temporary']);
  await fillWal(server.databaseUrl);
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
    const region = await addRegion(sql, `floor-${connections}`);
    await addDrivers(sql, region, connections * DRIVERS_EACH);
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

/** Created, leased, received, confirmed, arrived, started, completed: seven transactions, each durable. */
async function rideThrough(sql: Sql, region: number, each: { lane: number; rides: number }): Promise<void> {
  const driver = driverId(region, each.lane * DRIVERS_EACH + (each.rides % DRIVERS_EACH));
  const ride = newRide(region);
  const { rideId } = ride;
  const term = { offerId: newId(region), leaseToken: newLeaseToken(), driverId: driver };
  await transitions.createRides(sql, region, [ride]);
  demandApplied(await transitions.leaseDrivers(sql, region, [{ ...term, rideId, pickupEtaS: 60 }], TERMS, true));
  demandApplied(await transitions.receiveOffers(sql, region, [term], true));
  demandApplied(await transitions.confirmOffers(sql, region, [term], true));
  for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
    demandApplied(await transitions.advanceRides(sql, region, [{ rideId, driverId: driver, status }], true));
  each.rides++;
}
