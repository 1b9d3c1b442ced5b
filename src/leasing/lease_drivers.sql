-- available → leased. Pairs of ride and driver; a pair is granted if the driver is available AND the ride still
-- searches and has room for another offer. A matcher says how many of the ride's exclusions it has seen, so that a
-- driver who came to be excluded since isn't asked, nor for a ride that an operator holds (null: whoever asks knows why).
create or replace function lease_drivers(
  p_region smallint,
  p_ride_ids uuid[], p_driver_ids text[], p_offer_ids uuid[], p_tokens text[], p_pickup_eta_s real[],
  p_seen_exclusions int[],
  p_policy_version int, p_parallel_offers int, p_offers_max int,
  p_delivery_ttl_ms int, p_decision_ttl_ms int, p_max_lifetime_ms int,
  p_wait boolean)
returns table (ord int, refused text, fence bigint, first_offer_after_ms real)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region, p_ride_ids, p_wait);
  v_drivers text[] := lock_drivers(p_region, p_driver_ids, p_wait);
  v_floor bigint := fence_floor();
  v_now timestamptz := clock_timestamp();
begin
  return query
  with asked as (
    select a.ord::int, a.ride_id, a.driver_id, a.offer_id, a.token, a.pickup_eta_s, a.seen_exclusions
    from unnest(p_ride_ids, p_driver_ids, p_offer_ids, p_tokens, p_pickup_eta_s, p_seen_exclusions)
      with ordinality a(ride_id, driver_id, offer_id, token, pickup_eta_s, seen_exclusions, ord)
  ),
  seen as (
    select a.*, r.id is not null as ride_known, d.driver_id is not null as driver_known,
      a.ride_id = any(v_rides) and a.driver_id = any(v_drivers) as locked,
      r.status = 'searching' as ride_searches, a.seen_exclusions is not null and r.held_until > v_now as held, d.status = 'available' as driver_free,
      -- Not `exists`, for which the planner may read all blocks of the region once instead.
      coalesce((select true from rider_driver_blocks b
        where b.region = p_region and b.rider_id = r.rider_id and b.driver_id = a.driver_id limit 1), false) as blocked,
      coalesce(a.driver_id = any(r.excluded_driver_ids[a.seen_exclusions + 1:]), false) as excluded,
      least(p_parallel_offers - r.live_offers, p_offers_max - r.offers_made) as room,
      r.offers_made, r.requested_at, r.search_try, r.event_seq,
      greatest(v_now, r.updated_at, max(d.updated_at) over (partition by a.ride_id)) as at
    from asked a
    left join rides r on r.region = p_region and r.id = a.ride_id
    left join driver_state d on d.region = p_region and d.driver_id = a.driver_id
  ),
  -- A driver goes to the first pair of the set that names him, a ride takes as many as it has room for.
  one_per_driver as (
    select distinct on (s.driver_id) s.* from seen s
    where s.locked and s.ride_searches and s.held is not true and not s.blocked and not s.excluded and s.driver_free order by s.driver_id, s.ord
  ),
  fitting as (
    select f.*, row_number() over (partition by f.ride_id order by f.ord)::int as place from one_per_driver f
  ),
  granted as (
    update driver_state d set
      status = 'leased', leased_to_ride_id = f.ride_id, offer_id = f.offer_id, lease_token = f.token,
      lease_granted_at = f.at, lease_received_at = null,
      lease_expires_at = f.at + make_interval(secs => p_delivery_ttl_ms / 1000.0),
      fence = greatest(d.fence, v_floor) + 1, version = d.version + 1, updated_at = f.at
    from fitting f
    where d.region = p_region and d.driver_id = f.driver_id and d.status = 'available' and f.place <= f.room
    returning f.ord, f.ride_id, f.place, f.search_try, f.event_seq + f.place as seq, d.driver_id, d.offer_id, f.token, f.pickup_eta_s, d.fence, f.at, d.lease_expires_at
  ),
  made as (
    insert into offers (region, id, ride_id, driver_id, fence, status, token_hash, granted_at, expires_at,
      lifetime_ends_at, due_at, decision_ttl_ms, pickup_eta_s, search_try, policy_version)
    select p_region, g.offer_id, g.ride_id, g.driver_id, g.fence, 'pending', sha256(convert_to(g.token, 'UTF8')), g.at,
      g.lease_expires_at, g.at + make_interval(secs => p_max_lifetime_ms / 1000.0), g.lease_expires_at,
      p_decision_ttl_ms, g.pickup_eta_s, g.search_try, p_policy_version
    from granted g
  ),
  offered as (
    update rides r set
      live_offers = r.live_offers + n.granted, offers_made = r.offers_made + n.granted,
      queue_at = case when r.live_offers + n.granted >= p_parallel_offers or r.offers_made + n.granted >= p_offers_max
        then null else r.queue_at end,
      event_seq = r.event_seq + n.granted, version = r.version + 1, updated_at = n.at
    from (select g.ride_id, count(*)::int as granted, max(g.at) as at from granted g group by g.ride_id) n
    where r.region = p_region and r.id = n.ride_id
  ),
  told as (
    insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
    select p_region, g.ride_id, g.seq, 'offer_made', g.at, g.driver_id, g.offer_id, g.fence
    from granted g
  )
  select s.ord,
    case
      when g.ord is not null then null
      when not s.ride_known then 'ride_not_found'
      when not s.driver_known then 'driver_not_found'
      when not s.locked then 'busy'
      when not s.ride_searches then 'ride_not_searching'
      when s.held then 'ride_held'
      when s.blocked then 'driver_blocked'
      when s.excluded then 'driver_excluded'
      when not s.driver_free or f.ord is null then 'driver_unavailable'
      else 'ride_fully_offered'
    end,
    g.fence,
    case when g.place = 1 and s.offers_made = 0 then (extract(epoch from g.at - s.requested_at) * 1000)::real end
  from seen s left join fitting f on f.ord = s.ord left join granted g on g.ord = s.ord
  order by s.ord;
end $$;
