-- → searching. Keys go in first, in sorted order, so that two sets can't wait for each other in a circle; a ride is
-- made only for a key that is new (or older than a day), and a repetition is answered with the ride made then.
create or replace function create_rides(
  p_region smallint, p_ride_ids uuid[], p_rider_ids text[], p_vehicle_classes text[], p_seats smallint[], p_attributes text[], p_accept_lower_class text[],
  p_pickup_lats float8[], p_pickup_lngs float8[], p_dropoff_lats float8[], p_dropoff_lngs float8[],
  p_subjects text[], p_keys text[], p_request_hashes text[], p_policy_versions int[], p_patience_ms int[])
returns table (ord int, refused text, replayed boolean, ride_id uuid, requested_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  if array_length(array_remove(p_keys, null), 1) > 0 then
    insert into idempotency_keys as k (region, subject, route, key, request_hash, result_id, created_at)
    select distinct on (a.subject, a.key) p_region, a.subject, 'rides', a.key, decode(a.request_hash, 'hex'), a.ride_id, v_now
    from unnest(p_ride_ids, p_subjects, p_keys, p_request_hashes) with ordinality a(ride_id, subject, key, request_hash, ord)
    where a.key is not null
    order by a.subject, a.key, a.ord
    on conflict (region, subject, route, key) do update
      set request_hash = excluded.request_hash, result_id = excluded.result_id, created_at = excluded.created_at
      where k.created_at < v_now - interval '24 hours';
    v_now := clock_timestamp();
  end if;

  return query
  with asked as (
    select a.*, coalesce(k.result_id, a.ride_id) as result_id, k.request_hash <> decode(a.request_hash, 'hex') as reused
    from unnest(p_ride_ids, p_rider_ids, p_vehicle_classes, p_seats, p_attributes, p_accept_lower_class, p_pickup_lats, p_pickup_lngs, p_dropoff_lats, p_dropoff_lngs,
      p_subjects, p_keys, p_request_hashes, p_policy_versions, p_patience_ms) with ordinality
      a(ride_id, rider_id, vehicle_class, seats, attributes, accepts_lower_class, pickup_lat, pickup_lng, dropoff_lat, dropoff_lng, subject, key, request_hash, policy_version, patience_ms, ord)
    left join idempotency_keys k
      on k.region = p_region and k.subject = a.subject and k.route = 'rides' and k.key = a.key
  ),
  made as (
    insert into rides (region, id, rider_id, status, vehicle_class, seats, attributes, accepts_lower_class, pickup_lat, pickup_lng, dropoff_lat, dropoff_lng,
      policy_version, requested_at, patience_until, queue_at, event_seq, updated_at)
    select p_region, a.ride_id, a.rider_id, 'searching', a.vehicle_class, a.seats,
      string_to_array(a.attributes, ','), a.accepts_lower_class::boolean, a.pickup_lat, a.pickup_lng, a.dropoff_lat,
      a.dropoff_lng, a.policy_version, v_now, v_now + make_interval(secs => a.patience_ms / 1000.0), v_now, 1, v_now
    from asked a where a.result_id = a.ride_id
  ),
  told as (
    insert into ride_events (region, ride_id, seq, type, at)
    select p_region, a.ride_id, 1, 'ride_requested', v_now from asked a where a.result_id = a.ride_id
  )
  select a.ord::int, case when a.reused then 'idempotency_key_reused' end, a.result_id <> a.ride_id, a.result_id,
    coalesce(r.requested_at, v_now)
  from asked a left join rides r on r.region = p_region and r.id = a.result_id
  order by a.ord;
end $$;

-- Keys are kept for a day; what is older goes in bounded steps.
create or replace function drop_old_keys(p_region smallint, p_limit int)
returns int language plpgsql as $$
declare
  v_dropped int;
begin
  delete from idempotency_keys k using (
    select o.subject, o.route, o.key from idempotency_keys o
    where o.region = p_region and o.created_at < now() - interval '24 hours'
    order by o.created_at limit p_limit for update skip locked) old
  where k.region = p_region and k.subject = old.subject and k.route = old.route and k.key = old.key;
  get diagnostics v_dropped = row_count;
  return v_dropped;
end $$;
