-- offline → available. Whoever is available, leased or assigned already is a repetition.
create or replace function bring_online(p_region smallint, p_driver_ids text[], p_wait boolean)
returns table (ord int, refused text, applied boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_drivers text[] := lock_drivers(p_region, p_driver_ids, p_wait);
  v_now timestamptz := clock_timestamp();
begin
  return query
  with online as (
    update driver_state d set status = 'available', version = d.version + 1, updated_at = greatest(v_now, d.updated_at)
    where d.region = p_region and d.driver_id = any(v_drivers) and d.status = 'offline'
    returning d.driver_id
  ),
  present as (
    insert into driver_presence as p (region, driver_id, seen_at)
    select p_region, driver_id, v_now from unnest(v_drivers) driver_id order by driver_id
    on conflict (region, driver_id) do update set seen_at = v_now
  )
  select a.ord::int,
    case when d.driver_id is null then 'driver_not_found' when a.driver_id <> all(v_drivers) then 'busy' end,
    o.driver_id is not null
  from unnest(p_driver_ids) with ordinality a(driver_id, ord)
  left join driver_state d on d.region = p_region and d.driver_id = a.driver_id
  left join online o on o.driver_id = a.driver_id
  order by a.ord;
end $$;

-- available, leased → offline: an open offer ends `declined`. Whoever is assigned finishes the ride first.
create or replace function take_offline(p_region smallint, p_driver_ids text[], p_reason text, p_wait boolean)
returns table (ord int, refused text, applied boolean, ended_offer_id uuid, held_ms real)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, array(
    select leased_to_ride_id from driver_state
    where region = p_region and driver_id = any(p_driver_ids) and status = 'leased'), p_wait);
  v_drivers text[] := lock_drivers(p_region, p_driver_ids, p_wait);
  v_now timestamptz := clock_timestamp();
  v_offers uuid[];
begin
  -- A driver who was leased to another ride since the rides were locked: not now.
  v_drivers := array(select d.driver_id from driver_state d
    where d.region = p_region and d.driver_id = any(v_drivers)
      and (d.status <> 'leased' or d.leased_to_ride_id = any(v_rides)));
  v_offers := array(select d.offer_id from driver_state d
    where d.region = p_region and d.driver_id = any(v_drivers) and d.status = 'leased');
  perform end_offers(p_region, v_offers, array_fill('declined'::text, array[cardinality(v_offers)]),
    array_fill(p_reason, array[cardinality(v_offers)]), false, true, v_now);

  return query
  with gone as (
    update driver_state d set status = 'offline', version = d.version + 1, updated_at = greatest(v_now, d.updated_at)
    where d.region = p_region and d.driver_id = any(v_drivers) and d.status = 'available'
    returning d.driver_id
  ),
  absent as (
    delete from driver_presence p using gone g where p.region = p_region and p.driver_id = g.driver_id
  )
  select a.ord::int,
    case
      when d.driver_id is null then 'driver_not_found'
      when a.driver_id <> all(v_drivers) then 'busy'
      when d.status = 'assigned' then 'driver_assigned'
    end,
    g.driver_id is not null, o.id, (extract(epoch from o.ended_at - o.granted_at) * 1000)::real
  from unnest(p_driver_ids) with ordinality a(driver_id, ord)
  left join driver_state d on d.region = p_region and d.driver_id = a.driver_id
  left join gone g on g.driver_id = a.driver_id
  left join offers o on o.region = p_region and o.id = any(v_offers) and o.driver_id = a.driver_id
  order by a.ord;
end $$;

-- available → offline for drivers not seen within the grace; in steps along the driver ids, and never waits.
-- Returns the last driver looked at: null when the region is done.
create or replace function retire_absent(p_region smallint, p_after text, p_limit int, p_grace_ms int)
returns table (last_driver_id text, retired text[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_seen_since timestamptz := clock_timestamp() - make_interval(secs => p_grace_ms / 1000.0);
  v_looked text[] := array(
    select d.driver_id from driver_state d where d.region = p_region and d.driver_id > p_after
    order by d.driver_id limit p_limit);
  v_drivers text[];
begin
  -- When nobody was seen lately it is we who don't see: a stalled gateway, or positions lost in a crash.
  if not exists (select from driver_presence p where p.region = p_region
                 and p.seen_at > clock_timestamp() - make_interval(secs => p_grace_ms / 3000.0)) then
    return query select v_looked[cardinality(v_looked)], array[]::text[];
    return;
  end if;
  v_drivers := lock_drivers(p_region, array(
    select d.driver_id from driver_state d
    left join driver_presence p on p.region = p_region and p.driver_id = d.driver_id
    where d.region = p_region and d.driver_id = any(v_looked) and d.status = 'available'
      and d.updated_at < v_seen_since and (p.seen_at is null or p.seen_at < v_seen_since)), false);

  return query
  with gone as (
    update driver_state d set status = 'offline', version = d.version + 1,
      updated_at = greatest(clock_timestamp(), d.updated_at)
    where d.region = p_region and d.driver_id = any(v_drivers) and d.status = 'available'
      and not exists (select from driver_presence p
        where p.region = p_region and p.driver_id = d.driver_id and p.seen_at >= v_seen_since)
    returning d.driver_id
  )
  select v_looked[cardinality(v_looked)], array(select g.driver_id from gone g);
end $$;
