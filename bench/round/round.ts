/** The round benchmark: from a snapshot of rides and drivers to pairs, how good they are, and the leases of the pairs. */
import { linearSumAssignment } from 'linear-sum-assignment';
import type { DriverProfile } from '../../domain/eligibility.ts';
import { cellOf, type Point } from '../../domain/geo.ts';
import { matchings, type Pairing, type WaitingRide } from '../../domain/matching.ts';
import { Fleet } from '../../domain/matching/fleet.ts';
import { defaultPolicy } from '../../domain/policy.ts';
import { createRandom, type Random } from '../../domain/random.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';
import { loadCsvDemand } from '../../simulator/demand/csv.ts';
import type { Trip } from '../../simulator/demand/demand.ts';
import { syntheticDemand } from '../../simulator/demand/synthetic.ts';
import { connectDatabase } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { startMember } from '../member.ts';
import { addDrivers, addRegion, demandApplied, driverId, newRide, TERMS } from '../region.ts';
import { type Spread, spreadOf } from '../spread.ts';
import { solveDense } from './dense.ts';

export interface RoundOptions {
  /** A file of trips; null: a made-up city. */
  readonly demandFile: string | null;
  readonly sizes: readonly number[];
  readonly repeats: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface RoundCase {
  readonly rides: number;
  readonly drivers: number;
  readonly pairs: number;
  /** Each ride its nearest free driver: candidates and choosing one after another. */
  readonly nearestMs: Spread;
  /** The cheapest pairing overall: the same candidates, and the exact solution over them. */
  readonly batchMs: Spread;
  /** The leases of the pairs, in sets of 50 over 8 connections. */
  readonly leaseMs: number;
  /** Mean seconds to the pickup. */
  readonly meanEtaS: { readonly nearest: number; readonly batch: number };
  /** Total seconds to the pickup ÷ the least that any pairing of all rides with all drivers takes; null: not computed. */
  readonly overOptimum: number | null;
  /** Milliseconds of others for the same pairing, over the full matrix of costs; null: too large for them. */
  readonly others: { readonly dense: number | null; readonly linearSumAssignment: number | null };
}

export interface RoundFigures {
  readonly demand: string;
  readonly candidatesMax: number;
  readonly cases: readonly RoundCase[];
}

const LEASE_SET = 50;
const LEASE_CONNECTIONS = 8;
/** Full matrices beyond these take minutes, or don't fit. */
const DENSE_CELLS_MAX = 80_000_000;
const NPM_CELLS_MAX = 3_000_000;
const CANDIDATES_MAX = 20;
const ANYWHERE_M = 50_000;

export async function benchRound({ demandFile, sizes, repeats, say, signal }: RoundOptions): Promise<RoundFigures> {
  const random = createRandom('round');
  const trips = await tripsOf(demandFile, random);
  await using server = await startMember(['database', '--temporary']);
  const cases: RoundCase[] = [];
  for (const size of sizes) {
    for (const times of [1, 3]) {
      signal.throwIfAborted();
      const snapshot = snapshotOf(trips, size, times * size, random);
      const one = await measureCase(snapshot, repeats, server.databaseUrl);
      say(`  ${size} × ${times * size}: ${one.batchMs.median} ms, over the optimum ${one.overOptimum ?? '–'}`);
      cases.push(one);
    }
  }
  return {
    demand: demandFile === null ? 'made-up city' : demandFile.split('/').at(-1)!,
    candidatesMax: CANDIDATES_MAX,
    cases,
  };
}

async function tripsOf(file: string | null, random: Random): Promise<readonly Trip[]> {
  if (file !== null) return (await loadCsvDemand(file, { fromMs: null, minutes: null }, random)).trips;
  const center = { lat: 48.0, lng: 7.85 };
  return syntheticDemand({ center, radiusM: 6_000, peakRidesPerHour: 20_000, fromMs: 0, minutes: 1_440 }, random).trips;
}

interface Snapshot {
  readonly rides: readonly WaitingRide[];
  readonly drivers: readonly DriverProfile[];
}

/** Riders where people got in, drivers where people got out. */
function snapshotOf(trips: readonly Trip[], rides: number, drivers: number, random: Random): Snapshot {
  const pick = (): Trip => random.pick(trips);
  return {
    rides: Array.from({ length: rides }, (_, i): WaitingRide => {
      const { pickup, dropoff } = pick();
      return {
        rideId: `ride-${i}`,
        pickup,
        dropoff,
        vehicleClasses: ['economy'],
        seats: 1,
        attributes: [],
        excluded: new Map(),
        searchRadiusM: ANYWHERE_M,
        places: 1,
        queuedAtMs: i,
      };
    }),
    drivers: Array.from({ length: drivers }, (_, i): DriverProfile => ({
      driverId: `driver-${i}`,
      position: pick().dropoff,
      vehicleClass: 'economy',
      seats: 4,
      attributes: [],
      maxPickupM: Infinity,
      shiftLeftS: Infinity,
    })),
  };
}

async function measureCase(snapshot: Snapshot, repeats: number, databaseUrl: string): Promise<RoundCase> {
  const { rides, drivers } = snapshot;
  const context = { travelTime: greatCircleTravelTime(defaultPolicy), candidatesMax: CANDIDATES_MAX };
  const times: Record<'nearest' | 'batch', number[]> = { nearest: [], batch: [] };
  const pairs: Record<'nearest' | 'batch', readonly Pairing[]> = { nearest: [], batch: [] };
  // Once more than counted: the first run is the compiler's.
  for (let i = 0; i <= repeats; i++) {
    for (const how of ['nearest', 'batch'] as const) {
      const startedMs = performance.now();
      pairs[how] = matchings[how](rides, Fleet.of(drivers), context);
      if (i > 0) times[how].push(performance.now() - startedMs);
    }
  }
  const optimum = solveExactly(snapshot, context.travelTime);
  const total = (some: readonly Pairing[]): number => some.reduce((sum, { pickupEtaS }) => sum + pickupEtaS, 0);
  const mean = (some: readonly Pairing[]): number => Math.round((10 * total(some)) / some.length) / 10;
  return {
    rides: rides.length,
    drivers: drivers.length,
    pairs: pairs.batch.length,
    nearestMs: spreadOf(times.nearest),
    batchMs: spreadOf(times.batch),
    leaseMs: await leasePairs(snapshot, pairs.batch, databaseUrl),
    meanEtaS: { nearest: mean(pairs.nearest), batch: mean(pairs.batch) },
    overOptimum: optimum.total === null ? null : Math.round((1e4 * total(pairs.batch)) / optimum.total) / 1e4,
    others: { dense: optimum.denseMs, linearSumAssignment: optimum.npmMs },
  };
}

function solveExactly({ rides, drivers }: Snapshot, travelTime: { etaS(from: Point, to: Point): number }) {
  const cells = rides.length * drivers.length;
  if (cells > DENSE_CELLS_MAX) return { total: null, denseMs: null, npmMs: null };
  const cost = new Float32Array(cells);
  for (const [row, ride] of rides.entries()) {
    for (const [column, driver] of drivers.entries())
      cost[row * drivers.length + column] = travelTime.etaS(driver.position, ride.pickup);
  }
  const timed = <Result>(work: () => Result): [Result, number] => {
    const startedMs = performance.now();
    return [work(), Math.round(performance.now() - startedMs)];
  };
  const [{ total }, denseMs] = timed(() => solveDense(rides.length, drivers.length, cost));
  if (cells > NPM_CELLS_MAX) return { total, denseMs, npmMs: null };
  const rows = rides.map((_, row) => [...cost.subarray(row * drivers.length, (row + 1) * drivers.length)]);
  const [, npmMs] = timed(() => linearSumAssignment(rows, { maximaze: false }));
  return { total, denseMs, npmMs };
}

/** In a region of its own; the median of what one set took isn't told: all of them are the round's last step. */
async function leasePairs(
  { rides, drivers }: Snapshot,
  pairs: readonly Pairing[],
  databaseUrl: string,
): Promise<number> {
  await using database = connectDatabase(databaseUrl, { hotConnections: LEASE_CONNECTIONS });
  const sql = database.hot;
  const name = `round-${rides.length}-${drivers.length}`;
  const region = await addRegion(sql, name, {}, rides[0]!.pickup);
  await addDrivers(sql, region, drivers.length);
  await transitions.recordPositions(
    sql,
    region,
    drivers.map(({ position }, i) => ({
      driverId: driverId(region, i),
      position: { ...position, cell: cellOf(position) },
    })),
  );
  const made = new Map(rides.map(({ rideId, pickup, dropoff }) => [rideId, newRide(region, pickup, dropoff)]));
  for (const set of setsOf([...made.values()], 500)) await transitions.createRides(sql, region, set);
  const asks = pairs.map(({ rideId, driverId: of, pickupEtaS }) => ({
    rideId: made.get(rideId)!.rideId,
    driverId: driverId(region, Number(of.slice('driver-'.length))),
    offerId: newId(region),
    leaseToken: newLeaseToken(),
    pickupEtaS,
    seenExclusions: 0,
  }));
  const startedMs = performance.now();
  const answers = await Promise.all(
    setsOf(asks, LEASE_SET).map((set) => transitions.leaseDrivers(sql, region, set, TERMS, false)),
  );
  const tookMs = Math.round(performance.now() - startedMs);
  demandApplied(answers.flat());
  return tookMs;
}

const setsOf = <Item>(items: readonly Item[], size: number): Item[][] =>
  Array.from({ length: Math.ceil(items.length / size) }, (_, i) => items.slice(i * size, (i + 1) * size));

export function formatRound({ cases, demand, candidatesMax }: RoundFigures): string {
  return [
    `round  ${demand}, ${candidatesMax} candidates`,
    ...cases.map(
      ({ rides, drivers, nearestMs, batchMs, leaseMs, meanEtaS, overOptimum, others }) =>
        `       ${rides} × ${drivers}: nearest ${nearestMs.median} ms, batch ${batchMs.median} ms (${batchMs.min}–${batchMs.max}), leases ${leaseMs} ms; ` +
        `to the pickup ${meanEtaS.nearest} s, ${meanEtaS.batch} s; over the optimum ${overOptimum ?? '–'}; ` +
        `dense ${others.dense ?? '–'} ms, linear-sum-assignment ${others.linearSumAssignment ?? '–'} ms`,
    ),
  ].join('\n');
}
