-- leased → available, without an assignment: the one place where a term ends so. The caller holds the locks of
-- each offer's ride and driver, and has judged that the term may end. The ride goes back to the queue at once;
-- p_excluding keeps the driver from being asked again for it, by the name of how the offer ended.
create or replace function end_offers(
  p_region smallint, p_offer_ids uuid[], p_status text[], p_reasons text[], p_proven boolean, p_excluding boolean,
  p_now timestamptz)
returns void language plpgsql as $$
#variable_conflict use_column
begin
  if cardinality(p_offer_ids) = 0 then return; end if;
  with ending as (
    select o.id, o.ride_id, o.driver_id, o.fence, e.status, e.reason, d.lease_expires_at, d.lease_received_at, r.event_seq,
      -- One time for all of a ride's ends: its events are dated in their order, also after a clock stepped back.
      greatest(p_now, r.updated_at, max(d.updated_at) over (partition by o.ride_id)) as at,
      row_number() over (partition by o.ride_id order by o.id)::int as nth
    from unnest(p_offer_ids, p_status, p_reasons) e(offer_id, status, reason)
    join offers o on o.region = p_region and o.id = e.offer_id and o.status = 'pending'
    join driver_state d on d.region = p_region and d.driver_id = o.driver_id and d.offer_id = o.id
    join rides r on r.region = p_region and r.id = o.ride_id
  ),
  ended as (
    update offers o set
      status = e.status, ended_at = e.at, end_reason = e.reason, due_at = null,
      proof = case when p_proven then o.token_hash end,
      received_at = e.lease_received_at, expires_at = e.lease_expires_at, version = o.version + 1
    from ending e
    where o.region = p_region and o.id = e.id and o.status = 'pending'
    returning o.id
  ),
  freed as (
    update driver_state d set
      status = 'available', leased_to_ride_id = null, offer_id = null, lease_token = null,
      lease_granted_at = null, lease_received_at = null, lease_expires_at = null,
      version = d.version + 1, updated_at = e.at
    from ending e
    where d.region = p_region and d.driver_id = e.driver_id and d.status = 'leased' and d.offer_id = e.id
  ),
  requeued as (
    update rides r set
      -- A ride that was taken in this transaction holds no offers any more, and isn't queued again.
      live_offers = case when r.status = 'searching' then r.live_offers - n.ended else 0 end,
      queue_at = case when r.status = 'searching' then coalesce(r.queue_at, greatest(n.at, r.held_until)) end,
      event_seq = r.event_seq + n.ended,
      excluded_driver_ids = case when p_excluding then r.excluded_driver_ids || n.drivers else r.excluded_driver_ids end,
      excluded_as = case when p_excluding then r.excluded_as || n.causes else r.excluded_as end,
      excluded_at = case when p_excluding then r.excluded_at || n.times else r.excluded_at end,
      version = r.version + 1, updated_at = n.at
    from (select e.ride_id, count(*)::int as ended, max(e.at) as at, array_agg(e.driver_id order by e.nth) as drivers,
            array_agg(e.status order by e.nth) as causes, array_agg(e.at order by e.nth) as times
          from ending e group by e.ride_id) n
    where r.region = p_region and r.id = n.ride_id
  )
  insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence, reason)
  select p_region, e.ride_id, e.event_seq + e.nth, 'offer_' || e.status, e.at, e.driver_id, e.id, e.fence, e.reason
  from ending e;
end $$;
