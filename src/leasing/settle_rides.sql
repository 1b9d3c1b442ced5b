-- What a round does with the rides it found nobody for (p_reasons: why): later again, with a wider radius; or, when
-- patience or offers have run out and none is open, on the operators' rescue list for p_rescue_ms, once; or, when that is
-- over too, searching → no_drivers_available. Rides that an operator holds are left alone. Never waits. While drivers' positions are younger than
-- p_recovery_ms (the positions' table is lost in a crash) nobody's patience ends.
create or replace function settle_rides(
  p_region smallint, p_ride_ids uuid[], p_wait_ms int[], p_reasons text[], p_offers_max int, p_rescue_ms int, p_recovery_ms int)
returns table (ride_id uuid, given_up boolean, to_rescue boolean, reason text, again_in_ms int)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, p_ride_ids, false);
  v_now timestamptz := clock_timestamp();
  v_patience_from timestamptz;
begin
  insert into presence_epochs (region, since) values (p_region, v_now) on conflict (region) do nothing;
  -- Written by a clock that was ahead.
  update presence_epochs set since = v_now where region = p_region and since > v_now;
  select since + make_interval(secs => p_recovery_ms / 1000.0) into v_patience_from
  from presence_epochs where region = p_region;

  return query
  with looked as (
    select r.id, a.wait_ms, case when r.offers_made >= p_offers_max then 'offers_used_up' else a.reason end as reason,
      greatest(v_now, r.updated_at) as at,
      r.live_offers = 0 and (r.offers_made >= p_offers_max
        or (r.patience_until <= greatest(v_now, r.updated_at) and v_patience_from <= v_now)) as is_finished,
      p_rescue_ms > 0 and r.rescue_until is null as may_be_rescued,
      r.rescue_until > greatest(v_now, r.updated_at) as is_in_rescue
    from unnest(p_ride_ids, p_wait_ms, p_reasons) a(ride_id, wait_ms, reason)
    join rides r on r.region = p_region and r.id = a.ride_id
    where r.id = any(v_rides) and r.status = 'searching' and r.queue_at is not null and coalesce(r.held_until <= v_now, true)
  ),
  due as (
    select l.*, l.is_finished and not l.may_be_rescued and l.is_in_rescue is not true as over,
      l.is_finished and l.may_be_rescued as to_rescue
    from looked l
  ),
  settled as (
    update rides r set
      status = case when d.over then 'no_drivers_available' else r.status end,
      ended_at = case when d.over then d.at end,
      rescue_until = case when d.to_rescue then d.at + make_interval(secs => p_rescue_ms / 1000.0) else r.rescue_until end,
      queue_at = case
        when d.over then null
        when d.to_rescue then d.at + make_interval(secs => p_rescue_ms / 1000.0)
        when r.rescue_until > d.at then r.rescue_until
        else d.at + make_interval(secs => d.wait_ms / 1000.0) end,
      empty_rounds = r.empty_rounds + 1,
      event_seq = r.event_seq + (d.over or d.to_rescue)::int, version = r.version + 1, updated_at = d.at
    from due d
    where r.region = p_region and r.id = d.id and r.status = 'searching' and (not d.over or r.live_offers = 0)
    returning r.id, d.over, d.to_rescue, r.event_seq, d.at, d.reason, r.queue_at
  ),
  told as (
    insert into ride_events (region, ride_id, seq, type, at, reason)
    select p_region, s.id, s.event_seq, case when s.over then 'no_drivers_available' else 'rescue_needed' end, s.at, s.reason
    from settled s where s.over or s.to_rescue
  )
  select s.id, s.over, s.to_rescue, s.reason, ceil(extract(epoch from s.queue_at - s.at) * 1000)::int from settled s;
end $$;
