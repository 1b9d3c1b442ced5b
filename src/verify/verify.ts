/**
 * Checks the design's invariants from what a database has recorded, independently of the code that wrote it: it calls
 * none of the service's functions, and takes no constraint for granted. It only reads, in short steps, and may run
 * beside a service at work.
 */
import { checkIds, checkTitles, type CheckId } from './catalog.ts';
import { Tally } from './checks.ts';
import { checkDrivers } from './drivers.ts';
import { Durations, type LeaseDurations } from './durations.ts';
import { checkKeys } from './idempotency.ts';
import { cutIntoSlices, findLeftOut, KeySums } from './key-sums.ts';
import { checkLeftOut, terms } from './offers.ts';
import { checkPlainRides } from './plain-rides.ts';
import { openReader, walk, wholeOf, type Range, type Reader, type Walk } from './reader.ts';
import { checkResourceLeases } from './resource-leases.ts';
import { checkRides, rides } from './rides.ts';
import { readSignsOfLife } from './signs-of-life.ts';
import type { Sums } from './sums.ts';
import { Chains, expectFences, judgeChains } from './terms.ts';

/** Half the cores of a small machine: a service at work keeps the others. */
const CONNECTIONS = 2;
/** Most rides, offers or drivers that a step starts from: of more it would take longer than a second, and get no cheaper. */
const STEP_ROWS_MAX = 50_000;

export interface CheckResult<Id extends string = CheckId> {
  /** The invariant's number and a letter. */
  readonly id: Id;
  readonly title: string;
  /** Rows that were looked at. */
  readonly checked: number;
  readonly violations: number;
  /** At most five, for people. */
  readonly examples: readonly string[];
}

export interface Verification {
  /** Rows looked at, over all checks. */
  readonly checked: number;
  readonly violations: number;
  readonly invariants: readonly CheckResult[];
  /** There is no ride, offer, assignment or event: nothing was verified. */
  readonly empty: boolean;
  readonly facts: Facts;
}

export interface Facts {
  /** By status. */
  readonly rides: Readonly<Record<string, number>>;
  readonly ridesEverAssigned: number;
  /** Rides that ended as `no_drivers_available`, by what kept the drivers near them. */
  readonly unserved: Readonly<Record<string, number>>;
  /** By status. */
  readonly offers: Readonly<Record<string, number>>;
  readonly leasesGranted: number;
  /** Driver-seconds that leases took, by how they ended. */
  readonly heldSeconds: Readonly<Record<string, number>>;
  /** By how they ended; `live` for those that didn't. */
  readonly assignments: Readonly<Record<string, number>>;
  readonly events: number;
  /** From the end of a lapsed term to its being freed; null when none lapsed. Exact to 2 %. */
  readonly sweeperLagMs: { readonly p50: number | null; readonly p99: number | null };
  /** From the grant of a lease to its end; null when none ended. Exact to 2 %. */
  readonly holdMs: { readonly p50: number | null; readonly p95: number | null; readonly p99: number | null };
}

export interface Progress {
  readonly region: number;
  /** Rows looked at so far, over all checks. */
  readonly checked: number;
}

export interface VerifyOptions {
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: Progress) => void;
  /** Most rows that one statement starts from: smaller steps hold shorter snapshots and take longer in all. */
  readonly stepRowsMax?: number;
  /** Steps that are read at once, each by a core of the server; 2 by default. */
  readonly connections?: number;
}

interface Pass {
  readonly reader: Reader;
  readonly tally: Tally;
  readonly chains: Chains;
  readonly durations: LeaseDurations;
  readonly stepRowsMax: number;
  readonly connections: number;
  readonly onProgress: (progress: Progress) => void;
}

/**
 * @throws VerifyError when the database can't be read; the signal's reason when aborted
 */
export async function verify(url: string, options: VerifyOptions = {}): Promise<Verification> {
  const connections = options.connections ?? CONNECTIONS;
  await using reader = openReader(url, connections, options.signal);
  const pass: Pass = {
    reader,
    tally: new Tally(checkIds),
    chains: new Chains(),
    durations: { hold: new Durations(), sweeperLag: new Durations() },
    stepRowsMax: options.stepRowsMax ?? STEP_ROWS_MAX,
    connections,
    onProgress: options.onProgress ?? (() => {}),
  };
  for (const { facts = {} } of [rides, terms]) for (const name of Object.keys(facts)) pass.tally.addFact(name, 0);
  const regions = await findRegions(reader);
  // Before anything else is read: see Chains.
  for (const region of regions) {
    await walk({ ...driverKeys, ...pass, over: wholeOf(region) }, (range) => expectFences(reader, pass.chains, range));
  }
  for (const region of regions) await checkRegion(pass, region);
  await walk({ ...leaseKeys, ...pass, over: wholeOf(0) }, (range) => checkResourceLeases(reader, pass.tally, range));
  await judgeChains(reader, pass.tally, pass.chains);
  return summarise(pass);
}

type Keys = Pick<Walk, 'table' | 'key' | 'type'>;
const driverKeys: Keys = { table: 'driver_state', key: 'driver_id', type: 'text' };
const offerKeys: Keys = { table: 'offers', key: 'id', type: 'uuid' };
const rideKeys: Keys = { table: 'rides', key: 'id', type: 'uuid' };
const idempotencyKeys: Keys = { table: 'idempotency_keys', key: 'subject', type: 'text' };

/** Of no region: they are walked as if of region 0. */
const leaseKeys: Keys = {
  table: '(select 0::int2 as region, resource from resource_leases) l',
  key: 'resource',
  type: 'text',
};

async function checkRegion(pass: Pass, region: number): Promise<void> {
  const { reader, tally, chains, durations } = pass;
  const signs = await readSignsOfLife(reader, region);
  const sums: Sums = { chains, durations, reached: new KeySums(), slices: await cutIntoSlices(reader, region) };
  const tellProgress = (): void => pass.onProgress({ region, checked: tally.checked });
  const along = (keys: Keys, step: (range: Range) => Promise<void>, over = wholeOf(region)): Promise<void> =>
    walk({ ...keys, ...pass, over }, async (range) => {
      await step(range);
      tellProgress();
    });
  await along(rideKeys, async (range) => {
    const others = await checkPlainRides(reader, tally, sums, range);
    if (others.length > 0) await checkRides(reader, tally, sums, others, signs);
  });
  for (const slice of await findLeftOut(pass, sums))
    await along(offerKeys, (range) => checkLeftOut(reader, tally, sums, range), slice);
  await along(driverKeys, (range) => checkDrivers(reader, tally, range, signs.lastSignAt));
  await along(idempotencyKeys, (range) => checkKeys(reader, tally, range));
}

/** Every region that has rows, whether or not there is a region of that number. Each step is one look into an index. */
async function findRegions(reader: Reader): Promise<number[]> {
  const tables = ['rides', 'offers', 'assignments', 'ride_events', 'driver_state', 'idempotency_keys'];
  const numbersOf = (table: string): string => `(with recursive found as (
    select min(region) as region from ${table}
    union all select (select min(region) from ${table} where region > found.region) from found where found.region is not null)
    select region from found where region is not null)`;
  const rows = await reader.ask<{ region: number }>(`${tables.map(numbersOf).join(' union ')} order by region`, []);
  return rows.map(({ region }) => region);
}

function summarise({ tally, durations }: Pass): Verification {
  const invariants = resultsOf(tally, checkTitles);
  const facts = factsOf(tally, durations);
  const recorded = [facts.rides, facts.offers, facts.assignments].flatMap((counts) => Object.values(counts));
  return {
    checked: tally.checked,
    violations: invariants.reduce((sum, { violations }) => sum + violations, 0),
    invariants,
    empty: recorded.every((count) => count === 0) && facts.events === 0,
    facts,
  };
}

export const resultsOf = <Id extends string>(
  { checks }: Tally<Id>,
  titles: Readonly<Record<Id, string>>,
): CheckResult<Id>[] => [...checks].map(([id, tally]) => ({ id, title: titles[id], ...tally }));

function factsOf(tally: Tally, { hold, sweeperLag }: LeaseDurations): Facts {
  const by = (group: string): Record<string, number> =>
    Object.fromEntries(
      [...tally.facts]
        .filter(([name]) => name.startsWith(`${group}.`))
        .map(([name, count]) => [name.slice(group.length + 1), count]),
    );
  const offers = by('offers');
  return {
    rides: by('rides'),
    ridesEverAssigned: tally.fact('everAssigned'),
    unserved: Object.fromEntries(Object.entries(by('unserved')).filter(([, count]) => count > 0)),
    offers,
    heldSeconds: Object.fromEntries(Object.entries(by('heldMicroseconds')).map(([end, count]) => [end, count / 1e6])),
    leasesGranted: Object.values(offers).reduce((sum, count) => sum + count, 0),
    assignments: by('assignments'),
    events: tally.fact('events'),
    sweeperLagMs: { p50: sweeperLag.percentileMs(0.5), p99: sweeperLag.percentileMs(0.99) },
    holdMs: { p50: hold.percentileMs(0.5), p95: hold.percentileMs(0.95), p99: hold.percentileMs(0.99) },
  };
}

/** 0: nothing wrong; 1: a violation; 2: an empty history, which proves nothing. */
export function verifyExitCode({ violations, empty }: Verification): 0 | 1 | 2 {
  if (violations > 0) return 1;
  return empty ? 2 : 0;
}
