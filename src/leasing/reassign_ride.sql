-- assigned, driver_arrived → assigned to another, in one transaction: taken from the one and given to the other, or, when
-- either is refused, nothing at all. Both drivers are locked first, in order: the steps lock nothing more. The system, which
-- has found a better driver, does so once for each ride, and not after the first has arrived.
create or replace function reassign_ride(
  p_region smallint, p_ride_id uuid, p_from_driver_id text, p_to_driver_id text, p_source text, p_reason text,
  p_offer_id uuid, p_token text, p_pickup_eta_s real, p_policy_version int, p_offers_max int,
  p_delivery_ttl_ms int, p_decision_ttl_ms int, p_max_lifetime_ms int)
returns table (refused text, applied boolean, fence bigint, assigned_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_step record;
begin
  perform lock_rides(p_region, array[p_ride_id], true);
  if p_source = 'system' and exists (select from rides r where r.region = p_region and r.id = p_ride_id
      and (r.status = 'driver_arrived' or 'replaced' = any(r.excluded_as))) then
    return query select 'wrong_phase'::text, false, null::bigint, null::timestamptz;
    return;
  end if;
  perform lock_drivers(p_region, array[p_from_driver_id, p_to_driver_id], true);
  select * into v_step from unassign_rides(p_region, array[p_ride_id], array[p_from_driver_id], array[p_source],
    array[p_reason], true);
  if v_step.refused is not null or not v_step.applied then
    return query select v_step.refused, false, null::bigint, null::timestamptz;
    return;
  end if;
  select * into v_step from assign_drivers(p_region, array[p_ride_id], array[p_to_driver_id], array[p_offer_id],
    array[p_token], array[p_pickup_eta_s], array[null::int], p_policy_version, p_offers_max, p_delivery_ttl_ms,
    p_decision_ttl_ms, p_max_lifetime_ms, true);
  if v_step.refused is not null then
    raise exception using errcode = 'CB001', message = v_step.refused;
  end if;
  return query select null::text, true, v_step.fence, v_step.assigned_at;
exception when sqlstate 'CB001' then
  return query select sqlerrm, false, null::bigint, null::timestamptz;
end $$;
