-- searching → searching, kept from the match rounds for the policy's holdMs: an operator sees to it. Its open offers are
-- withdrawn by the same transaction, and while it is held its patience stands still. Held already, it stays so.
create or replace function hold_ride(p_region smallint, p_ride_id uuid, p_reason text)
returns table (refused text, applied boolean, withdrawn_offer_ids uuid[], withdrawn_driver_ids text[], withdrawn_held_ms real[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, array[p_ride_id], true);
  v_drivers text[] := lock_drivers(p_region, array(
    select driver_id from offers where region = p_region and ride_id = p_ride_id and due_at is not null), true);
  v_now timestamptz := clock_timestamp();
  v_offers uuid[] := array(select id from offers where region = p_region and ride_id = p_ride_id and due_at is not null);
  v_judged text := judge_hold(p_region, p_ride_id, true);
begin
  if v_judged is null then
    perform end_offers(p_region, v_offers, array_fill('withdrawn'::text, array[cardinality(v_offers)]),
      array_fill('ride_held'::text, array[cardinality(v_offers)]), false, false, v_now);
    with held as (
      update rides r set held_until = h.until, queue_at = h.until,
        patience_until = r.patience_until + (h.until - h.at), rescue_until = r.rescue_until + (h.until - h.at),
        event_seq = r.event_seq + 1, version = r.version + 1, updated_at = h.at
      from (select g.id, g.at, g.at + make_interval(secs => g.hold_ms / 1000.0) as until from (
          select r.id, greatest(v_now, r.updated_at) as at, policy_number(p_region, r.policy_version, 'holdMs', 300000) as hold_ms
          from rides r where r.region = p_region and r.id = p_ride_id) g) h
      where r.region = p_region and r.id = h.id and r.status = 'searching'
      returning r.id, r.event_seq, h.at
    )
    insert into ride_events (region, ride_id, seq, type, at, reason)
    select p_region, h.id, h.event_seq, 'ride_held', h.at, 'operator:' || p_reason from held h;
  end if;
  return query
  select nullif(v_judged, 'repeated'), v_judged is null, array_agg(o.id), array_agg(o.driver_id),
    array_agg((extract(epoch from o.ended_at - o.granted_at) * 1000)::real)
  from offers o where o.region = p_region and o.id = any(v_offers) and v_judged is null;
end $$;

-- Held no more: the next round looks at it, with what is left of its patience.
create or replace function release_hold(p_region smallint, p_ride_id uuid, p_reason text)
returns table (refused text, applied boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, array[p_ride_id], true);
  v_now timestamptz := clock_timestamp();
  v_judged text := judge_hold(p_region, p_ride_id, false);
begin
  if v_judged is null then
    with released as (
      update rides r set held_until = null, queue_at = case when r.queue_at is not null then h.at end,
        patience_until = r.patience_until - (r.held_until - h.at), rescue_until = r.rescue_until - (r.held_until - h.at),
        event_seq = r.event_seq + 1, version = r.version + 1, updated_at = h.at
      from (select r.id, greatest(v_now, r.updated_at) as at from rides r where r.region = p_region and r.id = p_ride_id) h
      where r.region = p_region and r.id = h.id and r.status = 'searching'
      returning r.id, r.event_seq, h.at
    )
    insert into ride_events (region, ride_id, seq, type, at, reason)
    select p_region, h.id, h.event_seq, 'ride_released', h.at, 'operator:' || p_reason from released h;
  end if;
  return query select nullif(v_judged, 'repeated'), v_judged is null;
end $$;

-- Under the ride's lock. `repeated`: it is as p_held asks already.
create or replace function judge_hold(p_region smallint, p_ride_id uuid, p_held boolean)
returns text language plpgsql as $$
declare
  v_ride rides;
begin
  select * into v_ride from rides where region = p_region and id = p_ride_id;
  return case
    when v_ride.id is null then 'ride_not_found'
    when v_ride.status <> 'searching' then 'ride_not_searching'
    when coalesce(v_ride.held_until > greatest(clock_timestamp(), v_ride.updated_at), false) = p_held then 'repeated'
  end;
end $$;
