-- One lease under an idempotency key: the fleet's own matcher asks, and may ask again. A refusal keeps no key.
create or replace function lease_driver_once(
  p_region smallint, p_subject text, p_key text, p_request_hash bytea,
  p_ride_id uuid, p_driver_id text, p_offer_id uuid, p_token text, p_pickup_eta_s real,
  p_policy_version int, p_parallel_offers int, p_offers_max int,
  p_delivery_ttl_ms int, p_decision_ttl_ms int, p_max_lifetime_ms int)
returns table (refused text, replayed boolean, offer_id uuid, fence bigint, first_offer_after_ms real)
language plpgsql as $$
#variable_conflict use_column
declare
  v_kept idempotency_keys;
  v_lease record;
begin
  insert into idempotency_keys as k (region, subject, route, key, request_hash, result_id, created_at)
  values (p_region, p_subject, 'offers', p_key, p_request_hash, p_offer_id, clock_timestamp())
  on conflict (region, subject, route, key) do update
    set request_hash = excluded.request_hash, result_id = excluded.result_id, created_at = excluded.created_at
    where k.created_at < clock_timestamp() - interval '24 hours';
  select * into v_kept from idempotency_keys k
    where k.region = p_region and k.subject = p_subject and k.route = 'offers' and k.key = p_key;
  if v_kept.request_hash <> p_request_hash then
    return query select 'idempotency_key_reused'::text, false, null::uuid, null::bigint, null::real;
    return;
  elsif v_kept.result_id <> p_offer_id then
    return query select null::text, true, v_kept.result_id, o.fence, null::real from offers o
      where o.region = p_region and o.id = v_kept.result_id;
    return;
  end if;

  select * into v_lease from lease_drivers(p_region, array[p_ride_id], array[p_driver_id], array[p_offer_id],
    array[p_token], array[p_pickup_eta_s], array[null::int], p_policy_version, p_parallel_offers, p_offers_max,
    p_delivery_ttl_ms, p_decision_ttl_ms, p_max_lifetime_ms, true);
  if v_lease.refused is not null then
    delete from idempotency_keys k
    where k.region = p_region and k.subject = p_subject and k.route = 'offers' and k.key = p_key;
  end if;
  return query select v_lease.refused, false, p_offer_id, v_lease.fence, v_lease.first_offer_after_ms;
end $$;
