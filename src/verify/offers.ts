/** What each lease term says of itself and of its assignment. */
import type { Source, Tally } from './checks.ts';
import { inRange, paramsOf, type Range, type Reader } from './reader.ts';
import { checkAndAddUp, type Sums } from './sums.ts';
import { micros } from './terms.ts';

/** The durations that the region's policy documents promise, by version. */
export const ruleCte = `rule as materialized (
  select version,
    (document->>'deliveryTtlMs')::float8 * interval '1 ms' as delivery_ttl,
    (document->>'decisionTtlMs')::float8 * interval '1 ms' as decision_ttl,
    (document->>'maxLifetimeMs')::float8 * interval '1 ms' as lifetime,
    (document->>'retryMaxMs')::float8 * interval '1 ms' as retry_max,
    (document->>'positionStaleMs')::float8 * interval '1 ms' as recovery,
    (document->>'decisionTtlMs')::float8 as decision_ttl_ms,
    (document->>'parallelOffers')::float8 as parallel_offers,
    coalesce((document->>'escalatedParallelOffers')::float8, 1) as escalated_parallel_offers,
    coalesce((document->>'escalateAfterOffers')::float8, 100) as escalate_after_offers,
    coalesce((document->>'escalateAfterMs')::float8, 86400000) * interval '1 ms' as escalate_after,
    coalesce((document->>'rescueMs')::float8, 0) * interval '1 ms' as rescue,
    (document->>'offersMax')::float8 as offers_max
  from policies where region = $1::int2)`;

/** Times computed from a duration twice may differ by the rounding of its milliseconds. */
export const isSameMoment = (a: string, b: string): string => `((${a}) - (${b}) between '-1 ms' and '1 ms')`;

/** The end of a term that the device received at `received`, by rule `p`. */
export const renewedEnd = (granted: string, received: string, lifetimeEnd: string): string =>
  `greatest(${granted} + p.delivery_ttl, least(${received} + p.decision_ttl, ${lifetimeEnd}))`;

const firstEnd = 't.granted_at + p.delivery_ttl';
const lastEnd = renewedEnd('t.granted_at', 't.received_at', 't.lifetime_ends_at');

const isOwnTokenInTime = 't.proof = t.token_hash and t.ended_at < t.expires_at';

/**
 * The columns of a term: those of its offer `o` and of its assignment `a`, one of `eachAssignment`; null where there is none.
 * A CTE `term` has them, and `is_told`: whether an event says that the offer was made.
 */
export const termColumns = `o.*, a.offer_id as assigned_id, a.ride_id as assigned_ride_id, a.driver_id as assigned_driver_id,
  a.fence as assigned_fence, a.assigned_at, a.ended_at as assignment_ended_at, a.ended_as, a.copies, a.nth, a.freed_at`;

/** Of the assignments of one offer, `w`: how many there are, which of them it is, and when the last of them ended. */
export const eachAssignment = `*, count(*) over w as copies, row_number() over w as nth,
  case when count(ended_at) over w = count(*) over w then max(ended_at) over w end as freed_at`;

/** Of a CTE `term`. */
export const terms: Source = {
  name: `format('offer %s (%s, ride %s, driver %s, fence %s)', coalesce(t.id, t.assigned_id), coalesce(t.status, 'absent'),
    coalesce(t.ride_id, t.assigned_ride_id), coalesce(t.driver_id, t.assigned_driver_id), coalesce(t.fence, t.assigned_fence))`,
  from: 'term t left join rule p on p.version = t.policy_version',
  checks: [
    {
      id: 'I3a',
      of: `t.status = 'accepted' or t.assigned_id is not null`,
      holds: `t.copies = 1 and t.status = 'accepted'
        and t.assigned_ride_id = t.ride_id and t.assigned_driver_id = t.driver_id and t.assigned_fence = t.fence`,
      shows: `case when t.assigned_id is null then 'no assignment' when t.copies > 1 then t.copies || ' assignments'
        else format('its assignment has ride %s, driver %s, fence %s', t.assigned_ride_id, t.assigned_driver_id, t.assigned_fence) end`,
    },
    {
      id: 'I3b',
      of: `t.status = 'accepted'`,
      holds: `${isOwnTokenInTime} and length(t.token_hash) = 32
        and t.received_at is not null and (t.assigned_id is null or t.assigned_at = t.ended_at)`,
      shows: `format('accepted %s, term ended %s, assigned %s%s', t.ended_at, t.expires_at, t.assigned_at,
        case when t.proof is null then ', no token' when t.proof <> t.token_hash then ', another token' end)`,
    },
    {
      id: 'I3c',
      of: 't.id is not null',
      holds: `t.granted_at < t.expires_at and t.expires_at <= t.lifetime_ends_at
        and (t.received_at is null or t.received_at >= t.granted_at and t.received_at < t.expires_at)
        and (t.ended_at is null or t.ended_at >= greatest(t.granted_at, t.received_at))
        and case t.status
          when 'expired' then t.received_at is not null and t.ended_at >= t.expires_at
          when 'undeliverable' then t.received_at is null and t.ended_at >= t.expires_at
          else true end`,
      shows: `format('granted %s, received %s, ended %s, term to %s', t.granted_at, t.received_at, t.ended_at, t.expires_at)`,
    },
    {
      id: 'I3d',
      of: 't.id is not null and p.version is not null',
      holds: `${isSameMoment('t.lifetime_ends_at', 't.granted_at + p.lifetime')}
        and t.decision_ttl_ms = p.decision_ttl_ms
        and case
          when t.received_at is null then ${isSameMoment('t.expires_at', firstEnd)}
          else ${isSameMoment('t.expires_at', lastEnd)}
            -- Accepting implies having received, and renews nothing.
            or t.status = 'accepted' and t.received_at = t.ended_at and ${isSameMoment('t.expires_at', firstEnd)} end`,
      shows: `format('granted %s, received %s, term to %s, policy version %s', t.granted_at, t.received_at, t.expires_at, t.policy_version)`,
    },
    {
      id: 'I4a',
      of: `t.status <> 'accepted'`,
      holds: `case t.status
        when 'declined' then ${isOwnTokenInTime} or t.proof is null and t.end_reason = 'driver_offline'
        when 'withdrawn' then ${isOwnTokenInTime} or t.proof is null and t.end_reason in ('ride_cancelled', 'ride_taken', 'ride_held')
        else t.proof is null end`,
      shows: `format('reason %s, ended %s, term to %s%s', coalesce(t.end_reason, 'none'), t.ended_at, t.expires_at,
        case when t.proof is null then ', no token' when t.proof <> t.token_hash then ', another token' end)`,
    },
    { id: 'I4c', of: 't.id is not null', holds: 't.is_told', shows: `'no event says that it was made'` },
    {
      id: 'I6f',
      of: 't.id is not null',
      holds: `t.status in ('pending', 'accepted', 'declined', 'expired', 'withdrawn', 'undeliverable')
        and (t.status = 'pending') = (t.ended_at is null) and (t.status = 'pending') = (t.due_at is not null)`,
      shows: `format('ended %s, due %s', t.ended_at, t.due_at)`,
    },
  ],
  facts: {
    ...Object.fromEntries(
      ['pending', 'accepted', 'declined', 'expired', 'withdrawn', 'undeliverable'].map((status) => [
        `offers.${status}`,
        `(t.status is not distinct from '${status}')::int`,
      ]),
    ),
    ...Object.fromEntries(
      ['accepted', 'declined', 'expired', 'withdrawn', 'undeliverable'].map((status) => [
        `heldMicroseconds.${status}`,
        `case when t.status = '${status}' then ${micros('t.ended_at - t.granted_at')} else 0 end`,
      ]),
    ),
    ...Object.fromEntries(
      ['completed', 'cancelled', 'driver_cancelled', 'unassigned'].map((end) => [
        `assignments.${end}`,
        `(t.ended_as is not distinct from '${end}')::int`,
      ]),
    ),
    'assignments.live': '(t.assigned_id is not null and t.assignment_ended_at is null)::int',
  },
};

/** A CTE `held`, what is added up of a CTE `term`: once for each offer. */
export const heldCte = `
held as materialized (
  select id, driver_id, fence, status, granted_at, expires_at, ended_at, coalesce(copies, 0)::int as assignments,
    -- An acceptance whose assignment is missing holds nobody; that it is missing is found elsewhere (I3a).
    case when assigned_id is null then ended_at else freed_at end as free_at
  from term where id is not null and coalesce(nth, 1) = 1)`;

const leftOutCtes = `
${ruleCte},
term as materialized (
  select ${termColumns}, false as is_told
  from (select * from offers where ${inRange('id', 'uuid')}) o
  full join (select ${eachAssignment} from assignments where ${inRange('offer_id', 'uuid')} window w as (partition by offer_id)) a
    on a.offer_id = o.id
  left join lateral (
    select true as is_named from ride_events where region = $1::int2 and ride_id = o.ride_id and offer_id = o.id limit 1) e on true
  where e.is_named is null),
${heldCte}`;

/** Judges the offers of a range that no event of their rides names, and assignments without an offer. */
export const checkLeftOut = (reader: Reader, tally: Tally, sums: Sums, range: Range): Promise<void> =>
  checkAndAddUp(reader, tally, sums, { ctes: leftOutCtes, sources: [terms] }, paramsOf(range));
