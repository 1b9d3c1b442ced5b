-- leased, renewed: the device has the offer, and the driver gets the decision window, never past the lifetime.
-- A repeated receipt renews nothing and hears what is left.
create or replace function receive_offers(
  p_region smallint, p_offer_ids uuid[], p_tokens text[], p_driver_ids text[], p_wait boolean)
returns table (ord int, refused text, applied boolean, expires_in_ms int)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region,
    array(select ride_id from offers where region = p_region and id = any(p_offer_ids)), p_wait);
  v_drivers text[] := lock_drivers(p_region,
    array(select driver_id from offers where region = p_region and id = any(p_offer_ids)), p_wait);
  v_now timestamptz := clock_timestamp();
  v_applied int[];
  v_left_ms int[];
begin
  with winners as (
    select distinct on (j.offer_id) j.ord, j.ride_id, j.offer_id, j.driver_id,
      max(j.at) over (partition by j.ride_id) as at
    from judge_terms(p_region, p_offer_ids, p_tokens, p_driver_ids, v_rides, v_drivers, null, v_now) j
    where j.verdict is null and not j.received order by j.offer_id, j.ord
  ),
  renewed as (
    update driver_state d set
      lease_received_at = w.at,
      lease_expires_at = greatest(d.lease_expires_at,
        least(w.at + make_interval(secs => o.decision_ttl_ms / 1000.0), o.lifetime_ends_at)),
      version = d.version + 1, updated_at = w.at
    from winners w join offers o on o.region = p_region and o.id = w.offer_id
    where d.region = p_region and d.driver_id = w.driver_id and d.status = 'leased' and d.offer_id = w.offer_id
    returning w.ord, w.ride_id, w.offer_id, w.driver_id, w.at, d.fence, d.lease_expires_at
  ),
  counted as (
    update rides r set event_seq = r.event_seq + n.received, version = r.version + 1, updated_at = n.at
    from (select ride_id, count(*)::int as received, max(at) as at from renewed group by ride_id) n
    where r.region = p_region and r.id = n.ride_id
    returning r.id, r.event_seq - n.received as seq_before
  ),
  told as (
    insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
    select p_region, n.ride_id, c.seq_before + row_number() over (partition by n.ride_id order by n.offer_id),
      'offer_received', n.at, n.driver_id, n.offer_id, n.fence
    from renewed n join counted c on c.id = n.ride_id
  )
  select array_agg(n.ord), array_agg(ceil(extract(epoch from n.lease_expires_at - n.at) * 1000)::int)
  into v_applied, v_left_ms from renewed n;

  -- Mostly all of them are renewed, each another term, and there is nothing left to judge.
  if cardinality(v_applied) = cardinality(p_offer_ids) then
    return query select n.ord, null::text, true, n.left_ms from unnest(v_applied, v_left_ms) n(ord, left_ms);
    return;
  end if;
  return query
  select j.ord, j.verdict, coalesce(j.ord = any(v_applied), false),
    ceil(extract(epoch from j.lease_expires_at - greatest(j.at, v_now)) * 1000)::int
  from judge_terms(p_region, p_offer_ids, p_tokens, p_driver_ids, v_rides, v_drivers, null, v_now) j;
end $$;
