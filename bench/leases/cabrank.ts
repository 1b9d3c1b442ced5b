/** Cabrank's own cycle: lease → confirm → release of distinct drivers, with everything recorded as in the service. */
import type { Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { addDrivers, addRegion, demandApplied, driverId, newRide, TERMS } from '../region.ts';
import { type Contender, inLanes, type Run, type Session } from './contender.ts';

const CREATE_SET = 500;
const CREATE_LANES = 8;
/** Rides made ready before a run, as a rate: more than anything here goes through. */
const RIDES_PER_S_FIRST = 15_000;

export interface CycleSettings {
  /** A pool of so many connections. */
  readonly sql: Sql;
  readonly connections: number;
  readonly drivers: number;
  /** Drivers that share each transaction. */
  readonly set: number;
}

export function cabrankCycle(name: string, settings: CycleSettings): Contender {
  return {
    name,
    durability: 'PostgreSQL: fsync, synchronous_commit=on',
    driven: `lease, confirm, release: a transaction each, ${settings.set} drivers at a time, over ${settings.connections} connections`,
    open: async () => openCycle(name, settings),
  };
}

async function openCycle(name: string, { sql, drivers, connections, set }: CycleSettings): Promise<Session> {
  const region = await addRegion(sql, name.replaceAll(/\W+/g, '-'));
  await addDrivers(sql, region, drivers);
  const each = Math.floor(drivers / connections);
  const next = new Int32Array(connections);
  let ratePerS = RIDES_PER_S_FIRST;

  const driversOf = (lane: number): string[] =>
    Array.from({ length: set }, () => {
      const index = next[lane]! % each;
      next[lane]! += 1;
      return driverId(region, lane * each + index);
    });

  const run = async (ms: number): Promise<Run> => {
    const rides = await createRides(sql, region, Math.ceil((ratePerS * ms) / 1000) + connections * set);
    const done = await inLanes(connections, ms, async (lane) => {
      const rideIds = rides.splice(-set);
      // Whoever runs out of rides stands still, which only lowers the figure.
      if (rideIds.length < set) return pauseFor(ms);
      await cycle(sql, region, rideIds, driversOf(lane));
      return set;
    });
    ratePerS = Math.max(500, 2 * (done.cycles / done.seconds));
    return done;
  };
  return { run, [Symbol.asyncDispose]: async () => {} };
}

const pauseFor = (ms: number): Promise<number> => new Promise((resolve) => void setTimeout(() => resolve(0), ms));

async function createRides(sql: Sql, region: number, count: number): Promise<string[]> {
  const rides = Array.from({ length: count }, () => newRide(region));
  const sets = Array.from({ length: Math.ceil(count / CREATE_SET) }, (_, i) =>
    rides.slice(i * CREATE_SET, (i + 1) * CREATE_SET),
  );
  await Promise.all(
    Array.from({ length: CREATE_LANES }, async () => {
      for (let set = sets.pop(); set !== undefined; set = sets.pop()) {
        await transitions.createRides(sql, region, set);
      }
    }),
  );
  return rides.map(({ rideId }) => rideId);
}

/** Three durable transactions for all of the set; any refusal is an error. */
async function cycle(
  sql: Sql,
  region: number,
  rideIds: readonly string[],
  driverIds: readonly string[],
): Promise<void> {
  const asks = rideIds.map((rideId, i) => ({
    rideId,
    driverId: driverIds[i]!,
    offerId: newId(region),
    leaseToken: newLeaseToken(),
    pickupEtaS: 60,
  }));
  demandApplied(await transitions.leaseDrivers(sql, region, asks, TERMS, false));
  demandApplied(await transitions.confirmOffers(sql, region, asks, false));
  const cancels = rideIds.map((rideId) => ({ rideId, riderId: null, source: 'operator' as const, reason: 'bench' }));
  demandApplied(await transitions.cancelRides(sql, region, cancels, false));
}
