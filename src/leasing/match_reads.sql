-- What a round looks at, in one answer: whether leases or waits at the pickup are over, so that the round has to end them
-- first; the rides that are due, those waiting longest first; and when the next one will be (null: none is queued).
create or replace function open_round(p_region smallint, p_limit int)
returns table (is_overdue boolean, next_in_ms int, rides json)
language plpgsql stable as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  return query
  select
    coalesce(first_end(p_region) <= v_now, false),
    (select ceil(extract(epoch from r.queue_at - v_now) * 1000)::int from rides r
      where r.region = p_region and r.queue_at is not null and r.queue_at > v_now order by r.queue_at limit 1),
    (select coalesce(json_agg(due), '[]') from (
      select r.id as ride_id, r.pickup_lat, r.pickup_lng, r.vehicle_class, r.seats, r.attributes, r.accepts_lower_class,
        r.policy_version, r.empty_rounds, r.live_offers, r.offers_made, r.excluded_driver_ids, r.excluded_as,
        case when cardinality(r.excluded_at) = 0 then '{}' else array(
          select (extract(epoch from v_now - e.at) * 1000)::float8 from unnest(r.excluded_at) with ordinality e(at, n) order by e.n) end as excluded_ages_ms,
        array(select b.driver_id from rider_driver_blocks b where b.region = p_region and b.rider_id = r.rider_id) as blocked_driver_ids,
        extract(epoch from r.requested_at)::float8 * 1000 as requested_at_ms,
        extract(epoch from v_now - r.requested_at)::float8 * 1000 as waited_ms,
        ceil(extract(epoch from r.patience_until - v_now) * 1000)::int as patience_left_ms, r.dropoff_lat, r.dropoff_lng
      from rides r
      where r.region = p_region and r.queue_at is not null and r.queue_at <= v_now
      order by r.queue_at limit p_limit) due);
end $$;

-- Drivers of a status with a fresh position (`available`: who may be asked), in the given cells (null: anywhere in the
-- region). One text for all of them, `id,latitude,longitude,class,seats,attributes,max_pickup_m,shift_left_s,cell;…` with the
-- attributes joined by `+`, and degrees as whole numbers of 1e-7: of 2,000 drivers a row each took 30 ms to make and to
-- read, eight arrays took 15, this takes 8.
create or replace function drivers_near(p_region smallint, p_status text, p_cells int8[], p_stale_ms int)
returns text
language plpgsql stable as $$
declare
  v_now timestamptz := clock_timestamp();
  v_fresh_since timestamptz := v_now - make_interval(secs => p_stale_ms / 1000.0);
  -- A position of a clock that was ahead says nothing: whoever is there sends the next one.
  v_fresh_until timestamptz := v_now + interval '1 second';
begin
  if p_cells is null then
    return (
      select string_agg(d.driver_id || ',' || (p.lat * 1e7)::int || ',' || (p.lng * 1e7)::int || ',' || d.vehicle_class || ',' || d.seats || ','
        || array_to_string(d.attributes, '+') || ',' || coalesce(d.max_pickup_m::text, '') || ','
        || coalesce(least(extract(epoch from d.shift_ends_at - v_now), 1e9)::int::text, '') || ',' || p.cell, ';')
      from driver_presence p
      join driver_state d on d.region = p_region and d.driver_id = p.driver_id and d.status = p_status
      where p.region = p_region and p.position_at > v_fresh_since and p.position_at <= v_fresh_until);
  end if;
  return (
    select string_agg(d.driver_id || ',' || (p.lat * 1e7)::int || ',' || (p.lng * 1e7)::int || ',' || d.vehicle_class || ',' || d.seats || ','
        || array_to_string(d.attributes, '+') || ',' || coalesce(d.max_pickup_m::text, '') || ','
        || coalesce(least(extract(epoch from d.shift_ends_at - v_now), 1e9)::int::text, '') || ',' || p.cell, ';')
    from driver_presence p
    join driver_state d on d.region = p_region and d.driver_id = p.driver_id and d.status = p_status
    where p.region = p_region and p.cell = any(p_cells) and p.position_at > v_fresh_since and p.position_at <= v_fresh_until);
end $$;

-- When the first of a region's leases, or of its waits at a pickup, is over. The first of an index: asked whether one
-- "exists", the planner of an analysed table took any index of pending offers, and walked it.
create or replace function first_end(p_region smallint)
returns timestamptz language plpgsql stable as $$
begin
  return least(
    (select o.due_at from offers o where o.region = p_region and o.due_at is not null order by o.due_at limit 1),
    (select r.no_show_at from rides r where r.region = p_region and r.no_show_at is not null order by r.no_show_at limit 1));
end $$;

-- Whether a ride has been due for longer than p_by_ms, or a lease over, which hides its driver and its ride.
create or replace function is_ride_overdue(p_region smallint, p_by_ms int)
returns boolean language plpgsql stable as $$
begin
  return coalesce(clock_timestamp() - make_interval(secs => p_by_ms / 1000.0) >= least(first_end(p_region),
    (select r.queue_at from rides r where r.region = p_region and r.queue_at is not null order by r.queue_at limit 1)), false);
end $$;

-- One look at all regions, however many there are: those in which something is over within p_within_ms, and when (0: it
-- is). A sweep mostly finds nothing to do.
create or replace function ending_regions(p_within_ms int)
returns table (number smallint, in_ms int) language plpgsql stable as $$
begin
  return query
  select e.number, greatest(0, ceil(extract(epoch from e.first - clock_timestamp()) * 1000))::int
  from (select g.number, first_end(g.number) as first from regions g) e
  where e.first <= clock_timestamp() + make_interval(secs => p_within_ms / 1000.0);
end $$;

-- How many rides, up to p_limit, have been due for longer than p_by_ms.
create or replace function overdue_rides(p_region smallint, p_by_ms int, p_limit int)
returns int language plpgsql stable as $$
declare
  v_since timestamptz := clock_timestamp() - make_interval(secs => p_by_ms / 1000.0);
begin
  return (select count(*) from (
    select from rides r where r.region = p_region and r.queue_at is not null and r.queue_at <= v_since
    order by r.queue_at limit p_limit) overdue);
end $$;
