-- driver_arrived → cancelled: the rider didn't come in time. Never waits; judged again under the locks.
create or replace function cancel_no_shows(p_region smallint, p_limit int)
returns table (ride_id uuid, driver_id text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_due uuid[] := lock_rides(p_region, array(
    select id from rides where region = p_region and no_show_at is not null and no_show_at <= v_now
    order by no_show_at limit p_limit), false);
begin
  v_due := array(select id from rides where region = p_region and id = any(v_due) and status = 'driver_arrived'
    and no_show_at <= greatest(clock_timestamp(), updated_at));
  return query
  select v_due[c.ord], c.released_driver_id
  from cancel_rides(p_region, v_due, array_fill(null::text, array[cardinality(v_due)]),
    array_fill('system'::text, array[cardinality(v_due)]), array_fill('no_show'::text, array[cardinality(v_due)]), false) c
  where c.applied;
end $$;
