/**
 * What a ride's record, its events and its offers say of each other: the rides and events of some ride ids. Offers have no
 * index by ride, so they are reached through the events that name them.
 *
 * A story is written in letters, one for each event, so that a legal order is a regular expression. Capitals are
 * turns: events that leave the ride in another status.
 */
import type { RideEventType } from '../records.ts';
import type { Source, Tally } from './checks.ts';
import { eachAssignment, heldCte, ruleCte, termColumns, terms } from './offers.ts';
import { isAmong, lookUp, type Reader } from './reader.ts';
import { GRACE, type SignsOfLife } from './signs-of-life.ts';
import { checkAndAddUp, type Sums } from './sums.ts';

const letters = {
  ride_requested: 'R',
  offer_made: 'm',
  offer_received: 'r',
  offer_declined: 'd',
  offer_expired: 'e',
  offer_withdrawn: 'w',
  offer_undeliverable: 'u',
  offer_accepted: 'A',
  driver_arrived: 'T',
  ride_started: 'S',
  ride_completed: 'C',
  ride_cancelled: 'X',
  driver_cancelled: 'G',
  driver_unassigned: 'U',
  no_drivers_available: 'N',
  exclusions_lifted: 'l',
  rescue_needed: 'h',
  ride_held: 'k',
  ride_released: 'f',
  pickup_stalled: 's',
  pickup_resumed: 'n',
} as const satisfies Record<RideEventType, string>;

/** What a ride's search ended with. */
const UNSERVED = [
  'nobody_near',
  'taken',
  'vehicle_class',
  'seats',
  'attributes',
  'blocked',
  'cancelled',
  'declined',
  'lapsed',
  'pickup_too_far',
  'shift_ends',
  'offers_used_up',
] as const;

/**
 * Searching, then trips that were given back and searched again, then perhaps an end or a trip. An acceptance withdraws the
 * other offers; a driver on the way may stop coming nearer, and do so again.
 */
const LEGAL_RIDE = '^R[mrdewulhkf]*(Aw*(sn)*s?T?[GU][mrdewulhkf]*)*(N|X|Aw*(sn)*s?(X|T(X|SC?)?)?)?$';
/** Made, perhaps received, ended at most once; after an acceptance the trip. */
const LEGAL_OFFER = '^mr?([dewu]|A(sn)*s?(X|G|U|T(X|G|U|SC?)?)?)?$';
/** Taken from a driver who had it, because a better one was found. */
const IS_REPLACED = `letter = 'U' and reason = 'system:replaced'`;
const NO_TURNS = Object.values(letters)
  .filter((letter) => letter >= 'a')
  .join('');
/** An offer's end, and the end of the trip that an acceptance led to. */
const ENDED = 'Adewu';
const isEnd = `strpos('${ENDED}', letter) > 0`;
const isTripEnd = `letter in ('C', 'X', 'G', 'U')`;

const cases = (value: string, of: Readonly<Record<string, string>>): string =>
  `case ${value} ${Object.entries(of)
    .map(([when, then]) => `when '${when}' then '${then}'`)
    .join(' ')} end`;

/** A story as people read it. */
const typesOf = (story: string): string => `(
  select string_agg(coalesce(${cases('letter', Object.fromEntries(Object.entries(letters).map(([type, letter]) => [letter, type])))},
    'unknown'), ', ') from string_to_table(${story}, null) letter)`;

/** The status after the event that a letter stands for. */
const statusOf = (letter: string): string =>
  cases(letter, {
    R: 'searching',
    G: 'searching',
    U: 'searching',
    A: 'assigned',
    T: 'driver_arrived',
    S: 'in_progress',
    C: 'completed',
    X: 'cancelled',
    N: 'no_drivers_available',
  });

/** How many of some letters are in a story, or in the part of it that led to an event. */
const countOf = (some: string, story: string): string =>
  `(length(${story}) - length(translate(${story}, '${some}', '')))`;
const MADE = 'm';
const OPEN_OFFERS = `(${countOf(MADE, 'm.story_made')} - ${countOf(ENDED, 'm.story_made')})`;
/** A ride that was given back is searched for anew. */
const tryOf = (story: string): string => `(1 + ${countOf('GU', story)})`;
/** A ride is held when none of its offers is out: from one hold to the next, as many end as are made. */
const IS_HELD_BARE = `(position('k' in s.letters) = 0 or (
  select coalesce(bool_and(${countOf(MADE, 'between')} = ${countOf(ENDED, 'between')}), true)
  from string_to_table(regexp_replace(s.letters, 'k[^k]*$', ''), 'k') between))`;

/**
 * told: the events. story: all of a ride's. deed: all about one offer. about: the offers and assignments that deeds are about.
 * term: those of them that are of the ride that tells of them. matter: deeds with what they are about. An event's number is
 * its place in the story, unless the numbers are wrong, and that is found (I7a).
 */
const ctes = `
ride as materialized (
  select id, status, policy_version, requested_at, patience_until, rescue_until, no_show_at, held_until, stalled_since,
    cardinality(array_positions(excluded_as, 'replaced')) as replaced,
    cardinality(excluded_driver_ids) = cardinality(excluded_as) and cardinality(excluded_as) = cardinality(excluded_at) as is_listed,
    queue_at, live_offers, offers_made, assigned_driver_id,
    assigned_offer_id, ended_at, cancel_source, cancel_reason, cancel_phase, event_seq, updated_at,
    count(*) over (partition by id) as copies
  from rides where ${isAmong('id')}),
told as materialized (
  select *, ascii(letter) < 97 as is_turn, ${isEnd} as is_end, ${isTripEnd} as is_trip_end
  from (select ride_id, seq, type, at, driver_id, offer_id, fence, reason, coalesce(${cases('type', letters)}, '?') as letter
    from ride_events where ${isAmong('ride_id')} order by ride_id, seq offset 0) lettered
  order by ride_id, seq),
story as materialized (
  select ride_id, count(*) as events, string_agg(letter, '' order by seq) as letters,
    translate(string_agg(letter, '' order by seq), '${NO_TURNS}', '') as turns,
    min(seq) = 1 and max(seq) = count(*) and count(distinct seq) = count(*) as is_numbered,
    array_agg(at order by seq) as times, array_agg(at order by at) as times_in_order,
    bool_and(letter in ('R', 'N', 'X', 'l', 'h', 'k', 'f')
      or offer_id is not null and driver_id is not null and fence is not null) as is_named,
    array_agg(seq) filter (where ${IS_REPLACED}) as replaced_at, max(seq) filter (where is_turn) as turn_seq
  from told group by ride_id),
deed as materialized (
  select ride_id, offer_id, string_agg(letter, '' order by seq) as letters,
    min(driver_id) as driver_id, min(fence) as fence,
    min(driver_id) = max(driver_id) and min(fence) = max(fence)
      and count(driver_id) = count(*) and count(fence) = count(*) as is_one_term,
    min(at) filter (where letter = 'm') as made_at, max(seq) filter (where letter = 'm') as made_seq,
    max(seq) filter (where letter = 'A') as accepted_seq,
    min(at) filter (where letter = 'r') as received_at,
    min(type) filter (where is_end) as end_type, min(seq) filter (where is_end) as end_seq,
    min(at) filter (where is_end) as end_at, min(reason) filter (where is_end) as end_reason,
    min(type) filter (where is_trip_end) as trip_end_type, min(at) filter (where is_trip_end) as trip_end_at
  from told where offer_id is not null group by ride_id, offer_id),
about as materialized (
  select ${termColumns}, e.ride_id as told_of, e.offer_id as told_as, e.made_at is not null as is_told
  from deed e ${lookUp('offers', 'o', 'id = e.offer_id')}
  left join lateral (select ${eachAssignment} from assignments where region = $1::int2 and offer_id = e.offer_id
    window w as () offset 0) a on true),
term as (select * from about where ride_id = told_of),
matter as materialized (
  select e.*, left(s.letters, e.made_seq::int) as story_made, left(s.letters, e.accepted_seq::int) as story_accepted,
    left(s.letters, e.end_seq::int) as story_ended, substr(s.letters, e.end_seq::int) as story_since_end,
    t.id, t.ride_id as offer_ride_id, t.driver_id as offer_driver_id, t.fence as offer_fence, t.status,
    t.proof, t.granted_at, t.received_at as offer_received_at, t.ended_at, t.end_reason as offer_end_reason,
    t.policy_version, t.search_try, t.assigned_id as assigned_offer_id, t.assigned_at, t.assignment_ended_at,
    t.ended_as as assignment_ended_as,
    lag(t.assigned_id) over w as assigned_offer_before, lag(t.assignment_ended_at) over w as assignment_ended_before
  from deed e join story s on s.ride_id = e.ride_id
  join about t on t.told_of = e.ride_id and t.told_as = e.offer_id
  window w as (partition by e.ride_id, t.assigned_id is null order by t.assigned_at, t.assigned_id)),
${heldCte},
${ruleCte}`;

export const rides: Source = {
  name: `format('ride %s (%s)', coalesce(r.id, s.ride_id), coalesce(r.status, 'absent'))`,
  from: `ride r full join story s on s.ride_id = r.id
    ${lookUp('ride_events', 'turn', 'ride_id = s.ride_id and seq = s.turn_seq')}
    left join (select ride_id, count(*) as pending from offers
      where ${isAmong('ride_id')} and due_at is not null group by ride_id) o on o.ride_id = coalesce(r.id, s.ride_id)
    left join (select ride_id, count(*) as live, min(offer_id::text) as offer_id, min(driver_id) as driver_id
      from assignments where ${isAmong('ride_id')} and ended_at is null group by ride_id) a
      on a.ride_id = coalesce(r.id, s.ride_id)
    left join rule p on p.version = r.policy_version`,
  checks: [
    { id: 'I1b', of: 'a.live is not null', holds: 'a.live = 1', shows: `a.live || ' live assignments'` },
    {
      id: 'I1e',
      of: 'r.id is not null',
      holds: `r.is_listed and r.live_offers = coalesce(o.pending, 0) and r.offers_made = coalesce(${countOf(MADE, 's.letters')}, 0)`,
      shows: `format('counts %s of %s pending offers, %s of %s in all, exclusions %s', r.live_offers, coalesce(o.pending, 0),
        r.offers_made, coalesce(${countOf(MADE, 's.letters')}, 0), case when r.is_listed then 'listed' else 'of unequal lengths' end)`,
    },
    {
      id: 'I1f',
      of: 'r.id is not null and s.ride_id is not null',
      holds: `coalesce(cardinality(s.replaced_at), 0) = r.replaced
        and (s.replaced_at is null or cardinality(s.replaced_at) = 1 and substr(s.letters, s.replaced_at[1] + 1, 1) = 'm')`,
      shows: `format('%s drivers replaced by the events, %s by the exclusions', coalesce(cardinality(s.replaced_at), 0), r.replaced)`,
    },
    {
      id: 'I4h',
      of: 'r.id is not null and s.ride_id is not null',
      holds: `${IS_HELD_BARE} and (r.status <> 'searching' or (r.held_until is not null) = (s.letters ~ 'k[^fGU]*$'))
        and (r.stalled_since is not null) = (s.letters ~ 's$')`,
      shows: `format('held until %s, stalled since %s; %s', r.held_until, r.stalled_since, ${typesOf('s.letters')})`,
    },
    { id: 'I4d', of: 's.ride_id is not null', holds: 's.is_named', shows: `'an event without offer, driver or fence'` },
    {
      id: 'I6a',
      of: `r.status = 'searching'`,
      holds: `greatest(r.patience_until, r.rescue_until, $3::text::timestamptz) + coalesce(p.lifetime + p.retry_max + p.recovery, '0 s')
        + '${GRACE}' >= $4::text::timestamptz`,
      shows: `format('patience ended %s', r.patience_until)`,
    },
    {
      id: 'I6b',
      of: 'r.id is not null',
      holds: `case when r.status = 'searching' then r.queue_at is not null or o.pending > 0 else r.queue_at is null end`,
      shows: `format('queued for %s, %s pending offers', r.queue_at, coalesce(o.pending, 0))`,
    },
    {
      id: 'I6c',
      of: `r.status in ('completed', 'cancelled', 'no_drivers_available')`,
      holds: 'o.pending is null and a.live is null',
      shows: `format('%s pending offers, %s live assignments', coalesce(o.pending, 0), coalesce(a.live, 0))`,
    },
    {
      id: 'I6e',
      of: `r.status in ('searching', 'assigned', 'driver_arrived', 'in_progress')`,
      holds: `case when r.status = 'searching' then a.live is null
        else o.pending is null and a.live = 1 and a.offer_id = r.assigned_offer_id::text and a.driver_id = r.assigned_driver_id end`,
      shows: `format('assigned to %s, %s live assignments, %s pending offers', coalesce(r.assigned_driver_id, 'nobody'),
        coalesce(a.live, 0), coalesce(o.pending, 0))`,
    },
    {
      id: 'I6g',
      of: 'r.id is not null',
      holds: `r.status = ${statusOf('right(s.turns, 1)')}
        and r.ended_at is not distinct from
          case when r.status in ('completed', 'cancelled', 'no_drivers_available') then turn.at end
        and r.assigned_offer_id is not distinct from case when r.status <> 'searching' then turn.offer_id end
        and r.assigned_driver_id is not distinct from case when r.status <> 'searching' then turn.driver_id end
        and (r.no_show_at is null or r.status = 'driver_arrived')
        and case when r.status = 'cancelled'
          then turn.reason = r.cancel_source || ':' || r.cancel_reason
            and r.cancel_phase = ${statusOf('right(left(s.turns, -1), 1)')}
          else num_nonnulls(r.cancel_source, r.cancel_reason, r.cancel_phase) = 0 end`,
      shows: `format('ended %s, assigned to %s; last %s %s', r.ended_at, coalesce(r.assigned_driver_id, 'nobody'), turn.type, turn.at)`,
    },
    {
      id: 'I7a',
      holds: 'r.copies = 1 and s.is_numbered and s.events = r.event_seq',
      shows: `format('%s events, event_seq %s', coalesce(s.events, 0), r.event_seq)`,
    },
    {
      id: 'I7b',
      of: 's.ride_id is not null and r.id is not null',
      holds: `s.times = s.times_in_order and s.times[1] = r.requested_at and s.times[s.events] <= r.updated_at`,
      shows: `format('requested %s, events from %s to %s, last changed %s', r.requested_at, s.times[1], s.times[s.events], r.updated_at)`,
    },
    {
      id: 'I7c',
      of: 's.ride_id is not null',
      holds: `s.letters ~ '${LEGAL_RIDE}'`,
      shows: typesOf('s.letters'),
    },
  ],
  facts: {
    ...Object.fromEntries(
      ['searching', 'assigned', 'driver_arrived', 'in_progress', 'completed', 'cancelled', 'no_drivers_available'].map(
        (status) => [`rides.${status}`, `(r.status is not distinct from '${status}')::int`],
      ),
    ),
    ...Object.fromEntries(
      UNSERVED.map((reason) => [
        `unserved.${reason}`,
        `(turn.type is not distinct from 'no_drivers_available' and turn.reason = '${reason}')::int`,
      ]),
    ),
    everAssigned: `coalesce(position('A' in s.letters) > 0, false)::int`,
    events: 'coalesce(s.events, 0)',
  },
};

export const matters: Source = {
  name: `format('offer %s (%s, ride %s, driver %s, fence %s)', m.offer_id, coalesce(m.status, 'absent'), m.ride_id, m.driver_id, m.fence)`,
  from: `matter m left join rule p on p.version = m.policy_version
    left join ride r on r.id = m.ride_id`,
  checks: [
    {
      id: 'I1b',
      of: 'm.assigned_offer_id is not null',
      holds: 'm.assigned_offer_before is null or m.assigned_at >= m.assignment_ended_before',
      shows: `format('assigned %s, the one of offer %s ended %s', m.assigned_at, m.assigned_offer_before,
        coalesce(m.assignment_ended_before::text, 'not yet'))`,
    },
    {
      id: 'I1d',
      of: 'm.made_at is not null and p.version is not null',
      // A search that has escalated by then may have more out at a time.
      // Whoever assigns by hand isn't bound by their number.
      holds: `(${countOf(MADE, 'm.story_made')} <= p.offers_max or m.end_type = 'offer_accepted' and m.end_at = m.made_at) and ${OPEN_OFFERS} <= case
          when ${countOf(MADE, 'm.story_made')} - 1 >= p.escalate_after_offers or m.made_at - r.requested_at >= p.escalate_after - interval '1 ms'
          then greatest(p.parallel_offers, p.escalated_parallel_offers) else p.parallel_offers end`,
      shows: `format('number %s of the ride, %s open; its policy allows %s and %s', ${countOf(MADE, 'm.story_made')}, ${OPEN_OFFERS},
        p.offers_max, p.parallel_offers)`,
    },
    {
      id: 'I4b',
      holds: `m.letters ~ '${LEGAL_OFFER}'`,
      shows: typesOf('m.letters'),
    },
    {
      id: 'I4c',
      holds: `m.offer_ride_id = m.ride_id and m.granted_at = m.made_at
        and m.end_type is not distinct from case when m.status <> 'pending' then 'offer_' || m.status end
        and m.ended_at is not distinct from m.end_at and m.offer_end_reason is not distinct from m.end_reason
        and m.offer_received_at is not distinct from case m.status
          when 'pending' then null when 'accepted' then coalesce(m.received_at, m.end_at) else m.received_at end`,
      shows: `format('granted %s, received %s, ended %s; told: made %s, received %s, %s %s', m.granted_at, m.offer_received_at,
        m.ended_at, m.made_at, m.received_at, coalesce(m.end_type, 'not ended'), m.end_at)`,
    },
    {
      id: 'I4d',
      of: 'm.id is not null',
      holds: 'm.is_one_term and m.driver_id = m.offer_driver_id and m.fence = m.offer_fence',
      shows: `format('its own are driver %s, fence %s', m.offer_driver_id, m.offer_fence)`,
    },
    {
      id: 'I4f',
      of: `m.status = 'withdrawn' and m.proof is null and m.offer_end_reason in ('ride_cancelled', 'ride_taken', 'ride_held')`,
      holds: `case m.offer_end_reason when 'ride_taken' then m.story_ended ~ 'Aw+$'
        when 'ride_held' then m.story_since_end ~ '^w+k'
        else r.status = 'cancelled' and r.ended_at >= m.ended_at end`,
      shows: `format('withdrawn as %s, and the ride is %s', m.offer_end_reason, r.status)`,
    },
    {
      id: 'I4g',
      of: 'm.made_at is not null and m.id is not null',
      holds: `m.search_try = ${tryOf('m.story_made')} and (m.story_accepted is null or m.search_try = ${tryOf('m.story_accepted')})`,
      shows: `format('recorded for try %s, made in %s, accepted in %s', m.search_try, ${tryOf('m.story_made')}, ${tryOf('m.story_accepted')})`,
    },
    {
      id: 'I5a',
      of: `m.end_type = 'offer_accepted' or m.assigned_offer_id is not null`,
      holds: `m.end_type = 'offer_accepted' and m.assigned_at = m.end_at
        and m.assignment_ended_at is not distinct from m.trip_end_at
        and m.assignment_ended_as is not distinct from ${cases('m.trip_end_type', {
          ride_completed: 'completed',
          ride_cancelled: 'cancelled',
          driver_cancelled: 'driver_cancelled',
          driver_unassigned: 'unassigned',
        })}`,
      shows: `format('assigned %s, ended %s %s; told: accepted %s, %s %s', m.assigned_at, m.assignment_ended_as,
        m.assignment_ended_at, m.end_at, m.trip_end_type, m.trip_end_at)`,
    },
  ],
};

/** Checks these rides of a region, and the offers that their events name, in detail. */
export const checkRides = (
  reader: Reader,
  tally: Tally,
  sums: Sums,
  rideIds: readonly string[],
  { positionsSince, lastSignAt }: SignsOfLife,
): Promise<void> =>
  checkAndAddUp(reader, tally, sums, { ctes, sources: [rides, matters, terms] }, [
    sums.slices.region,
    rideIds,
    positionsSince,
    lastSignAt,
  ]);
