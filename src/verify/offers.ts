/** What each lease term says of itself and of its assignment: the offers and assignments of one range of offer ids. */
import { runChecks, type Source, type Tally } from './checks.ts';
import { inRange, type Range, type Reader } from './reader.ts';

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

const firstEnd = 'o.granted_at + p.delivery_ttl';
const lastEnd = renewedEnd('o.granted_at', 'o.received_at', 'o.lifetime_ends_at');

const isOwnTokenInTime = 'o.proof = o.token_hash and o.ended_at < o.expires_at';

const terms: Source = {
  name: `format('offer %s (%s, ride %s, driver %s, fence %s)', coalesce(o.id, a.offer_id), coalesce(o.status, 'absent'),
    coalesce(o.ride_id, a.ride_id), coalesce(o.driver_id, a.driver_id), coalesce(o.fence, a.fence))`,
  from: `(select * from offers where ${inRange('id', 'uuid')}) o
    full join (select *, count(*) over (partition by offer_id) as copies from assignments where ${inRange('offer_id', 'uuid')}) a
      on a.offer_id = o.id
    left join rule p on p.version = o.policy_version
    left join lateral (
      select true as is_told from ride_events e
      where e.region = $1::int2 and e.ride_id = o.ride_id and e.offer_id = o.id and e.type = 'offer_made' limit 1) e on true`,
  checks: [
    {
      id: 'I3a',
      of: `o.status = 'accepted' or a.offer_id is not null`,
      holds: `a.copies = 1 and o.status = 'accepted'
        and a.ride_id = o.ride_id and a.driver_id = o.driver_id and a.fence = o.fence`,
      shows: `case when a.offer_id is null then 'no assignment' when a.copies > 1 then a.copies || ' assignments'
        else format('its assignment has ride %s, driver %s, fence %s', a.ride_id, a.driver_id, a.fence) end`,
    },
    {
      id: 'I3b',
      of: `o.status = 'accepted'`,
      holds: `${isOwnTokenInTime} and length(o.token_hash) = 32
        and o.received_at is not null and (a.offer_id is null or a.assigned_at = o.ended_at)`,
      shows: `format('accepted %s, term ended %s, assigned %s%s', o.ended_at, o.expires_at, a.assigned_at,
        case when o.proof is null then ', no token' when o.proof <> o.token_hash then ', another token' end)`,
    },
    {
      id: 'I3c',
      of: 'o.id is not null',
      holds: `o.granted_at < o.expires_at and o.expires_at <= o.lifetime_ends_at
        and (o.received_at is null or o.received_at >= o.granted_at and o.received_at < o.expires_at)
        and (o.ended_at is null or o.ended_at >= greatest(o.granted_at, o.received_at))
        and case o.status
          when 'expired' then o.received_at is not null and o.ended_at >= o.expires_at
          when 'undeliverable' then o.received_at is null and o.ended_at >= o.expires_at
          else true end`,
      shows: `format('granted %s, received %s, ended %s, term to %s', o.granted_at, o.received_at, o.ended_at, o.expires_at)`,
    },
    {
      id: 'I3d',
      of: 'o.id is not null and p.version is not null',
      holds: `${isSameMoment('o.lifetime_ends_at', 'o.granted_at + p.lifetime')}
        and o.decision_ttl_ms = p.decision_ttl_ms
        and case
          when o.received_at is null then ${isSameMoment('o.expires_at', firstEnd)}
          else ${isSameMoment('o.expires_at', lastEnd)}
            -- Accepting implies having received, and renews nothing.
            or o.status = 'accepted' and o.received_at = o.ended_at and ${isSameMoment('o.expires_at', firstEnd)} end`,
      shows: `format('granted %s, received %s, term to %s, policy version %s', o.granted_at, o.received_at, o.expires_at, o.policy_version)`,
    },
    {
      id: 'I4a',
      of: `o.status <> 'accepted'`,
      holds: `case o.status
        when 'declined' then ${isOwnTokenInTime} or o.proof is null and o.end_reason = 'driver_offline'
        when 'withdrawn' then ${isOwnTokenInTime} or o.proof is null and o.end_reason in ('ride_cancelled', 'ride_taken', 'ride_held')
        else o.proof is null end`,
      shows: `format('reason %s, ended %s, term to %s%s', coalesce(o.end_reason, 'none'), o.ended_at, o.expires_at,
        case when o.proof is null then ', no token' when o.proof <> o.token_hash then ', another token' end)`,
    },
    { id: 'I4c', of: 'o.id is not null', holds: 'e.is_told', shows: `'no event says that it was made'` },
    {
      id: 'I6f',
      of: 'o.id is not null',
      holds: `o.status in ('pending', 'accepted', 'declined', 'expired', 'withdrawn', 'undeliverable')
        and (o.status = 'pending') = (o.ended_at is null) and (o.status = 'pending') = (o.due_at is not null)`,
      shows: `format('ended %s, due %s', o.ended_at, o.due_at)`,
    },
  ],
  facts: {
    ...Object.fromEntries(
      ['pending', 'accepted', 'declined', 'expired', 'withdrawn', 'undeliverable'].map((status) => [
        `offers.${status}`,
        `(o.status is not distinct from '${status}')::int`,
      ]),
    ),
    ...Object.fromEntries(
      ['accepted', 'declined', 'expired', 'withdrawn', 'undeliverable'].map((status) => [
        // Whole numbers: the sum is the same in whatever steps the offers are read.
        `heldMicroseconds.${status}`,
        `case when o.status = '${status}' then round(date_part('epoch', o.ended_at - o.granted_at) * 1000000) else 0 end`,
      ]),
    ),
    ...Object.fromEntries(
      ['completed', 'cancelled', 'driver_cancelled', 'unassigned'].map((end) => [
        `assignments.${end}`,
        `(a.ended_as is not distinct from '${end}')::int`,
      ]),
    ),
    'assignments.live': '(a.offer_id is not null and a.ended_at is null)::int',
  },
};

export const checkOffers = (reader: Reader, tally: Tally, range: Range): Promise<void> =>
  runChecks(reader, tally, { ctes: ruleCte, sources: [terms] }, range);
