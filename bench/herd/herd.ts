/** The herd benchmark: tens of thousands of leases that end within the same second, while drivers go on accepting. */
import { execFile } from 'node:child_process';
import { setTimeout as pause } from 'node:timers/promises';
import { promisify } from 'node:util';
import { signToken } from '../../src/client/token.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { fillWal, startMember } from '../member.ts';
import { type Percentiles, percentiles } from '../percentiles.ts';
import { addDrivers, addRegion, demandApplied, driverId, newRide, TERMS } from '../region.ts';
import { median } from '../spread.ts';
import { BusyCores } from './busy-cores.ts';
import { Confirms, type Term } from './confirms.ts';

export interface HerdOptions {
  readonly leases: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface HerdFigures {
  readonly leases: number;
  readonly confirmsPerSecond: number;
  /** Windows of confirms before the herd, one with nothing but busy cores, and the one in which the herd ends. */
  readonly quietMs: readonly Percentiles[];
  readonly busyMs: Percentiles;
  readonly herdMs: Percentiles;
  /** p99 with the herd ÷ the median of the quiet ones. */
  readonly p99Ratio: number;
  /** From the end of the second in which the leases ended until every driver was free. */
  readonly allFreeAfterMs: number;
}

const SET = 500;
const LANES = 8;
const RATE_PER_S = 200;
const WINDOW_MS = 4_000;
const QUIET_WINDOWS = 3;
const LEAD_MS = 5_000;
const FREE_WITHIN_MS = 60_000;

export async function benchHerd({ leases, say, signal }: HerdOptions): Promise<HerdFigures> {
  await using service = await startMember(['serve', '--temporary']);
  await fillWal(service.databaseUrl);
  await using database = connectDatabase(service.databaseUrl, { hotConnections: LANES, coldConnections: 1 });
  const sql = database.hot;
  const token = await signToken({ secret: service.authSecret, sub: 'bench', role: 'service', ttlS: 3600 });
  const perWindow = (WINDOW_MS / 1000) * RATE_PER_S;
  const region = await addRegion(sql, 'herd');
  say(`  making ${leases} leases …`);
  const toConfirm = perWindow * (QUIET_WINDOWS + 3);
  await addDrivers(sql, region, leases + toConfirm);
  const terms = await leaseSome(sql, region, leases, toConfirm, 600_000);
  const herdTtlMs = LEAD_MS + 2_500 * (leases / 10_000);
  await using confirms = new Confirms({ url: service.url, token, ratePerS: RATE_PER_S });
  await confirms.run(terms.splice(0, perWindow));
  const quietMs: Percentiles[] = [];
  for (let window = 0; window < QUIET_WINDOWS; window++) {
    signal.throwIfAborted();
    quietMs.push(percentiles(await confirms.run(terms.splice(0, perWindow))));
    say(`  quiet: confirms p99 ${quietMs.at(-1)!.p99} ms`);
  }
  const busyMs = await confirmBesideBusyCores(confirms, terms.splice(0, perWindow));
  say(`  busy cores: confirms p99 ${busyMs.p99} ms`);
  const endsAtMs = performance.now() + herdTtlMs;
  await leaseSome(sql, region, 0, leases, herdTtlMs, endsAtMs);
  // What making them wrote would else be put on disk in the middle of it, and a commit that comes then waits 100 ms.
  await promisify(execFile)('sync');
  await pause(Math.max(0, endsAtMs - 1_500 - performance.now()), undefined, { signal });
  const free = untilFree(database.cold, region, endsAtMs);
  const herdMs = percentiles(await confirms.run(terms));
  const allFreeAfterMs = await free;
  say(`  herd: confirms p99 ${herdMs.p99} ms, all free after ${allFreeAfterMs} ms`);
  const p99Ratio = timesQuiet(herdMs, quietMs);
  return { leases, confirmsPerSecond: RATE_PER_S, quietMs, busyMs, herdMs, p99Ratio, allFreeAfterMs };
}

/** p99 ÷ the median of the quiet windows'. */
export const timesQuiet = ({ p99 }: Percentiles, quietMs: readonly Percentiles[]): number =>
  Math.round((100 * p99!) / median(quietMs.map((quiet) => quiet.p99!))) / 100;

async function confirmBesideBusyCores(confirms: Confirms, terms: readonly Term[]): Promise<Percentiles> {
  using _ = await BusyCores.begin();
  return percentiles(await confirms.run(terms));
}

/**
 * Leases `count` drivers from `first` on, for `ttlMs`, or so that all end within the second before `endsAtMs`. Their rides
 * are held by an operator, so that no round gives the drivers away again.
 */
async function leaseSome(
  sql: Sql,
  region: number,
  first: number,
  count: number,
  ttlMs: number,
  endsAtMs?: number,
): Promise<Term[]> {
  const sets = Array.from({ length: Math.ceil(count / SET) }, (_, i) => first + i * SET);
  const made: Term[] = [];
  const lane = async (): Promise<void> => {
    for (let from = sets.pop(); from !== undefined; from = sets.pop()) {
      const size = Math.min(SET, first + count - from);
      const rides = Array.from({ length: size }, () => newRide(region));
      await transitions.createRides(sql, region, rides);
      await sql`update rides set held_until = now() + interval '1 hour', queue_at = now() + interval '1 hour'
        where region = ${region} and id = any(${rides.map(({ rideId }) => rideId)}::uuid[])`;
      const asks = rides.map(({ rideId }, i) => ({
        rideId,
        driverId: driverId(region, from! + i),
        offerId: newId(region),
        leaseToken: newLeaseToken(),
        pickupEtaS: 60,
      }));
      const leftMs = endsAtMs === undefined ? ttlMs : Math.round(endsAtMs - 1_000 * Math.random() - performance.now());
      if (leftMs < 250) throw new Error('this machine is too slow to make the herd in time');
      const terms = { ...TERMS, deliveryTtlMs: leftMs, maxLifetimeMs: leftMs + 60_000 };
      demandApplied(await transitions.leaseDrivers(sql, region, asks, terms, true));
      made.push(...asks);
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return made;
}

/** Asks for one that is left, by the index of their ends: to count them all again and again would disturb what is measured. */
async function untilFree(sql: Sql, region: number, endsAtMs: number): Promise<number> {
  while (performance.now() < endsAtMs + FREE_WITHIN_MS) {
    await pause(100);
    const [row] = await sql<{ left: boolean }[]>`select exists (
      select from offers where region = ${region} and due_at < now() + interval '1 minute') as left`;
    if (!row!.left) return Math.max(0, Math.round(performance.now() - endsAtMs));
  }
  throw new Error('the herd wasn’t freed');
}

export const formatHerd = ({
  leases,
  confirmsPerSecond,
  quietMs,
  busyMs,
  herdMs,
  p99Ratio,
  allFreeAfterMs,
}: HerdFigures): string =>
  `herd   ${leases} leases end within a second, ${confirmsPerSecond} confirms/s: all free ${allFreeAfterMs} ms after; ` +
  `confirms' p99 quiet ${quietMs.map(({ p99 }) => p99).join(', ')} ms, with busy cores ${busyMs.p99} ms, with the herd ${herdMs.p99} ms: ratio ${p99Ratio}`;
