-- Positions in sets, the newest of each driver, in one order of drivers so that two sets can't deadlock. A null
-- position only says that the driver is there.
create or replace function record_positions(
  p_region smallint, p_driver_ids text[], p_lats float8[], p_lngs float8[], p_cells int8[])
returns void language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  insert into driver_presence as p (region, driver_id, seen_at, position_at, lat, lng, cell)
  select p_region, a.driver_id, v_now, case when a.lat is not null then v_now end, a.lat, a.lng, a.cell
  from unnest(p_driver_ids, p_lats, p_lngs, p_cells) a(driver_id, lat, lng, cell)
  order by a.driver_id
  on conflict (region, driver_id) do update set
    seen_at = v_now,
    position_at = coalesce(excluded.position_at, p.position_at),
    lat = coalesce(excluded.lat, p.lat), lng = coalesce(excluded.lng, p.lng), cell = coalesce(excluded.cell, p.cell);
end $$;
