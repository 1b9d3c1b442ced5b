-- available → assigned: the lease is confirmed by the transaction that grants it, for fleets whose drivers don't refuse
-- and for operators. Judged as a lease; only for rides that have no offer out, which an assignment would have to withdraw.
create or replace function assign_drivers(
  p_region smallint,
  p_ride_ids uuid[], p_driver_ids text[], p_offer_ids uuid[], p_tokens text[], p_pickup_eta_s real[], p_seen_exclusions int[],
  p_policy_version int, p_offers_max int, p_delivery_ttl_ms int, p_decision_ttl_ms int, p_max_lifetime_ms int, p_wait boolean)
returns table (ord int, refused text, fence bigint, first_offer_after_ms real, assigned_at timestamptz, since_request_ms real,
  policy_version int)
language plpgsql as $$
#variable_conflict use_column
declare
  v_leases jsonb;
begin
  select jsonb_agg(l) into v_leases from lease_drivers(p_region, p_ride_ids, p_driver_ids, p_offer_ids, p_tokens,
    p_pickup_eta_s, p_seen_exclusions, p_policy_version, 1, p_offers_max, p_delivery_ttl_ms, p_decision_ttl_ms,
    p_max_lifetime_ms, p_wait) l;
  perform assign_offers(p_region,
    array(select p_offer_ids[l.ord] from jsonb_to_recordset(v_leases) l(ord int, refused text) where l.refused is null),
    -- Dated as the grant.
    '-infinity');
  return query
  select l.ord, l.refused, l.fence, l.first_offer_after_ms, a.assigned_at,
    (extract(epoch from a.assigned_at - r.requested_at) * 1000)::real, r.policy_version
  from jsonb_to_recordset(v_leases) l(ord int, refused text, fence bigint, first_offer_after_ms real)
  left join assignments a on a.region = p_region and a.offer_id = p_offer_ids[l.ord]
  left join rides r on r.region = p_region and r.id = a.ride_id
  order by l.ord;
end $$;
