-- leased → available, when the term is over: `expired` if the device had the offer, `undeliverable` if it never
-- did. Never waits. An offer that was renewed since is looked at again at its new end. Returns what it looked at,
-- so that the caller can go on behind rows that others hold. Leases that were granted together end together: p_after alone
-- would pass over those that the limit left out.
create or replace function expire_leases(p_region smallint, p_after timestamptz, p_limit int, p_after_offer_id uuid default null)
returns table (offer_id uuid, ride_id uuid, driver_id text, ended_as text, due_at timestamptz, late_ms real, held_ms real)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_due uuid[];
  v_due_rides uuid[];
  v_due_drivers text[];
  v_due_at timestamptz[];
  v_rides uuid[];
  v_drivers text[];
  v_over uuid[];
  v_status text[];
begin
  select array_agg(o.id), array_agg(o.ride_id), array_agg(o.driver_id), array_agg(o.due_at)
  into v_due, v_due_rides, v_due_drivers, v_due_at from (
    select o.id, o.ride_id, o.driver_id, o.due_at from offers o
    where o.region = p_region and o.due_at is not null and o.due_at <= v_now and (o.due_at, o.id) > (p_after, p_after_offer_id)
    order by o.due_at, o.id limit p_limit) o;
  if v_due is null then return; end if;
  v_rides := lock_rides(p_region, v_due_rides, false);
  -- So a driver who is locked has a ride that is, too.
  v_drivers := lock_drivers(p_region,
    array(select a.driver_id from unnest(v_due_rides, v_due_drivers) a(ride_id, driver_id) where a.ride_id = any(v_rides)), false);
  v_now := clock_timestamp();

  select array_agg(o.id), array_agg(case when d.lease_received_at is null then 'undeliverable' else 'expired' end)
  into v_over, v_status
  from offers o
  join driver_state d on d.region = p_region and d.driver_id = o.driver_id and d.offer_id = o.id
  where o.region = p_region and o.id = any(v_due) and o.status = 'pending'
    and o.driver_id = any(v_drivers)
    and d.lease_expires_at <= greatest(v_now, d.updated_at);

  return query
  select o.id, o.ride_id, o.driver_id, e.status, a.due_at,
    (extract(epoch from v_now - d.lease_expires_at) * 1000)::real,
    (extract(epoch from v_now - d.lease_granted_at) * 1000)::real
  from unnest(v_due, v_due_at) a(id, due_at)
  join offers o on o.region = p_region and o.id = a.id
  left join unnest(v_over, v_status) e(id, status) on e.id = o.id
  left join driver_state d on d.region = p_region and d.driver_id = o.driver_id and d.offer_id = o.id;

  if v_over is not null then
    perform end_offers(p_region, v_over, v_status, array[]::text[], false, true, v_now);
  end if;
  if cardinality(v_over) = cardinality(v_due) then return; end if;
  update offers o set due_at = d.lease_expires_at
  from driver_state d
  where o.region = p_region and o.id = any(v_due) and o.status = 'pending'
    and o.driver_id = any(v_drivers)
    and d.region = p_region and d.driver_id = o.driver_id and d.offer_id = o.id
    and d.lease_expires_at > greatest(v_now, d.updated_at);
end $$;
