-- Live offers that no device has acknowledged a while after their grant: their push may have been lost.
create or replace function undelivered_offers(p_region smallint, p_after_ms int, p_limit int)
returns table (offer_id uuid, ride_id uuid, driver_id text, lease_token text, fence bigint, decision_ttl_ms int,
  pickup_lat float8, pickup_lng float8, dropoff_lat float8, dropoff_lng float8, pickup_eta_s real)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  return query
  select o.id, o.ride_id, o.driver_id, d.lease_token, o.fence, o.decision_ttl_ms,
    r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng, o.pickup_eta_s
  from offers o
  -- Along the pending offers, not along the drivers, whatever the planner thinks of their numbers.
  cross join lateral (
    select s.lease_token from driver_state s
    where s.region = p_region and s.driver_id = o.driver_id and s.offer_id = o.id
      and s.lease_received_at is null and s.lease_expires_at > v_now offset 0) d
  join rides r on r.region = p_region and r.id = o.ride_id
  where o.region = p_region and o.due_at is not null and o.granted_at < v_now - make_interval(secs => p_after_ms / 1000.0)
  order by o.due_at limit p_limit;
end $$;
