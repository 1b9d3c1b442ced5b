-- Which of these drivers have been told something else than what holds: `offline`, `free` (an offer may be open) or the id of
-- the ride they have. What has held for less than `p_after_ms` is perhaps just being told.
create or replace function mistaken_drivers(p_region smallint, p_driver_ids text[], p_told text[], p_after_ms int)
returns setof text language plpgsql stable as $$
declare
  v_before timestamptz := clock_timestamp() - make_interval(secs => p_after_ms / 1000.0);
begin
  return query
  select a.driver_id
  from unnest(p_driver_ids, p_told) a(driver_id, told)
  -- Along those asked about, not along the fleet, whatever the planner thinks of their numbers.
  cross join lateral (
    select case s.status when 'offline' then 'offline' when 'assigned' then s.leased_to_ride_id::text else 'free' end as holds
    from driver_state s
    where s.region = p_region and s.driver_id = a.driver_id and s.updated_at < v_before offset 0) d
  where d.holds <> a.told;
end $$;
