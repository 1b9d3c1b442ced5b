/**
 * Most rides are plain: searched for, offered once, accepted, driven, done. One condition tells that nothing at all is wrong
 * with a ride of that kind, for a third of what the checks in detail take; all other rides are left to these. It has to be
 * sufficient, and no more: a plain ride that is taken for another costs time, and nothing else.
 */
import type { CheckId } from './catalog.ts';
import type { Source, Tally } from './checks.ts';
import { ruleCte, termColumns, terms } from './offers.ts';
import { inRange, paramsOf, type Params, type Range, type Reader } from './reader.ts';
import { matters, rides } from './rides.ts';
import { addSums, slicesOf, sumsSql, type Sums, type SumsRow } from './sums.ts';
import { micros } from './terms.ts';

const TRIP = 'offer_accepted driver_arrived ride_started ride_completed';
/** Who accepts an offer need not have said before that he received it. */
const STORIES = [`ride_requested offer_made ${TRIP}`, `ride_requested offer_made offer_received ${TRIP}`];

/** Checks of a live assignment, of an open ride, of an offer that nobody accepted: none of them looks at a plain ride. */
const NOT_OF_PLAIN: Readonly<Record<'rides' | 'matters' | 'terms', readonly CheckId[]>> = {
  rides: ['I1b', 'I6a', 'I6e'],
  matters: ['I4f'],
  terms: ['I4a'],
};
const idsOf = ({ checks }: Source, except: readonly CheckId[]): CheckId[] =>
  checks.map(({ id }) => id).filter((id) => !except.includes(id));
/** What each plain ride is counted for. */
const CHECKS: readonly CheckId[] = [
  ...idsOf(rides, NOT_OF_PLAIN.rides),
  ...idsOf(matters, NOT_OF_PLAIN.matters),
  ...idsOf(terms, NOT_OF_PLAIN.terms),
];

/** What an offer's checks in detail ask of it is asked here in the same words; that it is told (I4c) is seen from the events. */
const termHolds = terms.checks
  .filter(({ id }) => id !== 'I4c' && !NOT_OF_PLAIN.terms.includes(id))
  .map(({ holds }) => `(${holds})`);

/** Of a story's events: all but the first, the request, name the offer. */
const everAfter = (value: string): string =>
  `case s.events when 6 then array[null, ${Array(5).fill(value).join(', ')}] else array[null, ${Array(6).fill(value).join(', ')}] end`;

const IS_PLAIN = [
  ...termHolds,
  // The ride: its record …
  `r.status = 'completed' and r.event_seq = s.events and r.offers_made = 1 and r.live_offers = 0
    and r.assigned_driver_id = t.driver_id
    and num_nonnulls(r.queue_at, r.stalled_since, r.no_show_at, r.cancel_source, r.cancel_reason, r.cancel_phase) = 0
    and cardinality(r.excluded_driver_ids) + cardinality(r.excluded_as) + cardinality(r.excluded_at) = 0`,
  // … its events …
  `s.types in (${STORIES.map((story) => `'${story}'`).join(', ')}) and s.reasons = 0
    and s.seqs = case s.events when 6 then '{1,2,3,4,5,6}' else '{1,2,3,4,5,6,7}' end::int[]
    and s.offer_ids = ${everAfter('t.id')} and s.driver_ids = ${everAfter('t.driver_id')} and s.fences = ${everAfter('t.fence')}`,
  // … and when they were. The acceptance is the fourth from the end.
  `r.requested_at = s.times[1] and s.times[1] <= s.times[2] and s.times[2] <= s.times[3]
    and s.times[3] <= s.times[s.events - 3] and s.times[s.events - 3] <= s.times[s.events - 2]
    and s.times[s.events - 2] <= s.times[s.events - 1] and s.times[s.events - 1] <= s.times[s.events]
    and s.times[s.events] = r.ended_at and r.ended_at <= r.updated_at`,
  // The only offer, which was accepted.
  `t.ride_id = r.id and t.status = 'accepted' and t.end_reason is null and t.search_try = 1
    and p.offers_max >= 1 and p.parallel_offers >= 1
    and t.granted_at = s.times[2] and t.received_at = s.times[3] and t.ended_at = s.times[s.events - 3]`,
  `t.assignment_ended_at = r.ended_at and t.ended_as = 'completed'`,
  // Nothing else is under way for it.
  'open.ride_id is null',
].join('\n and ');

/**
 * The rows of another table whose keys are those of offers, up to the last that is asked for, with all copies of each. They are
 * read in the order of their keys from where the rides' own begin: both are made in the order of time, so a ride's offer is soon
 * after it. A ride whose offer isn't found there is none of the plain ones.
 */
const nearby = (table: string, key: string): string => `(
  select * from ${table} where region = $1::int2 and ($2::uuid is null or ${key} > $2::uuid)
    and ${key} <= (select assigned_offer_id from ride where assigned_offer_id is not null order by assigned_offer_id desc limit 1)
  order by ${key} fetch first (select 2 * count(*) + 1000 from ride) rows with ties)`;

const added = sumsSql(3);

/**
 * Of each offer one assignment is assumed. Where any row is there twice, so is its ride: then all of the step are left to the
 * checks in detail.
 */
const plainSql = `
with ${ruleCte},
ride as materialized (
  select id, status, requested_at, queue_at, stalled_since, no_show_at, cancel_source, cancel_reason, cancel_phase, event_seq,
    offers_made, live_offers, assigned_offer_id, assigned_driver_id, excluded_driver_ids, excluded_as, excluded_at, ended_at, updated_at
  from rides where ${inRange('id', 'uuid')}),
story as (
  select ride_id, count(*)::int as events, string_agg(type, ' ') as types, array_agg(seq) as seqs, array_agg(at) as times,
    array_agg(offer_id) as offer_ids, array_agg(driver_id) as driver_ids, array_agg(fence) as fences, count(reason) as reasons
  from (select ride_id, seq, type, at, offer_id, driver_id, fence, reason from ride_events
    where ${inRange('ride_id', 'uuid')} order by ride_id, seq offset 0) told
  group by ride_id),
term as (
  select ${termColumns} from ${nearby('offers', 'id')} o
  left join (select *, 1 as copies, 1 as nth, ended_at as freed_at from ${nearby('assignments', 'offer_id')} only_one) a on a.offer_id = o.id),
judged as materialized (
  select coalesce(r.id, s.ride_id) as ride_id, s.events, t.id, t.driver_id, t.fence, t.status, t.granted_at, t.expires_at, t.ended_at,
    1 as assignments, t.freed_at as free_at, (${IS_PLAIN}) is true as is_plain
  from ride r full join story s on s.ride_id = r.id
  left join term t on t.id = r.assigned_offer_id
  left join (select ride_id from offers where ${inRange('ride_id', 'uuid')} and due_at is not null union
    select ride_id from assignments where ${inRange('ride_id', 'uuid')} and ended_at is null) open on open.ride_id = r.id
  left join rule p on p.version = t.policy_version),
single as (select count(*) = count(distinct ride_id) as is_single from judged),
held as materialized (select * from judged where is_plain and (select is_single from single)),
${added.ctes}
select ${added.columns},
  (select array_agg(distinct ride_id::text) from judged where not (is_plain and (select is_single from single))) as others,
  (select count(*) from held)::float8 as plain, (select coalesce(sum(events), 0) from held)::float8 as events,
  (select coalesce(sum(${micros('ended_at - granted_at')}), 0) from held)::float8 as held`;

interface PlainRow extends SumsRow {
  readonly others: readonly string[] | null;
  readonly plain: number;
  readonly events: number;
  readonly held: number;
}

/** Counts the plain rides of a range, and their offers. Returns the ids of all others. */
export async function checkPlainRides(
  reader: Reader,
  tally: Tally,
  sums: Sums,
  range: Range,
): Promise<readonly string[]> {
  const params: Params = [...paramsOf(range), ...slicesOf(sums)];
  const [row] = await reader.ask<PlainRow>(plainSql, params);
  const { others, plain, events, held } = row!;
  for (const id of CHECKS) tally.count(id, plain, 0, []);
  tally.addFact('rides.completed', plain);
  tally.addFact('everAssigned', plain);
  tally.addFact('events', events);
  tally.addFact('offers.accepted', plain);
  tally.addFact('heldMicroseconds.accepted', held);
  tally.addFact('assignments.completed', plain);
  addSums(sums, row!);
  return others ?? [];
}
