/** What was asked about each ride, beside its record and its events. */
import { inRange, paramsOf, type Range } from '../reader.ts';
import type { Asks } from './asks.ts';
import { countLostReply } from './offers.ts';
import { canJudge, isInRun, millis, RECOVERY_MS, type HistoryPass } from './pass.ts';
import type { RideStory } from './stories.ts';

interface RideRow {
  readonly id: string;
  readonly status: string;
  readonly cancelSource: string | null;
  readonly requestedMs: number;
  readonly searchedUntilMs: number;
  /** A search that is given up takes so much longer at most: an open offer, a round, positions that come again. */
  readonly givingUpMs: number;
  /** What was done to it, by type: who did it, when. */
  readonly deeds: readonly Deed[] | null;
}

interface Deed {
  readonly type: string;
  readonly driverId: string | null;
  readonly atMs: number;
}

/** The events that somebody asks for, by who asks. */
const deedsOf: Readonly<Partial<Record<Asks['command'], readonly string[]>>> = {
  arrive: ['driver_arrived'],
  start: ['ride_started'],
  complete: ['ride_completed'],
};
/** A driver who cancels gives the ride back. To ask for it after it was taken away is a repetition. */
const GIVEN_BACK = ['driver_cancelled', 'driver_unassigned'];
const CANCELLED = ['ride_cancelled'];
const typesAskedFor = ({ command, who }: Asks): readonly string[] =>
  command === 'cancel' ? (who === '' ? CANCELLED : GIVEN_BACK) : deedsOf[command]!;

const ridesSql = `
select r.id::text, r.status, r.cancel_source as "cancelSource", ${millis('r.requested_at')} as "requestedMs",
  ${millis('greatest(r.patience_until, r.rescue_until)')} as "searchedUntilMs",
  coalesce((p.document->>'maxLifetimeMs')::float8 + (p.document->>'retryMaxMs')::float8 + (p.document->>'positionStaleMs')::float8, 0) as "givingUpMs",
  e.deeds
from (select * from rides where ${inRange('id', 'uuid')}) r
left join policies p on p.region = r.region and p.version = r.policy_version
left join (
  select ride_id, jsonb_agg(jsonb_build_object('type', type, 'driverId', driver_id, 'atMs', ${millis('at')}) order by seq) as deeds
  from ride_events where ${inRange('ride_id', 'uuid')}
    and type in ('driver_arrived', 'ride_started', 'ride_completed', 'ride_cancelled', 'driver_cancelled', 'driver_unassigned')
  group by ride_id) e on e.ride_id = r.id`;

const requestsSql = `select id::text, ${millis('requested_at')} as "requestedMs" from rides where ${inRange('id', 'uuid')}`;

/** Tells the clock when acknowledged rides were recorded. */
export async function readRequests(
  { reader, stories, clock }: Pick<HistoryPass, 'reader' | 'stories' | 'clock'>,
  range: Range,
): Promise<void> {
  for (const { id, requestedMs } of await reader.ask<{ id: string; requestedMs: number }>(
    requestsSql,
    paramsOf(range),
  )) {
    const request = stories.rides.get(id)?.request;
    if (request?.isDone === true) clock.add(request.firstAskedMs, request.doneAtMs, requestedMs);
  }
}

export async function checkRides(pass: HistoryPass, range: Range): Promise<void> {
  for (const row of await pass.reader.ask<RideRow>(ridesSql, paramsOf(range))) {
    const story = pass.stories.rides.get(row.id) ?? null;
    pass.stories.rides.delete(row.id);
    judgeLeftOver(pass, row);
    judgeAskedFor(pass, row, story);
    if (story === null) continue;
    if (story.request !== null) {
      pass.tally.judge('H2c', true, () => '');
      countLostReply(pass, story.request, row.requestedMs);
    }
    for (const asks of story.asks) judgeAsks(pass, row, asks);
  }
}

/** What clients heard of rides that aren't recorded. To be called when all rides were looked at. */
export function checkAbsentRides({ tally, stories }: HistoryPass): void {
  for (const [id, { request, asks }] of stories.rides) {
    if (request?.isDone === true) tally.judge('H2c', false, () => `${request.toString()}: there is no ride ${id}`);
    for (const each of asks)
      if (each.isDone) tally.judge('H2d', false, () => `${each.toString()}: there is no ride ${id}`);
  }
  stories.rides.clear();
}

const nameOf = ({ id, status }: RideRow): string => `ride ${id} (${status})`;

function judgeAsks(pass: HistoryPass, row: RideRow, asks: Asks): void {
  const { tally } = pass;
  const deed = row.deeds?.find(
    ({ type, driverId }) => typesAskedFor(asks).includes(type) && (asks.who === '' || driverId === asks.who),
  );
  const example = (what: string) => () => `${nameOf(row)}: ${asks.toString()} ${what}`;
  if (asks.isDone) tally.judge('H2d', deed !== undefined, example('was acknowledged, and didn’t happen'));
  if (asks.command === 'cancel' && asks.who === '') {
    const isNever = asks.neverCode !== null;
    if (isNever && !asks.isDone)
      tally.judge('H3b', deed === undefined, example(`was refused (${asks.neverCode}), and happened`));
    tally.judge('H4a', !(isNever && asks.isDone), example(`was granted, and refused (${asks.neverCode})`));
  }
  if (deed !== undefined) countLostReply(pass, asks, deed.atMs);
}

function judgeAskedFor(pass: HistoryPass, row: RideRow, story: RideStory | null): void {
  const isOurs = isInRun(pass, row.requestedMs);
  if (!canJudge(pass, 'H5b', isOurs) || !isOurs) return;
  pass.tally.judge(
    'H5b',
    (story?.request ?? null) !== null || isFromUnknown(pass),
    () => `${nameOf(row)}: nobody requested it`,
  );
  for (const deed of row.deeds ?? []) {
    if (isInRun(pass, deed.atMs) !== true || isOwnDoing(deed, row)) continue;
    const isAskedFor = story?.asks.some(
      (asks) =>
        asks.isAskedFor && typesAskedFor(asks).includes(deed.type) && (asks.who === '' || asks.who === deed.driverId),
    );
    pass.tally.judge(
      'H5b',
      isAskedFor === true,
      () => `${nameOf(row)}: nobody asked for ${deed.type} by ${deed.driverId ?? 'its rider'}`,
    );
  }
}

/** What the service does by itself, or operators by calls that aren't in a history. */
const isOwnDoing = ({ type }: Deed, { cancelSource }: RideRow): boolean =>
  type === 'driver_unassigned' || (type === 'ride_cancelled' && cancelSource === 'system');

/** A request without key whose answer got lost made a ride that nobody can name: as many as there were are let through. */
function isFromUnknown({ stories }: HistoryPass): boolean {
  if (stories.unknownWithoutKey === 0) return false;
  stories.unknownWithoutKey--;
  return true;
}

function judgeLeftOver(pass: HistoryPass, row: RideRow): void {
  const { tally, clock, stories } = pass;
  const bounds = clock.around(stories.endedAtMs);
  if (!canJudge(pass, 'H8b', bounds)) return;
  const endMs = stories.endedAtMs + bounds.lowMs;
  const untilMs = row.searchedUntilMs + row.givingUpMs + RECOVERY_MS;
  tally.judge(
    'H8b',
    row.status !== 'searching' || untilMs >= endMs,
    () => `${nameOf(row)}: its patience ended ${Math.round(endMs - row.searchedUntilMs)} ms before the run did`,
  );
}
