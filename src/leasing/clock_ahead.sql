-- What a clock that was ahead leaves behind when it is put back: terms that begin in the future, and would live until the
-- clock has come there again. A term's times may be later than now by what its row was touched at; not by a second.
create or replace function terms_ahead(p_region smallint, p_limit int)
returns table (offer_id uuid, lifetime_ms int)
language plpgsql stable as $$
#variable_conflict use_column
begin
  return query
  select o.id, ceil(extract(epoch from o.lifetime_ends_at - o.granted_at) * 1000)::int
  from offers o
  where o.region = p_region and o.due_at is not null and o.granted_at > clock_timestamp() + interval '1 second'
  order by o.due_at desc limit p_limit;
end $$;

-- Ends such terms, for a caller who has known of them for longer than they may live. By the clock that they were granted
-- by it is their end, or later. Never waits.
create or replace function end_terms_ahead(p_region smallint, p_offer_ids uuid[])
returns table (offer_id uuid, driver_id text, ended_as text, held_ms real)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region,
    array(select o.ride_id from offers o where o.region = p_region and o.id = any(p_offer_ids)), false);
  v_drivers text[] := lock_drivers(p_region,
    array(select o.driver_id from offers o where o.region = p_region and o.id = any(p_offer_ids)), false);
  v_over uuid[];
  v_status text[];
  v_end timestamptz;
begin
  select array_agg(o.id), array_agg(case when d.lease_received_at is null then 'undeliverable' else 'expired' end),
    max(d.lease_expires_at)
  into v_over, v_status, v_end
  from offers o
  join driver_state d on d.region = p_region and d.driver_id = o.driver_id and d.offer_id = o.id
  where o.region = p_region and o.id = any(p_offer_ids) and o.status = 'pending'
    and o.ride_id = any(v_rides) and o.driver_id = any(v_drivers);
  if v_over is null then return; end if;
  perform end_offers(p_region, v_over, v_status, array[]::text[], false, true, v_end);
  return query
  select o.id, o.driver_id, o.status, (extract(epoch from o.ended_at - o.granted_at) * 1000)::real
  from offers o where o.region = p_region and o.id = any(v_over);
end $$;

-- Rides that are due later than any wait that the region's policy or their own allows (a second is for how long the transaction
-- took) are due now, unless an operator holds them, and have no more patience than a new ride. Never waits. Returns how many.
create or replace function bring_rides_forward(p_region smallint, p_wait_max_ms int, p_limit int)
returns int language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
  v_moved int;
begin
  update rides r set queue_at = v_now, version = r.version + 1, patience_until = least(r.patience_until,
    v_now + make_interval(secs => policy_number(p_region, r.policy_version, 'patienceMs', 0) / 1000.0))
  from (select id from rides where region = p_region and queue_at > v_now + make_interval(secs => 1 + p_wait_max_ms / 1000.0)
    and queue_at > v_now + make_interval(secs => 1 + greatest(policy_number(p_region, policy_version, 'retryMaxMs', 0),
      policy_number(p_region, policy_version, 'rescueMs', 0)) / 1000.0)
    and coalesce(held_until <= v_now, true) order by queue_at limit p_limit for no key update skip locked) late
  where r.region = p_region and r.id = late.id;
  get diagnostics v_moved = row_count;
  return v_moved;
end $$;
