-- leased → available, by the token: the driver declines (and no round asks for him again for a while), or the holder
-- releases (`withdrawn`).
create or replace function return_offers(
  p_region smallint, p_offer_ids uuid[], p_tokens text[], p_driver_ids text[], p_status text, p_reasons text[],
  p_wait boolean)
returns table (ord int, refused text, applied boolean, ride_id uuid, driver_id text, held_ms real)
language plpgsql as $$
#variable_conflict use_column
declare
  v_rides uuid[] := lock_rides(p_region,
    array(select ride_id from offers where region = p_region and id = any(p_offer_ids)), p_wait);
  v_drivers text[] := lock_drivers(p_region,
    array(select driver_id from offers where region = p_region and id = any(p_offer_ids)), p_wait);
  v_now timestamptz := clock_timestamp();
  v_ended uuid[];
  v_reasons text[];
  v_ords int[];
begin
  select array_agg(w.offer_id), array_agg(p_reasons[w.ord]), array_agg(w.ord) into v_ended, v_reasons, v_ords from (
    select distinct on (j.offer_id) j.offer_id, j.ord
    from judge_terms(p_region, p_offer_ids, p_tokens, p_driver_ids, v_rides, v_drivers, p_status, v_now) j
    where j.verdict is null order by j.offer_id, j.ord) w;

  if v_ended is not null then
    perform end_offers(p_region, v_ended, array_fill(p_status, array[cardinality(v_ended)]),
      v_reasons, true, p_status = 'declined', v_now);
  end if;

  return query
  select j.ord, nullif(j.verdict, 'repeated'), coalesce(j.ord = any(v_ords), false), j.ride_id, j.driver_id,
    (extract(epoch from o.ended_at - o.granted_at) * 1000)::real
  from judge_terms(p_region, p_offer_ids, p_tokens, p_driver_ids, v_rides, v_drivers, p_status, v_now) j
  left join offers o on o.region = p_region and o.id = j.offer_id
  order by 1;
end $$;
