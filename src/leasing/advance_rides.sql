-- assigned → driver_arrived → in_progress → completed, by the assigned driver alone. A step that was already taken
-- is a repetition; one that isn't next is `wrong_phase`. Completing frees the driver.
-- From the arrival on the rider has the policy's noShowAfterMs.
create or replace function advance_rides(
  p_region smallint, p_ride_ids uuid[], p_driver_ids text[], p_status text[], p_wait boolean)
returns table (ord int, refused text, applied boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, p_ride_ids, p_wait);
  v_drivers text[] := lock_drivers(p_region, p_driver_ids, p_wait);
  v_now timestamptz := clock_timestamp();
  v_ords int[];
begin
  v_ords := array(
    select distinct on (j.ride_id) j.ord
    from judge_advances(p_region, p_ride_ids, p_driver_ids, p_status, v_rides, v_drivers) j
    where j.verdict is null order by j.ride_id, j.ord);

  with going as (
    select r.id, r.status as phase, a.status, d.driver_id,
      case when a.status = 'driver_arrived' then nullif(policy_number(p_region, r.policy_version, 'noShowAfterMs', 0), 0) end as no_show_ms,
      r.assigned_offer_id as offer_id, d.fence, r.event_seq + 1 as seq,
      greatest(v_now, r.updated_at, d.updated_at) as at
    from unnest(p_ride_ids, p_driver_ids, p_status) with ordinality a(ride_id, driver_id, status, ord)
    join rides r on r.region = p_region and r.id = a.ride_id
    join driver_state d on d.region = p_region and d.driver_id = a.driver_id
    where a.ord = any(v_ords)
  ),
  gone as (
    update rides r set status = g.status, ended_at = case when g.status = 'completed' then g.at end,
      stalled_since = null, no_show_at = g.at + make_interval(secs => g.no_show_ms / 1000.0),
      event_seq = g.seq, version = r.version + 1, updated_at = g.at
    from going g
    where r.region = p_region and r.id = g.id and r.status = g.phase and r.assigned_driver_id = g.driver_id
  ),
  done as (
    update assignments s set ended_at = g.at, ended_as = 'completed' from going g
    where g.status = 'completed' and s.region = p_region and s.offer_id = g.offer_id and s.ended_at is null
  ),
  freed as (
    update driver_state d set status = 'available', leased_to_ride_id = null, offer_id = null,
      version = d.version + 1, updated_at = g.at
    from going g
    where g.status = 'completed' and d.region = p_region and d.driver_id = g.driver_id
      and d.status = 'assigned' and d.leased_to_ride_id = g.id
  )
  insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
  select p_region, g.id, g.seq,
    case g.status when 'in_progress' then 'ride_started' when 'completed' then 'ride_completed' else 'driver_arrived' end,
    g.at, g.driver_id, g.offer_id, g.fence
  from going g;

  -- Mostly all of them go on, each another ride, and there is nothing left to judge.
  if cardinality(v_ords) = cardinality(p_ride_ids) then
    return query select n, null::text, true from generate_series(1, cardinality(v_ords)) n;
    return;
  end if;
  return query
  select j.ord, nullif(case when j.verdict is null then 'busy' else j.verdict end, 'repeated'),
    coalesce(j.ord = any(v_ords), false)
  from judge_advances(p_region, p_ride_ids, p_driver_ids, p_status, v_rides, v_drivers) j;
end $$;

create or replace function judge_advances(
  p_region smallint, p_ride_ids uuid[], p_driver_ids text[], p_status text[], p_rides uuid[], p_drivers text[])
returns table (ord int, ride_id uuid, verdict text)
language plpgsql as $$
#variable_conflict use_column
declare
  c_phases constant text[] := array['assigned', 'driver_arrived', 'in_progress', 'completed'];
begin
  return query
  select a.ord::int, a.ride_id,
    case
      when r.id is null then 'ride_not_found'
      when a.ride_id <> all(p_rides) then 'busy'
      when r.assigned_driver_id is distinct from a.driver_id then 'wrong_driver'
      when r.status = 'cancelled' then 'ride_cancelled'
      when array_position(c_phases, r.status) >= array_position(c_phases, a.status) then 'repeated'
      when array_position(c_phases, r.status) < array_position(c_phases, a.status) - 1 then 'wrong_phase'
      -- Last: what the ride says holds without its driver, who may have moved to another region since.
      when a.driver_id <> all(p_drivers) then 'busy'
    end
  from unnest(p_ride_ids, p_driver_ids, p_status) with ordinality a(ride_id, driver_id, status, ord)
  left join rides r on r.region = p_region and r.id = a.ride_id
  order by a.ord;
end $$;
