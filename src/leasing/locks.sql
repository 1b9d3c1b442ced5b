-- The two lock steps every transition begins with: all its rides, then all its drivers, each ascending by id.
-- Without p_wait a row that someone else holds is left out, and the caller says `busy` for it: a set never
-- stalls on one of its items. `for no key update`, so that foreign keys don't wait for it.
create or replace function lock_rides(p_region smallint, p_ride_ids uuid[], p_wait boolean)
returns uuid[] language plpgsql as $$
begin
  if p_wait then
    return array(
      select id from rides where region = p_region and id = any(p_ride_ids)
      order by id for no key update);
  end if;
  return array(
    select id from rides where region = p_region and id = any(p_ride_ids)
    order by id for no key update skip locked);
end $$;

create or replace function lock_drivers(p_region smallint, p_driver_ids text[], p_wait boolean)
returns text[] language plpgsql as $$
begin
  if p_wait then
    return array(
      select driver_id from driver_state where region = p_region and driver_id = any(p_driver_ids)
      order by driver_id for no key update);
  end if;
  return array(
    select driver_id from driver_state where region = p_region and driver_id = any(p_driver_ids)
    order by driver_id for no key update skip locked);
end $$;
