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
  v_ended_as text[];
  v_late_ms real[];
  v_held_ms real[];
  v_over uuid[];
  v_over_as text[];
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

  -- A driver's term is of an offer that is pending.
  select array_agg(e.ended_as), array_agg(e.late_ms), array_agg(e.held_ms),
    array_agg(e.id) filter (where e.ended_as is not null), array_agg(e.ended_as) filter (where e.ended_as is not null)
  into v_ended_as, v_late_ms, v_held_ms, v_over, v_over_as from (
    select a.id, case when d.lease_received_at is not null then 'expired' when d.driver_id is not null then 'undeliverable' end as ended_as,
      (extract(epoch from v_now - d.lease_expires_at) * 1000)::real as late_ms,
      (extract(epoch from v_now - d.lease_granted_at) * 1000)::real as held_ms
    from unnest(v_due, v_due_drivers) with ordinality a(id, driver_id, ord)
    left join driver_state d on d.region = p_region and d.driver_id = a.driver_id and d.offer_id = a.id
      and d.driver_id = any(v_drivers) and d.lease_expires_at <= greatest(v_now, d.updated_at)
    order by a.ord) e;
  if v_over is not null then
    perform end_offers(p_region, v_over, v_over_as, array[]::text[], false, true, v_now);
  end if;
  return query select * from unnest(v_due, v_due_rides, v_due_drivers, v_ended_as, v_due_at, v_late_ms, v_held_ms);

  if cardinality(v_over) = cardinality(v_due) then return; end if;
  update offers o set due_at = d.lease_expires_at
  from driver_state d
  where o.region = p_region and o.id = any(v_due) and o.status = 'pending'
    and o.driver_id = any(v_drivers)
    and d.region = p_region and d.driver_id = o.driver_id and d.offer_id = o.id
    and d.lease_expires_at > greatest(v_now, d.updated_at);
end $$;
