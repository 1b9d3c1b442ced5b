-- → searching → leased, in one transaction: rides that come with the driver whom a matcher found for them. What is granted is
-- lease_drivers' business, as for any pair; a ride whose driver is refused waits for a round like any other. A repetition
-- asks nobody: its ride has been matched already.
create or replace function request_rides(
  p_region smallint, p_ride_ids uuid[], p_rider_ids text[], p_vehicle_classes text[], p_seats smallint[], p_attributes text[], p_accept_lower_class text[],
  p_pickup_lats float8[], p_pickup_lngs float8[], p_dropoff_lats float8[], p_dropoff_lngs float8[],
  p_subjects text[], p_keys text[], p_request_hashes text[], p_policy_versions int[], p_patience_ms int[],
  p_driver_ids text[], p_offer_ids uuid[], p_tokens text[], p_pickup_eta_s real[],
  p_parallel_offers int[], p_offers_max int[], p_delivery_ttl_ms int[], p_decision_ttl_ms int[], p_max_lifetime_ms int[])
returns table (ord int, refused text, replayed boolean, ride_id uuid, requested_at timestamptz,
  lease_refused text, fence bigint, first_offer_after_ms real, leased_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_refused text[];
  v_replayed boolean[];
  v_ride_ids uuid[];
  v_requested_at timestamptz[];
begin
  select array_agg(c.refused order by c.ord), array_agg(c.replayed order by c.ord), array_agg(c.ride_id order by c.ord),
    array_agg(c.requested_at order by c.ord)
  into v_refused, v_replayed, v_ride_ids, v_requested_at
  from create_rides(p_region, p_ride_ids, p_rider_ids, p_vehicle_classes, p_seats, p_attributes, p_accept_lower_class,
    p_pickup_lats, p_pickup_lngs, p_dropoff_lats, p_dropoff_lngs,
    p_subjects, p_keys, p_request_hashes, p_policy_versions, p_patience_ms) c;

  return query
  with terms as (
    select a.policy_version, a.parallel_offers, a.offers_max, a.delivery_ttl_ms, a.decision_ttl_ms, a.max_lifetime_ms,
      array_agg(a.ord order by a.ord) as ords, array_agg(a.ride_id order by a.ord) as rides,
      array_agg(a.driver_id order by a.ord) as drivers, array_agg(a.offer_id order by a.ord) as offers,
      array_agg(a.token order by a.ord) as tokens, array_agg(a.pickup_eta_s order by a.ord) as etas,
      array_agg(0) as seen_exclusions
    from unnest(v_replayed, p_ride_ids, p_driver_ids, p_offer_ids, p_tokens, p_pickup_eta_s,
      p_policy_versions, p_parallel_offers, p_offers_max, p_delivery_ttl_ms, p_decision_ttl_ms, p_max_lifetime_ms)
      with ordinality a(replayed, ride_id, driver_id, offer_id, token, pickup_eta_s,
        policy_version, parallel_offers, offers_max, delivery_ttl_ms, decision_ttl_ms, max_lifetime_ms, ord)
    where a.driver_id is not null and not a.replayed
    group by a.policy_version, a.parallel_offers, a.offers_max, a.delivery_ttl_ms, a.decision_ttl_ms, a.max_lifetime_ms
  ),
  leased as materialized (
    select t.ords[l.ord] as ord, l.refused, l.fence, l.first_offer_after_ms
    from terms t, lateral lease_drivers(p_region, t.rides, t.drivers, t.offers, t.tokens, t.etas, t.seen_exclusions::int[],
      t.policy_version, t.parallel_offers, t.offers_max, t.delivery_ttl_ms, t.decision_ttl_ms, t.max_lifetime_ms, false) l
  )
  select c.ord::int, c.refused, c.replayed, c.ride_id, c.requested_at, l.refused, l.fence, l.first_offer_after_ms,
    case when l.fence is not null then (select r.updated_at from rides r where r.region = p_region and r.id = c.ride_id) end
  from unnest(v_refused, v_replayed, v_ride_ids, v_requested_at) with ordinality
    c(refused, replayed, ride_id, requested_at, ord)
  left join leased l on l.ord = c.ord
  order by c.ord;
end $$;
