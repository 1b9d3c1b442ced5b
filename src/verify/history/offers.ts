/** What was asked and shown about each term, beside its record. */
import { inRange, lookUp, paramsOf, type Range } from '../reader.ts';
import type { Asks } from './asks.ts';
import { uncoveredMs } from './clock.ts';
import { canJudge, isInRun, millis, SWEEP_GRACE_MS, type HistoryPass } from './pass.ts';
import type { OfferStory, Showing } from './stories.ts';

interface OfferRow {
  readonly id: string;
  readonly rideId: string;
  readonly driverId: string;
  readonly fence: number;
  readonly status: string;
  /** SHA-256, as in a history. */
  readonly token: string;
  readonly proof: string | null;
  readonly grantedMs: number;
  readonly receivedMs: number | null;
  readonly expiresMs: number;
  readonly endedMs: number | null;
  /** Of its assignment. */
  readonly assignedRideId: string | null;
  readonly assignedDriverId: string | null;
  readonly assignedFence: number | null;
  readonly assignedMs: number | null;
}

const offersSql = `
select o.id::text, o.ride_id::text as "rideId", o.driver_id as "driverId", o.fence::float8, o.status,
  encode(o.token_hash, 'hex') as token, encode(o.proof, 'hex') as proof,
  ${millis('o.granted_at')} as "grantedMs", ${millis('coalesce(o.received_at, d.lease_received_at)')} as "receivedMs",
  ${millis('o.expires_at')} as "expiresMs", ${millis('o.ended_at')} as "endedMs",
  a.ride_id::text as "assignedRideId", a.driver_id as "assignedDriverId", a.fence::float8 as "assignedFence",
  ${millis('a.assigned_at')} as "assignedMs"
from (select * from offers where ${inRange('id', 'uuid')}) o
left join (select distinct on (offer_id) * from assignments where ${inRange('offer_id', 'uuid')} order by offer_id) a
  on a.offer_id = o.id
${lookUp('driver_state', 'd', 'driver_id = o.driver_id and offer_id = o.id and o.due_at is not null')}`;

export async function checkOffers(pass: HistoryPass, range: Range): Promise<void> {
  for (const row of await pass.reader.ask<OfferRow>(offersSql, paramsOf(range))) {
    const story = pass.stories.offers.get(row.id) ?? null;
    pass.stories.offers.delete(row.id);
    judgeSecrecy(pass, row);
    judgeLeftOver(pass, row);
    judgeSweep(pass, row);
    judgeAskedFor(pass, row, story);
    judgeReached(pass, row, story);
    if (story === null) continue;
    for (const asks of story.asks) judgeAsks(pass, row, asks);
    for (const showing of story.shown) judgeShowing(pass, row, showing);
    if (story.grant !== null) judgeGrant(pass, row, story.grant);
  }
}

/** What clients heard of offers that aren't recorded. To be called when all offers were looked at. */
export function checkAbsentOffers({ tally, stories }: HistoryPass): void {
  for (const [id, { asks, grant, shown }] of stories.offers) {
    for (const each of asks) {
      if (each.isDone)
        tally.judge(
          each.command === 'confirm' ? 'H2a' : 'H2b',
          false,
          () => `${each.toString()}: there is no offer ${id}`,
        );
    }
    if (grant?.isDone === true) tally.judge('H2c', false, () => `${grant.toString()}: there is no offer ${id}`);
    for (const { client } of shown)
      tally.judge('H7a', false, () => `${client} was shown offer ${id}, which isn’t there`);
  }
  stories.offers.clear();
}

const nameOf = ({ id, status, rideId, driverId, fence }: OfferRow): string =>
  `offer ${id} (${status}, ride ${rideId}, driver ${driverId}, fence ${fence})`;

/** How a term ends that is asked to. */
const endings: Readonly<Partial<Record<Asks['command'], string>>> = {
  confirm: 'accepted',
  decline: 'declined',
  release: 'withdrawn',
};

const isLapsed = ({ status }: OfferRow): boolean => status === 'expired' || status === 'undeliverable';
/** By a policy that doesn't ask, or by an operator: confirmed by the transaction that granted it. */
const isAssignedAtOnce = ({ status, endedMs, grantedMs }: OfferRow): boolean =>
  status === 'accepted' && endedMs === grantedMs;

/** When it was done by this token; null: it wasn't. */
function doneAtMs(row: OfferRow, { command, who }: Asks): number | null {
  if (row.token !== who) return null;
  if (command === 'received') return row.receivedMs;
  return row.status === endings[command] && row.proof === who ? row.endedMs : null;
}

function judgeAsks(pass: HistoryPass, row: OfferRow, asks: Asks): void {
  const { tally } = pass;
  const doneMs = doneAtMs(row, asks);
  const example = (what: string) => () => `${nameOf(row)}: ${asks.toString()} ${what}`;
  if (asks.command === 'received') {
    if (asks.isDone) tally.judge('H2b', doneMs !== null, example('was acknowledged, and it wasn’t received'));
    tally.judge('H4c', asks.neverAtMs > asks.lastDoneAskedMs, example(`was granted after ${asks.neverCode}`));
  } else {
    if (asks.command !== 'confirm' && asks.isDone) {
      tally.judge('H2b', doneMs !== null, example('was acknowledged, and isn’t how the term ended'));
    }
    const isNever = asks.neverCode !== null && !isRevived(pass, asks);
    if (isNever && !asks.isDone)
      tally.judge('H3a', doneMs === null, example(`was refused (${asks.neverCode}), and was done`));
    tally.judge('H4a', !(isNever && asks.isDone), example(`was granted, and refused (${asks.neverCode})`));
  }
  if (asks.command === 'confirm') judgeConfirm(pass, row, asks, doneMs);
  if (doneMs !== null) countLostReply(pass, asks, doneMs);
}

/** A term that a clock which was ahead called over, and that lives again since the clock was put back: not promised. */
function isRevived(pass: HistoryPass, asks: Asks): boolean {
  const toMs = asks.isDone ? Math.max(asks.triedToMs, asks.doneAtMs) : asks.triedToMs;
  if (asks.neverCode !== 'lease_expired' || !pass.clock.wasSet(asks.triedFromMs, toMs)) return false;
  canJudge(pass, 'H4a', null);
  return true;
}

function judgeConfirm(pass: HistoryPass, row: OfferRow, asks: Asks, doneMs: number | null): void {
  const { tally, clock, wild } = pass;
  if (asks.isLost && isLapsed(row)) wild.takeovers++;
  if (!asks.isDone) {
    if (isLapsed(row) && isUnderWayAt(pass, asks, row.expiresMs)) wild.expiriesDuringConfirm++;
    return;
  }
  tally.judge(
    'H2a',
    doneMs !== null && isAsTold(row, asks),
    () =>
      `${nameOf(row)}: ${asks.toString()} was acknowledged for ride ${asks.rideId}, driver ${asks.driverId}, fence ${asks.fence} at ${asks.assignedAt}`,
  );
  const bounds = clock.during(asks.firstAskedMs, asks.doneAtMs);
  if (!canJudge(pass, 'H6a', bounds)) return;
  const askedMs = asks.firstAskedMs + bounds.lowMs;
  tally.judge(
    'H6a',
    askedMs <= row.expiresMs,
    () =>
      `${nameOf(row)}: ${asks.toString()} was asked ${Math.round(askedMs - row.expiresMs)} ms or more after the term’s end, and acknowledged`,
  );
}

const isSame = (told: string | number | undefined, recorded: string | number | null): boolean =>
  told === undefined || told === recorded;

/** Answers tell times in milliseconds. */
const isSameMoment = (told: string | undefined, recordedMs: number | null): boolean =>
  told === undefined || (recordedMs !== null && Math.abs(Date.parse(told) - recordedMs) <= 1);

const isAsTold = (row: OfferRow, { rideId, driverId, fence, assignedAt }: Asks): boolean =>
  row.assignedMs !== null &&
  isSame(rideId, row.assignedRideId) &&
  isSame(driverId, row.assignedDriverId) &&
  isSame(fence, row.assignedFence) &&
  isSameMoment(assignedAt, row.assignedMs);

function isUnderWayAt({ clock }: HistoryPass, asks: Asks, atMs: number): boolean {
  const bounds = clock.around(asks.triedFromMs);
  return bounds !== null && asks.triedFromMs + bounds.highMs <= atMs && asks.triedToMs + bounds.lowMs >= atMs;
}

/** Asks without answer, of which the first surely did it: before any that was answered was asked. */
export function countLostReply({ clock, wild }: HistoryPass, asks: Asks, doneMs: number): void {
  if (asks.unknown === 0) return;
  if (asks.isDone) {
    const bounds = clock.during(asks.doneAskedMs, asks.doneAtMs);
    if (bounds === null || doneMs >= asks.doneAskedMs + bounds.lowMs) return;
  }
  wild.lostReplies++;
}

function judgeGrant({ tally }: HistoryPass, row: OfferRow, grant: Asks): void {
  const { rideId, driverId, fence, token } = grant;
  const holds =
    isSame(rideId, row.rideId) &&
    isSame(driverId, row.driverId) &&
    isSame(fence, row.fence) &&
    isSame(token, row.token);
  tally.judge(
    'H2c',
    holds,
    () => `${nameOf(row)}: ${grant.toString()} was told ride ${rideId}, driver ${driverId}, fence ${fence}`,
  );
}

function judgeAskedFor(pass: HistoryPass, row: OfferRow, story: OfferStory | null): void {
  if (row.proof === null || isAssignedAtOnce(row)) return;
  const isOurs = isInRun(pass, row.grantedMs);
  if (!canJudge(pass, 'H5a', isOurs) || !isOurs) return;
  const isAskedFor = story?.asks.some(
    (asks) => asks.isAskedFor && endings[asks.command] === row.status && asks.who === row.token,
  );
  pass.tally.judge('H5a', isAskedFor === true, () => `${nameOf(row)}: nobody asked for that with its token`);
}

function judgeReached(pass: HistoryPass, row: OfferRow, story: OfferStory | null): void {
  if (row.receivedMs === null || isAssignedAtOnce(row)) return;
  const isOurs = isInRun(pass, row.grantedMs);
  if (!canJudge(pass, 'H7b', isOurs) || !isOurs) return;
  const isReached = story !== null && (story.shown.length > 0 || story.asks.length > 0 || story.grant !== null);
  pass.tally.judge('H7b', isReached, () => `${nameOf(row)}: was received, and nobody was shown it`);
}

function judgeShowing(
  { tally }: HistoryPass,
  row: OfferRow,
  { client, driverId, fence, token, isAssignment }: Showing,
): void {
  const holds =
    driverId === row.driverId &&
    isSame(fence, row.fence) &&
    isSame(token, row.token) &&
    (!isAssignment || row.assignedMs !== null);
  tally.judge(
    'H7a',
    holds,
    () =>
      `${nameOf(row)}: ${client} of driver ${driverId} was shown it with fence ${fence}${isAssignment ? ' as assigned' : ''}`,
  );
}

function judgeSecrecy({ tally, stories }: HistoryPass, { token }: OfferRow): void {
  const line = stories.suspects.get(token);
  if (line !== undefined) tally.judge('H1d', false, () => `line ${line}: shows the token of an offer`);
}

function judgeLeftOver({ tally }: HistoryPass, row: OfferRow): void {
  tally.judge('H8a', row.status !== 'pending', () => `${nameOf(row)}: is pending`);
}

function judgeSweep(pass: HistoryPass, row: OfferRow): void {
  if (!isLapsed(row) || row.endedMs === null) return;
  const isOurs = isInRun(pass, row.grantedMs);
  const lapse = { fromMs: row.expiresMs, toMs: row.endedMs };
  // Between two settings of which nobody asked anything the clock may have been anywhere: a time beyond the run's is from there.
  const isElsewhere = pass.steps.length > 0 && isInRun(pass, row.endedMs) !== true;
  const isSteady = !isElsewhere && pass.steps.every((step) => step.toMs < lapse.fromMs || step.fromMs > lapse.toMs);
  if (!canJudge(pass, 'H6b', isOurs === null || !isSteady ? null : isOurs) || isOurs !== true) return;
  const lateMs = uncoveredMs(lapse, pass.faults);
  const allowedMs = SWEEP_GRACE_MS + roundIntervalMsOf(pass);
  pass.tally.judge(
    'H6b',
    lateMs <= allowedMs,
    () =>
      `${nameOf(row)}: was freed ${Math.round(lapse.toMs - lapse.fromMs)} ms after its end, ${Math.round(lateMs)} of them without a fault`,
  );
}

/** Each round frees the leases of its region, too. */
const roundIntervalMsOf = ({ stories }: HistoryPass): number => Number(stories.run?.policy['roundIntervalMs'] ?? 0);
