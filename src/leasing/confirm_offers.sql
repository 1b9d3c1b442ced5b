-- leased → assigned. The first accept of a ride wins; the ride's other offers are withdrawn by the same
-- transaction. The answers are what the change recorded, or, of a set in which not all win, read by a later statement: a
-- winner, a repetition and a loser all hear what the records say.
create or replace function confirm_offers(
  p_region smallint, p_offer_ids uuid[], p_tokens text[], p_driver_ids text[], p_wait boolean)
returns table (ord int, refused text, applied boolean, ride_id uuid, driver_id text, fence bigint, assigned_at timestamptz,
  pickup_lat float8, pickup_lng float8, dropoff_lat float8, dropoff_lng float8, since_request_ms real, held_ms real,
  withdrawn_offer_ids uuid[], withdrawn_driver_ids text[], withdrawn_held_ms real[],
  policy_version int)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region,
    array(select ride_id from offers where region = p_region and id = any(p_offer_ids)), p_wait);
  -- Rides that have more offers out than the one that is confirmed: few, and none where one driver is asked at a time.
  v_shared uuid[] := array(select id from rides where region = p_region and id = any(v_rides) and live_offers > 1);
  v_drivers text[] := array(select driver_id from offers where region = p_region and id = any(p_offer_ids));
  v_now timestamptz;
  v_winners uuid[];
  v_ords int[];
  v_losers uuid[] := '{}';
  v_stuck uuid[];
begin
  if cardinality(v_shared) > 0 then
    v_drivers := v_drivers || array(
      select driver_id from offers where region = p_region and ride_id = any(v_shared) and due_at is not null);
  end if;
  v_drivers := lock_drivers(p_region, v_drivers, p_wait);
  v_now := clock_timestamp();
  -- Rides of which a loser's driver is held by someone else: not now.
  if cardinality(v_shared) > 0 then
    v_stuck := array(select o.ride_id from offers o
      where o.region = p_region and o.ride_id = any(v_shared) and o.due_at is not null and o.driver_id <> all(v_drivers));
    v_rides := array(select unnest(v_rides) except select unnest(v_stuck));
  end if;

  select array_agg(w.offer_id), array_agg(w.ord) into v_winners, v_ords from (
    select distinct on (j.ride_id) j.offer_id, j.ord
    from judge_terms(p_region, p_offer_ids, p_tokens, p_driver_ids, v_rides, v_drivers, 'accepted', v_now) j
    where j.verdict is null order by j.ride_id, j.ord) w;

  if v_winners is not null then
    if cardinality(v_shared) > 0 then
      v_losers := array(select l.id from offers w
        join offers l on l.region = p_region and l.ride_id = w.ride_id and l.due_at is not null and l.id <> w.id
        where w.region = p_region and w.id = any(v_winners) and w.ride_id = any(v_shared));
    end if;
    -- Mostly all of them win, each another ride that no other driver is asked for, and there is nothing left to judge.
    if cardinality(v_winners) = cardinality(p_offer_ids) and cardinality(v_losers) = 0 then
      return query
      select v_ords[a.nth], null::text, true, a.ride_id, a.driver_id, a.fence, a.assigned_at,
        a.pickup_lat, a.pickup_lng, a.dropoff_lat, a.dropoff_lng, a.since_request_ms, a.held_ms,
        null::uuid[], null::text[], null::real[], a.policy_version
      from assign_offers(p_region, v_winners, v_now) a;
      return;
    end if;
    -- In this order, so that the winner's time is the one that was judged, whatever is recorded on a loser.
    perform assign_offers(p_region, v_winners, v_now);
    perform end_offers(p_region, v_losers, array_fill('withdrawn'::text, array[cardinality(v_losers)]),
      array_fill('ride_taken'::text, array[cardinality(v_losers)]), false, false, v_now);
  end if;

  -- The verdicts are read by a later snapshot than the rest: of a term that others confirmed in between, the assignment
  -- isn't seen yet.
  return query
  with lost as materialized (
    select e.ride_id, array_agg(e.id) as ids, array_agg(e.driver_id) as drivers,
      array_agg((extract(epoch from e.ended_at - e.granted_at) * 1000)::real) as held_ms
    from offers e where e.region = p_region and e.id = any(v_losers) group by e.ride_id
  )
  select j.ord,
    nullif(case when j.verdict is null or j.verdict = 'repeated' and a.offer_id is null then 'busy' else j.verdict end, 'repeated'),
    coalesce(j.ord = any(v_ords), false), j.ride_id, j.driver_id, a.fence, a.assigned_at,
    r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng,
    (extract(epoch from a.assigned_at - r.requested_at) * 1000)::real,
    (extract(epoch from a.assigned_at - o.granted_at) * 1000)::real, l.ids, l.drivers, l.held_ms, r.policy_version
  from judge_terms(p_region, p_offer_ids, p_tokens, p_driver_ids, v_rides, v_drivers, 'accepted', v_now) j
  left join assignments a on a.region = p_region and a.offer_id = j.offer_id
  left join rides r on r.region = p_region and r.id = a.ride_id
  left join offers o on o.region = p_region and o.id = a.offer_id
  left join lost l on l.ride_id = j.ride_id and j.ord = any(v_ords)
  order by 1;
end $$;

-- The change itself, for offers judged live under the locks of their rides and drivers, one for each ride. Returns what was
-- recorded; `nth`: of the offers given.
create or replace function assign_offers(p_region smallint, p_offer_ids uuid[], p_now timestamptz)
returns table (nth int, ride_id uuid, driver_id text, fence bigint, assigned_at timestamptz,
  pickup_lat float8, pickup_lng float8, dropoff_lat float8, dropoff_lng float8, since_request_ms real, held_ms real,
  policy_version int)
language plpgsql as $$
#variable_conflict use_column
begin
  return query
  with winning as (
    select a.nth::int, o.id, o.ride_id, o.driver_id, o.fence, d.lease_expires_at, d.lease_received_at, r.event_seq + 1 as seq,
      greatest(p_now, d.updated_at, r.updated_at) as at, o.granted_at, r.requested_at,
      r.pickup_lat, r.pickup_lng, r.dropoff_lat, r.dropoff_lng, r.policy_version
    from unnest(p_offer_ids) with ordinality a(offer_id, nth)
    join offers o on o.region = p_region and o.id = a.offer_id
    join driver_state d on d.region = p_region and d.driver_id = o.driver_id and d.offer_id = o.id
    join rides r on r.region = p_region and r.id = o.ride_id
  ),
  accepted as (
    update offers o set
      status = 'accepted', ended_at = w.at, due_at = null, proof = o.token_hash,
      received_at = coalesce(w.lease_received_at, w.at), expires_at = w.lease_expires_at, version = o.version + 1
    from winning w
    where o.region = p_region and o.id = w.id and o.status = 'pending'
  ),
  held as (
    update driver_state d set
      status = 'assigned', lease_token = null, lease_granted_at = null, lease_received_at = null,
      lease_expires_at = null, version = d.version + 1, updated_at = w.at
    from winning w
    where d.region = p_region and d.driver_id = w.driver_id and d.status = 'leased' and d.offer_id = w.id
  ),
  taken as (
    update rides r set
      status = 'assigned', assigned_driver_id = w.driver_id, assigned_offer_id = w.id, queue_at = null, held_until = null,
      live_offers = 0, event_seq = w.seq, version = r.version + 1, updated_at = w.at
    from winning w
    where r.region = p_region and r.id = w.ride_id and r.status = 'searching'
  ),
  assigned as (
    insert into assignments (region, offer_id, ride_id, driver_id, fence, assigned_at)
    select p_region, w.id, w.ride_id, w.driver_id, w.fence, w.at from winning w
  ),
  told as (
    insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
    select p_region, w.ride_id, w.seq, 'offer_accepted', w.at, w.driver_id, w.id, w.fence from winning w
  )
  select w.nth, w.ride_id, w.driver_id, w.fence, w.at, w.pickup_lat, w.pickup_lng, w.dropoff_lat, w.dropoff_lng,
    (extract(epoch from w.at - w.requested_at) * 1000)::real, (extract(epoch from w.at - w.granted_at) * 1000)::real,
    w.policy_version
  from winning w;
end $$;
