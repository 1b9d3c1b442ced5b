/** The verify benchmark: how long a long past takes to be verified, beside merely reading the same records. */
import postgres from '../../src/database/postgres.ts';
import { startMember, type Verified, verifyRecords } from '../member.ts';
import { addPast } from '../past.ts';

export interface VerifyOptions {
  /** Rides of one offer each. */
  readonly rides: number;
  /** Of `verify`, and to read the records. */
  readonly connections: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

interface OfPast extends Verified {
  readonly rides: number;
  readonly offersEach: number;
  readonly verifyS: number;
  /** To take the same records out and drop them. */
  readonly readS: number;
  readonly readMb: number;
  readonly ratio: number;
}

export interface VerifyFigures {
  readonly connections: number;
  readonly pasts: readonly OfPast[];
}

/** Their keys are in the order of time, as those of the rides are. */
const TABLES = [
  ['rides', 'id'],
  ['offers', 'id'],
  ['assignments', 'offer_id'],
  ['ride_events', 'ride_id'],
] as const;
/** That each table is read in, about as large as each other. */
const PARTS = 64;
/** About so many rides tell where the parts begin. */
const SAMPLED = 100_000;

/** A past of smooth rides, then one of a tenth as many rides none of which was. */
export async function benchVerify({ rides, connections, say, signal }: VerifyOptions): Promise<VerifyFigures> {
  const pasts: OfPast[] = [];
  for (const [count, offersEach] of [
    [rides, 1],
    [Math.ceil(rides / 10), 2],
  ] as const) {
    signal.throwIfAborted();
    const past = await measure(count, offersEach, connections, say);
    pasts.push(past);
    say(formatPast(past));
  }
  return { connections, pasts };
}

async function measure(
  rides: number,
  offersEach: 1 | 2,
  connections: number,
  say: (line: string) => void,
): Promise<OfPast> {
  await using member = await startMember(['database', '--temporary']);
  const { databaseUrl } = member;
  await addPast(databaseUrl, rides, offersEach);
  await analyze(databaseUrl);
  say(`  a past of ${rides} rides is there`);
  const read = await readOut(databaseUrl, rides, connections);
  const startedMs = performance.now();
  const verified = await verifyRecords(databaseUrl, connections);
  const verifyS = secondsSince(startedMs);
  return { rides, offersEach, verifyS, ...read, ratio: Math.round((100 * verifyS) / read.readS) / 100, ...verified };
}

const secondsSince = (startedMs: number): number => Math.round((performance.now() - startedMs) / 100) / 10;

async function analyze(databaseUrl: string): Promise<void> {
  const sql = postgres(databaseUrl, { max: 1 });
  await sql`vacuum (analyze)`;
  await sql.end();
}

/** All four tables once, in the order of their keys, as `COPY` gives them. */
async function readOut(
  databaseUrl: string,
  rides: number,
  connections: number,
): Promise<Pick<OfPast, 'readS' | 'readMb'>> {
  await using open = new AsyncDisposableStack();
  const sql = open.adopt(postgres(databaseUrl, { max: connections }), (pool) => pool.end({ timeout: 2 }));
  const [found] = await sql<{ region: number; bounds: string[] }[]>`
    select min(region) as region, percentile_disc(${Array.from({ length: PARTS - 1 }, (_, i) => (i + 1) / PARTS)}::float8[])
      within group (order by id::text) as bounds
    from rides tablesample system (${Math.min(100, (100 * SAMPLED) / rides)}::float8)`;
  const { region, bounds } = found!;
  const parts = [null, ...bounds].flatMap((from, nth) =>
    TABLES.map(([table, key]) => {
      const to = bounds[nth];
      const within = [from && `and ${key} >= '${from}'`, to && `and ${key} < '${to}'`].filter(Boolean).join(' ');
      return `copy (select * from ${table} where region = ${region} ${within}) to stdout`;
    }),
  );
  let bytes = 0;
  const startedMs = performance.now();
  await Promise.all(
    Array.from({ length: connections }, async () => {
      for (let part = parts.shift(); part !== undefined; part = parts.shift())
        for await (const chunk of await sql.unsafe(part).readable()) bytes += (chunk as Buffer).length;
    }),
  );
  return { readS: secondsSince(startedMs), readMb: Math.round(bytes / 2 ** 20) };
}

const formatPast = ({ rides, offersEach, verifyS, readS, readMb, ratio, checked, violations }: OfPast): string =>
  `verify ${rides} rides of ${offersEach} offers: ${verifyS} s, ${ratio} times as long as to read them (${readS} s, ${readMb} MB); ${violations} violations of ${checked} records`;

export const formatVerify = ({ connections, pasts }: VerifyFigures): string =>
  [...pasts.map(formatPast), `       over ${connections} connections`].join('\n');
