/** Mutations of the lease protocol that somebody could make in good faith, and those that no rule makes. */
import type { NamedMutation } from './sql-mutants.ts';

export const NAMED: readonly NamedMutation[] = [
  {
    file: 'judge_terms.sql',
    name: 'token check dropped',
    from: `sha256(convert_to(a.token, 'UTF8')) <> o.token_hash`,
    to: 'false',
  },
  {
    file: 'judge_terms.sql',
    name: 'expiry check dropped in confirm',
    from: 't.at < d.lease_expires_at',
    to: 'true',
  },
  {
    file: 'judge_terms.sql',
    name: 'confirm retry not idempotent',
    from: 'o.status = p_ended_as and o.proof is not null',
    to: 'false',
  },
  {
    file: 'judge_terms.sql',
    name: 'a clock that was set back revives a term',
    from: 'greatest(p_now, d.updated_at, r.updated_at)',
    to: 'p_now',
  },
  {
    file: 'return_offers.sql',
    name: 'release without status',
    from: 'j.verdict is null',
    to: `coalesce(j.verdict, '') not in ('wrong_token', 'wrong_driver', 'offer_not_found', 'busy')`,
  },
  {
    file: 'expire_leases.sql',
    name: 'sweep without its status condition',
    from: `and d.offer_id = a.id
      and d.driver_id = any(v_drivers) and d.lease_expires_at <= greatest(v_now, d.updated_at)`,
    to: 'and d.driver_id = any(v_drivers)',
  },
  {
    file: 'expire_leases.sql',
    name: 'sweep that selects, and then updates what it selected: nothing judged again under the locks',
    from: 'and d.lease_expires_at <= greatest(v_now, d.updated_at)',
    to: '',
  },
  {
    file: 'lease_drivers.sql',
    name: 'ride-still-searching check dropped',
    from: 's.ride_searches and s.held',
    to: 's.held',
  },
  {
    file: 'lease_drivers.sql',
    name: 'lease of a leased row',
    from: `d.status = 'available' as driver_free`,
    to: `d.status in ('available', 'leased') as driver_free`,
  },
  {
    file: 'lease_drivers.sql',
    name: 'lease of a leased row, without the guard of the update either',
    from: `d.status = 'available' as driver_free`,
    to: 'true as driver_free',
    also: { from: `d.status = 'available' and f.place <= f.room`, to: 'f.place <= f.room' },
  },
  {
    file: 'lease_drivers.sql',
    name: 'fence not raised',
    from: 'fence = greatest(d.fence, v_floor) + 1',
    to: 'fence = greatest(d.fence, v_floor)',
  },
  {
    file: 'lease_drivers.sql',
    name: 'term granted before the last one ended, when the clock was set back',
    from: 'greatest(v_now, r.updated_at, max(d.updated_at) over (partition by a.ride_id)) as at',
    to: 'v_now as at',
  },
  {
    file: 'lease_drivers.sql',
    name: 'rows that others hold are taken for locked',
    from: 'a.ride_id = any(v_rides) and a.driver_id = any(v_drivers) as locked',
    to: 'true as locked',
  },
  {
    file: 'end_offers.sql',
    name: 'token reset on free',
    from: 'lease_token = null,',
    to: '',
  },
  {
    file: 'end_offers.sql',
    name: 'a released term counts as proven by its token',
    from: 'case when p_proven then o.token_hash end',
    to: 'o.token_hash',
  },
  {
    file: 'end_offers.sql',
    name: 'whoever let an offer lapse is asked again',
    from: 'case when p_excluding then r.excluded_driver_ids || n.drivers else r.excluded_driver_ids end',
    to: 'r.excluded_driver_ids',
  },
  {
    file: 'receive_offers.sql',
    name: 'renewed past the lifetime',
    from: 'least(w.at + make_interval(secs => o.decision_ttl_ms / 1000.0), o.lifetime_ends_at)',
    to: 'w.at + make_interval(secs => o.decision_ttl_ms / 1000.0)',
  },
  {
    file: 'confirm_offers.sql',
    name: 'expiry judged by the time before the locks',
    from: `  v_drivers := lock_drivers(p_region, v_drivers, p_wait);
  v_now := clock_timestamp();`,
    to: `  v_drivers := lock_drivers(p_region, v_drivers, p_wait);
  v_now := now();`,
  },
  {
    file: 'unassign_rides.sql',
    name: 'an old search try’s offer books in the new one',
    from: 'search_try = r.search_try + 1',
    to: 'search_try = r.search_try',
  },
  {
    file: 'reassign_ride.sql',
    name: 'taken from the one, though the other is refused',
    from: `raise exception using errcode = 'CB001', message = v_step.refused;`,
    to: 'return query select v_step.refused, false, null::bigint, null::timestamptz;\n    return;',
  },
];

/** As the two lock steps, without a lock. */
export const PEEKS = `
create or replace function peek_rides(p_region smallint, p_ride_ids uuid[], p_wait boolean)
returns uuid[] language sql as $$
  select array(select id from rides where region = p_region and id = any(p_ride_ids) order by id)
$$;
create or replace function peek_drivers(p_region smallint, p_driver_ids text[], p_wait boolean)
returns text[] language sql as $$
  select array(select driver_id from driver_state where region = p_region and driver_id = any(p_driver_ids) order by driver_id)
$$;
`;
