-- searching, assigned, driver_arrived → cancelled, by rider, operator or system. Open offers are withdrawn and the
-- assigned driver is freed by the same transaction: cancel and confirm can't both win.
create or replace function cancel_rides(
  p_region smallint, p_ride_ids uuid[], p_rider_ids text[], p_sources text[], p_reasons text[], p_wait boolean)
returns table (ord int, refused text, applied boolean, released_driver_id text,
  withdrawn_offer_ids uuid[], withdrawn_driver_ids text[], withdrawn_held_ms real[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, p_ride_ids, p_wait);
  v_offered uuid[] := array(select id from rides where region = p_region and id = any(v_rides) and live_offers > 0);
  v_drivers text[] := array(select assigned_driver_id from rides
    where region = p_region and id = any(v_rides) and assigned_driver_id is not null and ended_at is null);
  v_now timestamptz;
  v_cancelled uuid[];
  v_ords int[];
  v_offers uuid[] := '{}';
begin
  if cardinality(v_offered) > 0 then
    v_drivers := v_drivers || array(
      select driver_id from offers where region = p_region and ride_id = any(v_offered) and due_at is not null);
  end if;
  v_drivers := lock_drivers(p_region, v_drivers, p_wait);
  v_now := clock_timestamp();
  select array_agg(w.ride_id), array_agg(w.ord) into v_cancelled, v_ords from (
    select distinct on (j.ride_id) j.ride_id, j.ord
    from judge_cancels(p_region, p_ride_ids, p_rider_ids, v_rides, v_drivers) j
    where j.verdict is null order by j.ride_id, j.ord) w;

  if v_cancelled is not null then
    if cardinality(v_offered) > 0 then
      v_offers := array(select id from offers where region = p_region and ride_id = any(v_offered) and ride_id = any(v_cancelled)
        and due_at is not null);
    end if;
    perform end_offers(p_region, v_offers, array_fill('withdrawn'::text, array[cardinality(v_offers)]),
      array_fill('ride_cancelled'::text, array[cardinality(v_offers)]), false, false, v_now);

    with ending as (
      select r.id, a.source, a.reason, r.status as phase, r.assigned_driver_id, r.assigned_offer_id, d.fence, r.event_seq + 1 as seq,
        greatest(v_now, r.updated_at, d.updated_at) as at
      from rides r
      join unnest(p_ride_ids, p_sources, p_reasons) with ordinality a(ride_id, source, reason, ord)
        on a.ride_id = r.id and a.ord = any(v_ords)
      left join driver_state d on d.region = p_region and d.driver_id = r.assigned_driver_id
      where r.region = p_region and r.id = any(v_cancelled)
    ),
    over as (
      update rides r set status = 'cancelled', queue_at = null, stalled_since = null, no_show_at = null, ended_at = e.at, cancel_source = e.source,
        cancel_reason = e.reason, cancel_phase = e.phase, event_seq = e.seq, version = r.version + 1,
        updated_at = e.at
      from ending e
      where r.region = p_region and r.id = e.id and r.status in ('searching', 'assigned', 'driver_arrived')
    ),
    unassigned as (
      update assignments s set ended_at = e.at, ended_as = 'cancelled' from ending e
      where s.region = p_region and s.offer_id = e.assigned_offer_id and s.ended_at is null
    ),
    freed as (
      update driver_state d set status = 'available', leased_to_ride_id = null, offer_id = null,
        version = d.version + 1, updated_at = e.at
      from ending e
      where d.region = p_region and d.driver_id = e.assigned_driver_id and d.status = 'assigned'
        and d.leased_to_ride_id = e.id
    )
    insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence, reason)
    select p_region, e.id, e.seq, 'ride_cancelled', e.at, e.assigned_driver_id, e.assigned_offer_id,
      case when e.assigned_offer_id is not null then e.fence end, e.source || ':' || e.reason
    from ending e;
  end if;

  return query
  with withdrawn as materialized (
    select e.ride_id, array_agg(e.id) as ids, array_agg(e.driver_id) as drivers,
      array_agg((extract(epoch from e.ended_at - e.granted_at) * 1000)::real) as held_ms
    from offers e where e.region = p_region and e.id = any(v_offers) group by e.ride_id
  )
  select j.ord, nullif(case when j.verdict is null then 'busy' else j.verdict end, 'repeated'),
    coalesce(j.ord = any(v_ords), false), case when j.ord = any(v_ords) then j.assigned_driver_id end,
    o.ids, o.drivers, o.held_ms
  from judge_cancels(p_region, p_ride_ids, p_rider_ids, v_rides, v_drivers) j
  left join withdrawn o on o.ride_id = j.ride_id and j.ord = any(v_ords)
  order by 1;
end $$;

create or replace function judge_cancels(
  p_region smallint, p_ride_ids uuid[], p_rider_ids text[], p_rides uuid[], p_drivers text[])
returns table (ord int, ride_id uuid, verdict text, assigned_driver_id text)
language plpgsql as $$
#variable_conflict use_column
begin
  return query
  select a.ord::int, a.ride_id,
    case
      when r.id is null then 'ride_not_found'
      when a.rider_id <> r.rider_id then 'wrong_rider'
      when r.status = 'cancelled' then 'repeated'
      when a.ride_id <> all(p_rides)
        or (r.assigned_driver_id is not null and r.assigned_driver_id <> all(p_drivers) and r.ended_at is null)
        -- Not `exists`, for which the planner may read all offers of the region once instead.
        or r.live_offers > 0 and (select true from offers o where o.region = p_region and o.ride_id = r.id and o.due_at is not null
                   and o.driver_id <> all(p_drivers) limit 1) then 'busy'
      when r.status = 'in_progress' then 'ride_in_progress'
      when r.status in ('completed', 'no_drivers_available') then 'ride_over'
    end,
    r.assigned_driver_id
  from unnest(p_ride_ids, p_rider_ids) with ordinality a(ride_id, rider_id, ord)
  left join rides r on r.region = p_region and r.id = a.ride_id
  order by a.ord;
end $$;
