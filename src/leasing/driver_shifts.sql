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

-- Whether those who aren't seen are gone: somebody else was seen lately, or a gateway has watched for as long as the grace, and
-- there is nobody to be seen. Otherwise it is we who don't see: no gateway is up, or one is stalled, or the positions were lost
-- in a crash.
create or replace function may_retire(p_region smallint, p_grace_ms int)
returns boolean language plpgsql stable as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  return exists (select from driver_presence p where p.region = p_region
      and p.seen_at > v_now - make_interval(secs => p_grace_ms / 3000.0) and p.seen_at <= v_now + interval '1 second')
    or exists (select from presence_epochs e where e.region = p_region
      and e.watched_at > v_now - make_interval(secs => p_grace_ms / 2000.0)
      and e.since <= v_now - make_interval(secs => p_grace_ms / 1000.0));
end $$;

-- A gateway says that it watches. After a time in which none did, as long as half a region's grace, positions are known from
-- now on.
create or replace function watch_regions(p_regions smallint[], p_graces_ms int[])
returns void language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  perform from presence_epochs e where e.region = any(p_regions) order by e.region for no key update;
  update presence_epochs e set watched_at = v_now,
    since = case when e.watched_at > v_now - make_interval(secs => a.grace_ms / 2000.0) then least(e.since, v_now) else v_now end
  from unnest(p_regions, p_graces_ms) a(region, grace_ms) where e.region = a.region;
  insert into presence_epochs (region, since, watched_at)
  select region, v_now, v_now from unnest(p_regions) region order by region
  on conflict (region) do nothing;
end $$;

-- available → offline for drivers not seen within the grace; in steps along the driver ids, and never waits. What a clock that
-- was ahead has seen says nothing: whoever is there is seen again.
-- Returns the last driver looked at: null when the region is done.
create or replace function retire_absent(p_region smallint, p_after text, p_limit int, p_grace_ms int)
returns table (last_driver_id text, retired text[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_seen_since timestamptz := clock_timestamp() - make_interval(secs => p_grace_ms / 1000.0);
  v_seen_until timestamptz := clock_timestamp() + interval '1 second';
  v_looked text[] := array(
    select d.driver_id from driver_state d where d.region = p_region and d.driver_id > p_after
    order by d.driver_id limit p_limit);
  v_drivers text[];
begin
  if p_after = '' and not may_retire(p_region, p_grace_ms) then
    return query select null::text, array[]::text[];
    return;
  end if;
  v_drivers := lock_drivers(p_region, array(
    select d.driver_id from driver_state d
    left join driver_presence p on p.region = p_region and p.driver_id = d.driver_id
    where d.region = p_region and d.driver_id = any(v_looked) and d.status = 'available'
      and d.updated_at < v_seen_since and (p.seen_at is null or p.seen_at < v_seen_since or p.seen_at > v_seen_until)), false);

  return query
  with gone as (
    update driver_state d set status = 'offline', version = d.version + 1,
      updated_at = greatest(clock_timestamp(), d.updated_at)
    where d.region = p_region and d.driver_id = any(v_drivers) and d.status = 'available'
      and not exists (select from driver_presence p where p.region = p_region and p.driver_id = d.driver_id
        and p.seen_at >= v_seen_since and p.seen_at <= v_seen_until)
    returning d.driver_id
  ),
  absent as (
    delete from driver_presence p using gone g where p.region = p_region and p.driver_id = g.driver_id
  )
  select v_looked[cardinality(v_looked)], array(select g.driver_id from gone g);
end $$;
