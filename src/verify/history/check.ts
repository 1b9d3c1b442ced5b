/**
 * Checks a history together with the records: what clients were told is what is there, what they were refused isn't, and
 * nothing is there that nobody asked for. It adds to `verify`, which proves from the records alone that they are in
 * order, and repeats none of that.
 *
 * The file is read once, as a stream, and folded; then the region's keys, offers and rides are walked in short steps,
 * each row meeting its story. What is kept in memory grows with the offers, rides and keys, not with the lines.
 */
import { historyCheckIds, historyCheckTitles, type HistoryCheckId } from '../catalog.ts';
import { Tally } from '../checks.ts';
import { inRange, openReader, paramsOf, VerifyError, walk, wholeOf, type Range, type Reader } from '../reader.ts';
import { resultsOf, type CheckResult } from '../verify.ts';
import { DatabaseClock, type Interval } from './clock.ts';
import { checkKeys } from './keys.ts';
import { checkAbsentOffers, checkOffers } from './offers.ts';
import { RECOVERY_MS, type HistoryPass } from './pass.ts';
import { checkAbsentRides, checkRides, readRequests } from './rides.ts';
import { readStories, type Stories } from './stories.ts';
import { parseDemands, wildnessOf, type Demand, type Wildness } from './wildness.ts';

/** One reads while what the other read is judged. */
const CONNECTIONS = 2;
const STEP_ROWS_MAX = 10_000;
/** A clock that is set may take a moment to be. */
const STEP_MS = 2_000;

export interface HistoryVerification {
  /** Lines and rows looked at, over all checks. */
  readonly checked: number;
  readonly violations: number;
  readonly invariants: readonly CheckResult<HistoryCheckId>[];
  /** What a check had to leave open, most often because the database's clock was set nearby. */
  readonly unjudged: Readonly<Partial<Record<HistoryCheckId, number>>>;
  readonly run: { readonly name: string; readonly seed: string; readonly lines: number };
  readonly wildness: Wildness;
  readonly demands: readonly { readonly name: string; readonly atLeast: number; readonly found: number }[];
}

export interface HistoryOptions {
  readonly demands?: readonly Demand[];
  readonly signal?: AbortSignal;
  /** Most rows that one statement starts from. */
  readonly stepRowsMax?: number;
}

/**
 * @throws the file system's error; VerifyError when the database can't be read or has no such region; the signal's reason
 */
export async function checkHistory(
  url: string,
  path: string,
  options: HistoryOptions = {},
): Promise<HistoryVerification> {
  const { demands = parseDemands(''), stepRowsMax = STEP_ROWS_MAX } = options;
  const tally = new Tally(historyCheckIds);
  const stories = await readStories(path, tally);
  const wild = { lostReplies: 0, expiriesDuringConfirm: 0, takeovers: 0 };
  const unjudged = new Map<HistoryCheckId, number>();
  if (stories.run !== null) {
    await using reader = openReader(url, CONNECTIONS, options.signal);
    const region = await findRegion(reader, stories.run.regionId);
    const each = eachRange(reader, region, stepRowsMax);
    const clock = new DatabaseClock(clockSteps(stories));
    await each('rides', (range) => readRequests({ reader, stories, clock }, range));
    const pass: HistoryPass = { reader, region, tally, stories, clock, unjudged, wild, ...onTheClock(stories, clock) };
    await checkKeys(pass);
    await each('offers', (range) => checkOffers(pass, range));
    checkAbsentOffers(pass);
    await each('rides', (range) => checkRides(pass, range));
    checkAbsentRides(pass);
    await each('driver_state', (range) => checkDrivers(pass, range));
  }
  return summarise(tally, stories, { unjudged, wildness: wildnessOf(stories, wild), demands });
}

async function findRegion(reader: Reader, id: string): Promise<number> {
  const [region] = await reader.ask<{ number: number }>('select number from regions where id = $1::text', [id]);
  if (region === undefined)
    throw new VerifyError('region_not_found', `this database has no region ${id}: it isn’t the one of this history`);
  return region.number;
}

const keys = { rides: ['id', 'uuid'], offers: ['id', 'uuid'], driver_state: ['driver_id', 'text'] } as const;

const eachRange =
  (reader: Reader, region: number, stepRowsMax: number) =>
  (table: keyof typeof keys, step: (range: Range) => Promise<void>): Promise<void> => {
    const [key, type] = keys[table];
    return walk({ reader, over: wholeOf(region), table, key, type, stepRowsMax, connections: CONNECTIONS }, step);
  };

const isClockFault = ({ name }: { name: string }): boolean => name.includes('clock');

/** The moments at which the clock was set and set back, on the monotonic clock. */
const clockSteps = ({ faults }: Pick<Stories, 'faults'>): Interval[] =>
  faults
    .filter(isClockFault)
    .flatMap(({ atMs, healedAtMs }) =>
      [atMs, ...(healedAtMs === null ? [] : [healedAtMs])].map((setMs) => ({ fromMs: setMs, toMs: setMs + STEP_MS })),
    );

/** The run, its faults and what they left behind, on the database's clock. */
function onTheClock(
  { run, endedAtMs, faults }: Stories,
  clock: DatabaseClock,
): Pick<HistoryPass, 'scope' | 'faults' | 'steps'> {
  const [start, end] = [clock.around(run!.atMs), clock.around(endedAtMs)];
  if (start === null || end === null) return { scope: null, faults: [], steps: [] };
  const widest = (fromMs: number, toMs: number): Interval => ({
    fromMs: fromMs + clock.around(fromMs)!.lowMs,
    toMs: toMs + clock.around(toMs)!.highMs,
  });
  return {
    scope: { fromMs: run!.atMs + start.highMs, toMs: endedAtMs + end.lowMs },
    faults: faults.map(({ atMs, healedAtMs }) => widest(atMs, (healedAtMs ?? atMs) + RECOVERY_MS)),
    steps: clockSteps({ faults }).map(({ fromMs, toMs }) => widest(fromMs, toMs)),
  };
}

async function checkDrivers({ reader, tally }: HistoryPass, range: Range): Promise<void> {
  const rows = await reader.ask<{ driverId: string; status: string }>(
    `select driver_id as "driverId", status from driver_state where ${inRange('driver_id', 'text')}`,
    paramsOf(range),
  );
  for (const { driverId, status } of rows)
    tally.judge('H8c', status !== 'leased', () => `driver ${driverId} is leased`);
}

function summarise(
  tally: Tally<HistoryCheckId>,
  { run, counts: { lines } }: Stories,
  found: { unjudged: ReadonlyMap<HistoryCheckId, number>; wildness: Wildness; demands: readonly Demand[] },
): HistoryVerification {
  const invariants = resultsOf(tally, historyCheckTitles);
  return {
    checked: tally.checked,
    violations: invariants.reduce((sum, { violations }) => sum + violations, 0),
    invariants,
    unjudged: Object.fromEntries(found.unjudged),
    run: { name: run?.name ?? '', seed: run?.seed ?? '', lines },
    wildness: found.wildness,
    demands: found.demands.map(([name, atLeast]) => ({ name, atLeast, found: found.wildness[name] })),
  };
}

export const isTooTame = ({ demands }: HistoryVerification): boolean =>
  demands.some(({ atLeast, found }) => found < atLeast);
