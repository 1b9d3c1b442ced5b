-- Rides that find nobody else may ask once more whoever let an offer of theirs lapse: each driver once. Never waits.
create or replace function lift_exclusions(p_region smallint, p_ride_ids uuid[])
returns table (ride_id uuid, lifted int)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, p_ride_ids, false);
  v_now timestamptz := clock_timestamp();
begin
  return query
  with lifting as (
    select r.id, x.causes, x.lifted, greatest(v_now, r.updated_at) as at
    from rides r cross join lateral (
      select array_agg(case when e.may_lift then 'lifted' else e.cause end order by e.n) as causes,
        count(*) filter (where e.may_lift)::int as lifted
      from (select a.n, a.cause, a.cause in ('expired', 'undeliverable') and not exists (
          select from unnest(r.excluded_driver_ids, r.excluded_as) b(driver_id, cause)
          where b.driver_id = a.driver_id and b.cause = 'lifted') as may_lift
        from unnest(r.excluded_driver_ids, r.excluded_as) with ordinality a(driver_id, cause, n)) e) x
    where r.region = p_region and r.id = any(v_rides) and r.status = 'searching' and r.queue_at is not null and x.lifted > 0
      and coalesce(r.held_until <= v_now, true)
  ),
  done as (
    update rides r set excluded_as = l.causes, queue_at = l.at, event_seq = r.event_seq + 1, version = r.version + 1,
      updated_at = l.at
    from lifting l where r.region = p_region and r.id = l.id and r.status = 'searching'
    returning r.id, r.event_seq, l.at, l.lifted
  ),
  told as (
    insert into ride_events (region, ride_id, seq, type, at, reason)
    select p_region, d.id, d.event_seq, 'exclusions_lifted', d.at, 'lapsed' from done d
  )
  select d.id, d.lifted from done d;
end $$;
