/**
 * What is live: the drivers of one range of driver ids, with the pending offers and live assignments that they hold,
 * from both sides. Pending offers are found by `due_at`, which has an index; that an offer is pending exactly while
 * it is due is checked for every offer (I6f).
 */
import { runChecks, type Source, type Tally } from './checks.ts';
import { isSameMoment, renewedEnd, ruleCte } from './offers.ts';
import { inRange, lookUp, paramsOf, type Range, type Reader } from './reader.ts';
import { GRACE } from './signs-of-life.ts';

const isTrip = `r.status in ('assigned', 'driver_arrived', 'in_progress')`;
const holdsNoTerm = 'num_nonnulls(d.lease_token, d.lease_granted_at, d.lease_received_at, d.lease_expires_at) = 0';

const drivers: Source = {
  name: `format('driver %s (%s)', d.driver_id, d.status)`,
  from: `(select *, count(*) over (partition by driver_id) as copies from driver_state where ${inRange('driver_id', 'text')}) d
    ${lookUp('offers', 'o', 'id = d.offer_id')}
    ${lookUp('rides', 'r', 'id = d.leased_to_ride_id')}
    ${lookUp('assignments', 'a', 'offer_id = d.offer_id and ended_at is null')}
    left join rule p on p.version = o.policy_version`,
  checks: [
    { id: 'I1a', holds: 'd.copies = 1', shows: `d.copies || ' states'` },
    {
      id: 'I3d',
      of: `d.status = 'leased' and p.version is not null`,
      holds: `case when d.lease_received_at is null then ${isSameMoment('d.lease_expires_at', 'o.granted_at + p.delivery_ttl')}
        else ${isSameMoment('d.lease_expires_at', renewedEnd('o.granted_at', 'd.lease_received_at', 'o.lifetime_ends_at'))} end`,
      shows: `format('granted %s, received %s, term to %s, policy version %s', o.granted_at, d.lease_received_at,
        d.lease_expires_at, o.policy_version)`,
    },
    {
      id: 'I4c',
      of: `d.status = 'leased'`,
      holds: `d.lease_granted_at = o.granted_at and d.lease_received_at is not distinct from (
        select min(e.at) from ride_events e
        where e.region = $1::int2 and e.ride_id = o.ride_id and e.offer_id = o.id and e.type = 'offer_received')`,
      shows: `format('offer %s: granted %s here and %s there, received %s here', d.offer_id, d.lease_granted_at, o.granted_at,
        d.lease_received_at)`,
    },
    {
      id: 'I4e',
      of: `d.status = 'leased'`,
      holds: `sha256(convert_to(d.lease_token, 'UTF8')) = o.token_hash`,
      shows: `format('offer %s has another token', d.offer_id)`,
    },
    {
      id: 'I6d',
      holds: `case d.status
        when 'leased' then o.status = 'pending' and o.ride_id = d.leased_to_ride_id and o.driver_id = d.driver_id
          and o.fence = d.fence and r.status = 'searching'
        when 'assigned' then ${holdsNoTerm}
        when 'available' then ${holdsNoTerm} and num_nonnulls(d.leased_to_ride_id, d.offer_id) = 0
        when 'offline' then ${holdsNoTerm} and num_nonnulls(d.leased_to_ride_id, d.offer_id) = 0 end`,
      shows: `format('fence %s, offer %s (%s), ride %s (%s)', d.fence, d.offer_id, o.status, d.leased_to_ride_id, r.status)`,
    },
    {
      id: 'I6e',
      of: `d.status = 'assigned'`,
      holds: `a.ride_id = d.leased_to_ride_id and a.driver_id = d.driver_id and a.fence = d.fence
        and ${isTrip} and r.assigned_driver_id = d.driver_id and r.assigned_offer_id = d.offer_id`,
      shows: `format('offer %s (%s), ride %s (%s)', d.offer_id, case when a.offer_id is null then 'no live assignment'
        else 'assigned' end, d.leased_to_ride_id, r.status)`,
    },
    {
      id: 'I6f',
      of: `d.status = 'leased'`,
      holds: `d.lease_expires_at + '${GRACE}' >= $4::text::timestamptz`,
      shows: `format('the term of offer %s was over %s', d.offer_id, d.lease_expires_at)`,
    },
  ],
};

const holders: Source = {
  name: `format('driver %s', h.driver_id)`,
  from: `(select driver_id, count(*) as held from (
    select driver_id from offers where ${inRange('driver_id', 'text')} and due_at is not null
    union all select driver_id from assignments where ${inRange('driver_id', 'text')} and ended_at is null) live
    group by driver_id) h`,
  checks: [{ id: 'I1a', holds: 'h.held = 1', shows: `h.held || ' pending offers and live assignments'` }],
};

const pendingOffers: Source = {
  name: `format('offer %s (%s, ride %s, driver %s)', o.id, o.status, o.ride_id, o.driver_id)`,
  from: `(select * from offers where ${inRange('driver_id', 'text')} and due_at is not null) o
    ${lookUp('driver_state', 'd', 'driver_id = o.driver_id')}`,
  checks: [
    {
      id: 'I6d',
      holds: `d.status = 'leased' and d.offer_id = o.id and d.leased_to_ride_id = o.ride_id`,
      shows: `format('its driver is %s with offer %s', coalesce(d.status, 'unknown'), d.offer_id)`,
    },
  ],
};

const liveAssignments: Source = {
  name: `format('assignment of offer %s (ride %s, driver %s)', a.offer_id, a.ride_id, a.driver_id)`,
  from: `(select * from assignments where ${inRange('driver_id', 'text')} and ended_at is null) a
    ${lookUp('driver_state', 'd', 'driver_id = a.driver_id')}
    ${lookUp('rides', 'r', 'id = a.ride_id')}`,
  checks: [
    {
      id: 'I6e',
      holds: `d.status = 'assigned' and d.offer_id = a.offer_id and d.leased_to_ride_id = a.ride_id
        and ${isTrip} and r.assigned_offer_id = a.offer_id`,
      shows: `format('its driver is %s with offer %s, its ride %s', coalesce(d.status, 'unknown'), d.offer_id, coalesce(r.status, 'unknown'))`,
    },
  ],
};

export const checkDrivers = (reader: Reader, tally: Tally, range: Range, lastSignAt: string): Promise<void> =>
  runChecks(reader, tally, { ctes: ruleCte, sources: [drivers, holders, pendingOffers, liveAssignments] }, [
    ...paramsOf(range),
    lastSignAt,
  ]);
