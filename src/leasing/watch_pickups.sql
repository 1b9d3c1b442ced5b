-- Rides whose drivers are on their way to the pickup: a step along the region. What a match round knows of a ride, the driver
-- (null for a position that is older than p_stale_ms), and how near he has come.
create or replace function rides_on_pickup(p_region smallint, p_after uuid, p_limit int, p_stale_ms int)
returns table (ride_id uuid, driver_id text, offer_id uuid, driver_lat float8, driver_lng float8,
  nearest_m real, since_nearer_ms float8, stalled boolean,
  pickup_lat float8, pickup_lng float8, dropoff_lat float8, dropoff_lng float8, vehicle_class text, seats smallint,
  attributes text[], accepts_lower_class boolean, policy_version int, offers_made smallint,
  excluded_driver_ids text[], excluded_as text[], excluded_ages_ms float8[], blocked_driver_ids text[],
  requested_at_ms float8, waited_ms float8)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_fresh_since timestamptz := v_now - make_interval(secs => p_stale_ms / 1000.0);
begin
  return query
  select r.id, r.assigned_driver_id, r.assigned_offer_id, p.lat, p.lng,
    w.nearest_m, extract(epoch from v_now - w.nearer_at)::float8 * 1000, r.stalled_since is not null,
    r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng, r.vehicle_class, r.seats,
    r.attributes, r.accepts_lower_class, r.policy_version, r.offers_made,
    r.excluded_driver_ids, r.excluded_as,
    case when cardinality(r.excluded_at) = 0 then '{}' else array(
      select (extract(epoch from v_now - e.at) * 1000)::float8 from unnest(r.excluded_at) with ordinality e(at, n) order by e.n) end,
    array(select b.driver_id from rider_driver_blocks b where b.region = p_region and b.rider_id = r.rider_id),
    extract(epoch from r.requested_at)::float8 * 1000, extract(epoch from v_now - r.requested_at)::float8 * 1000
  from rides r
  left join driver_presence p on p.region = p_region and p.driver_id = r.assigned_driver_id and p.position_at > v_fresh_since
  left join pickup_progress w on w.region = p_region and w.ride_id = r.id and w.offer_id = r.assigned_offer_id
  where r.region = p_region and r.ended_at is null and r.id > p_after and r.status = 'assigned'
  order by r.id limit p_limit;
end $$;

-- Drivers who have come nearer (or are looked at for the first time), and the end of what is kept of drivers who are there.
create or replace function record_pickups(p_region smallint, p_ride_ids uuid[], p_offer_ids uuid[], p_distances_m real[])
returns void language plpgsql as $$
begin
  insert into pickup_progress as w (region, ride_id, offer_id, nearest_m, nearer_at)
  select p_region, a.ride_id, a.offer_id, a.distance_m, clock_timestamp()
  from unnest(p_ride_ids, p_offer_ids, p_distances_m) a(ride_id, offer_id, distance_m) order by a.ride_id
  on conflict (region, ride_id) do update set
    offer_id = excluded.offer_id, nearest_m = excluded.nearest_m, nearer_at = excluded.nearer_at;
end $$;

create or replace function drop_pickups(p_region smallint, p_limit int)
returns int language plpgsql as $$
declare
  v_dropped int;
begin
  delete from pickup_progress w where w.region = p_region and w.ride_id = any(array(
    select o.ride_id from pickup_progress o where o.region = p_region and not exists (
      select from rides r where r.region = p_region and r.id = o.ride_id and r.status = 'assigned') limit p_limit));
  get diagnostics v_dropped = row_count;
  return v_dropped;
end $$;

-- Tells of drivers who don't come nearer any more (p_stalled: since when), or do so again (null). Never waits.
create or replace function flag_pickups(p_region smallint, p_ride_ids uuid[], p_offer_ids uuid[], p_stalled_ms float8[])
returns table (ride_id uuid, stalled boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, p_ride_ids, false);
  v_now timestamptz := clock_timestamp();
begin
  return query
  with flagging as (
    select distinct on (r.id) r.id, d.driver_id, d.offer_id, d.fence, greatest(v_now, r.updated_at) as at,
      v_now - make_interval(secs => a.stalled_ms / 1000.0) as since
    from unnest(p_ride_ids, p_offer_ids, p_stalled_ms) a(ride_id, offer_id, stalled_ms)
    join rides r on r.region = p_region and r.id = a.ride_id
    join driver_state d on d.region = p_region and d.driver_id = r.assigned_driver_id
    where r.id = any(v_rides) and r.status = 'assigned' and r.assigned_offer_id = a.offer_id and d.offer_id = a.offer_id
      and (r.stalled_since is null) = (a.stalled_ms is not null)
  ),
  flagged as (
    update rides r set stalled_since = f.since, event_seq = r.event_seq + 1, version = r.version + 1, updated_at = f.at
    from flagging f where r.region = p_region and r.id = f.id and r.status = 'assigned'
    returning r.id, r.event_seq
  ),
  told as (
    insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
    select p_region, f.id, g.event_seq, case when f.since is null then 'pickup_resumed' else 'pickup_stalled' end, f.at,
      f.driver_id, f.offer_id, f.fence
    from flagging f join flagged g on g.id = f.id
  )
  select f.id, f.since is not null from flagging f join flagged g on g.id = f.id;
end $$;

-- assigned → searching: takes flagged rides from the drivers who don't come. Whoever has arrived since keeps his. Never waits.
create or replace function replace_stalled(p_region smallint, p_ride_ids uuid[], p_offer_ids uuid[])
returns table (ride_id uuid, driver_id text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, p_ride_ids, false);
  v_drivers text[];
begin
  select coalesce(array_agg(r.id), '{}'), coalesce(array_agg(r.assigned_driver_id), '{}') into v_rides, v_drivers
  from unnest(p_ride_ids, p_offer_ids) a(ride_id, offer_id)
  join rides r on r.region = p_region and r.id = a.ride_id and r.assigned_offer_id = a.offer_id
  where r.id = any(v_rides) and r.status = 'assigned' and r.stalled_since is not null;
  return query
  select v_rides[u.ord], v_drivers[u.ord]
  from unassign_rides(p_region, v_rides, v_drivers, array_fill('system'::text, array[cardinality(v_rides)]),
    array_fill('stalled'::text, array[cardinality(v_rides)]), false) u
  where u.applied;
end $$;
