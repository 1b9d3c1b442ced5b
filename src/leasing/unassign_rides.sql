-- assigned, driver_arrived → searching: the driver cancels after accepting, or the ride is taken from him, by an operator or
-- by the system, whose reason is the name of the exclusion (`stalled`, `replaced`). The ride goes back to the front of the
-- line without that driver, with its patience from now on, and a new search try: no offer of an old one can book. After more
-- than the policy's givebacksMax drivers it isn't searched for by itself any more.
create or replace function unassign_rides(
  p_region smallint, p_ride_ids uuid[], p_driver_ids text[], p_sources text[], p_reasons text[], p_wait boolean)
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
    from judge_unassigns(p_region, p_ride_ids, p_driver_ids, v_rides, v_drivers) j
    where j.verdict is null order by j.ride_id, j.ord);

  with leaving as (
    select r.id, d.driver_id, r.assigned_offer_id as offer_id, d.fence, r.event_seq + 1 as seq, a.source, a.reason,
      policy_number(p_region, r.policy_version, 'patienceMs', 0) as patience_ms,
      case a.source when 'system' then a.reason else 'cancelled' end as cause,
      cardinality(array_positions(r.excluded_as, 'cancelled')) + cardinality(array_positions(r.excluded_as, 'stalled'))
        >= policy_number(p_region, r.policy_version, 'givebacksMax', 5) as is_too_often,
      greatest(v_now, r.updated_at, d.updated_at) as at
    from unnest(p_ride_ids, p_driver_ids, p_sources, p_reasons) with ordinality a(ride_id, driver_id, source, reason, ord)
    join rides r on r.region = p_region and r.id = a.ride_id
    join driver_state d on d.region = p_region and d.driver_id = a.driver_id
    where a.ord = any(v_ords)
  ),
  searching as (
    update rides r set status = 'searching', assigned_driver_id = null, assigned_offer_id = null, queue_at = l.at,
      no_show_at = null, stalled_since = null, search_try = r.search_try + 1,
      patience_until = case when l.is_too_often then l.at
        else greatest(r.patience_until, l.at + make_interval(secs => l.patience_ms / 1000.0)) end,
      excluded_driver_ids = r.excluded_driver_ids || l.driver_id, excluded_as = r.excluded_as || l.cause,
      excluded_at = r.excluded_at || l.at,
      event_seq = l.seq, version = r.version + 1, updated_at = l.at
    from leaving l
    where r.region = p_region and r.id = l.id and r.status in ('assigned', 'driver_arrived')
      and r.assigned_driver_id = l.driver_id
  ),
  unassigned as (
    update assignments s set ended_at = l.at, ended_as = case l.source when 'driver' then 'driver_cancelled' else 'unassigned' end
    from leaving l
    where s.region = p_region and s.offer_id = l.offer_id and s.ended_at is null
  ),
  freed as (
    update driver_state d set status = 'available', leased_to_ride_id = null, offer_id = null,
      version = d.version + 1, updated_at = l.at
    from leaving l
    where d.region = p_region and d.driver_id = l.driver_id and d.status = 'assigned' and d.leased_to_ride_id = l.id
  )
  insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence, reason)
  select p_region, l.id, l.seq, case l.source when 'driver' then 'driver_cancelled' else 'driver_unassigned' end, l.at,
    l.driver_id, l.offer_id, l.fence, case l.source when 'driver' then l.reason else l.source || ':' || l.reason end
  from leaving l;

  return query
  select j.ord, nullif(case when j.verdict is null then 'busy' else j.verdict end, 'repeated'),
    coalesce(j.ord = any(v_ords), false)
  from judge_unassigns(p_region, p_ride_ids, p_driver_ids, v_rides, v_drivers) j;
end $$;

-- A driver who no longer has the ride and once gave it back is repeating himself.
create or replace function judge_unassigns(
  p_region smallint, p_ride_ids uuid[], p_driver_ids text[], p_rides uuid[], p_drivers text[])
returns table (ord int, ride_id uuid, verdict text)
language plpgsql as $$
#variable_conflict use_column
begin
  return query
  select a.ord::int, a.ride_id,
    case
      when r.id is null then 'ride_not_found'
      when a.ride_id <> all(p_rides) then 'busy'
      when r.assigned_driver_id is distinct from a.driver_id then
        -- Not `exists`, for which the planner may read all events of the region once instead.
        case when (select true from ride_events e where e.region = p_region and e.ride_id = r.id
                   and e.type in ('driver_cancelled', 'driver_unassigned') and e.driver_id = a.driver_id limit 1)
        then 'repeated' else 'wrong_driver' end
      when r.status = 'in_progress' then 'ride_in_progress'
      when r.ended_at is not null then 'ride_over'
      -- Last: what the ride says holds without its driver, who may have moved to another region since.
      when a.driver_id <> all(p_drivers) then 'busy'
    end
  from unnest(p_ride_ids, p_driver_ids) with ordinality a(ride_id, driver_id, ord)
  left join rides r on r.region = p_region and r.id = a.ride_id
  order by a.ord;
end $$;
