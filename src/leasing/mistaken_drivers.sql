-- Which of these drivers have been told something else than what holds: `offline`, `free` (an offer may be open) or the id of
-- the ride they have. What has held for less than `p_after_ms` is perhaps just being told. Also who isn't in the region any more.
create or replace function mistaken_drivers(p_region smallint, p_driver_ids text[], p_told text[], p_after_ms int)
returns setof text language plpgsql stable as $$
declare
  v_before timestamptz := clock_timestamp() - make_interval(secs => p_after_ms / 1000.0);
begin
  return query
  select a.driver_id
  from unnest(p_driver_ids, p_told) a(driver_id, told)
  -- Along those asked about, not along the fleet, whatever the planner thinks of their numbers.
  left join lateral (
    select case s.status when 'offline' then 'offline' when 'assigned' then s.leased_to_ride_id::text else 'free' end as holds,
      s.updated_at
    from driver_state s
    where s.region = p_region and s.driver_id = a.driver_id offset 0) d on true
  where d.holds is null or d.updated_at < v_before and d.holds <> a.told;
end $$;
