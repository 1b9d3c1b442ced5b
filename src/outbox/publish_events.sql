-- A region's next events, of a ride in the order of their numbers. They are found in the order of their transactions;
-- only what is older than every transaction still under way is read, for nothing can come before it any more.
--
-- That order isn't quite a ride's own: a set that had its number early may lock a ride late, and write behind a
-- transaction of a higher number. So each ride brings along what comes before its events here; when its turn comes
-- once more (`is_next` is false here), it is a repetition.
--
-- A cursor of another cluster (is_ours) goes on among the events of that one, to their end, and passes over none of this.
create or replace function unpublished_events(p_region smallint, p_limit int)
returns table (is_next boolean, tx xid8, ride_id uuid, seq int, type text, at timestamptz, driver_id text, offer_id uuid,
  fence bigint, reason text)
language plpgsql stable as $$
#variable_conflict use_column
declare
  c outbox_cursors;
  v_is_ours boolean;
  v_whole xid8 := pg_snapshot_xmin(pg_current_snapshot());
begin
  select * into c from outbox_cursors o where o.region = p_region;
  if c is null then return; end if;
  v_is_ours := cursor_is_ours(p_region);
  if not v_is_ours then v_whole := '18446744073709551615'; end if;
  return query
  with next as materialized (
    select e.* from ride_events e
    where e.region = p_region and (e.tx, e.ride_id, e.seq) > (c.tx, c.ride_id, c.seq) and e.tx < v_whole
      and is_ours(e.tx, e.xmin) = v_is_ours
    order by e.tx, e.ride_id, e.seq limit p_limit
  ),
  behind as (
    select e.* from (select n.ride_id, max(n.seq) as seq from next n group by n.ride_id) top
    join ride_events e on e.region = p_region and e.ride_id = top.ride_id and e.seq < top.seq
    where (e.tx, e.ride_id, e.seq) > (select n.tx, n.ride_id, n.seq from next n order by n.tx desc, n.ride_id desc, n.seq desc limit 1)
      and e.tx < v_whole and is_ours(e.tx, e.xmin) = v_is_ours
  )
  select a.is_next, a.tx, a.ride_id, a.seq, a.type, a.at, a.driver_id, a.offer_id, a.fence, a.reason
  from (select true as is_next, n.* from next n union all select false, b.* from behind b) a
  order by a.ride_id, a.seq;
end $$;

create or replace function cursor_is_ours(p_region smallint) returns boolean language sql stable as $$
  select is_ours(c.tx, c.xmin) from outbox_cursors c where c.region = p_region
$$;

-- Where a region's publishing begins; where nobody subscribed for a while, what happened meanwhile is passed over. When the
-- events of another cluster are published, it begins with what happened here: after the transaction that brought them.
create or replace function open_outbox(p_region smallint, p_lease text, p_fence bigint, p_from xid8) returns boolean
language plpgsql as $$
begin
  if not guard_fence(p_lease, p_fence) then return false; end if;
  if not cursor_is_ours(p_region) and not exists (select from unpublished_events(p_region, 1)) then
    update outbox_cursors c set ride_id = '00000000-0000-0000-0000-000000000000', seq = 0,
      tx = coalesce((select written_by(e.xmin) from ride_events e where e.region = p_region and not is_ours(e.tx, e.xmin)
        order by e.tx desc limit 1), '0')
    where c.region = p_region and c.fence <= p_fence;
  end if;
  insert into outbox_cursors as c (region, tx, ride_id, seq, fence)
  values (p_region, p_from, '00000000-0000-0000-0000-000000000000', 0, p_fence)
  on conflict (region) do update set fence = excluded.fence,
    tx = greatest(c.tx, excluded.tx), ride_id = case when excluded.tx > c.tx then excluded.ride_id else c.ride_id end,
    seq = case when excluded.tx > c.tx then excluded.seq else c.seq end
  where c.fence <= p_fence;
  return true;
end $$;

-- The next events become a delivery to each webhook that wants them, and the cursor goes past them, in one step and
-- only by the newest holder of the lease. Answers how many; null when a newer holder exists.
create or replace function publish_events(p_region smallint, p_lease text, p_fence bigint, p_limit int)
returns table (published int, deliveries int, oldest_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_tx xid8;
  v_ride uuid;
  v_seq int;
  v_published int;
  v_deliveries int;
  v_oldest timestamptz;
  v_is_ours boolean;
begin
  if not guard_fence(p_lease, p_fence) then return; end if;
  v_is_ours := cursor_is_ours(p_region);
  select e.tx, e.ride_id, e.seq, count(*) over ()::int, min(e.at) over () into v_tx, v_ride, v_seq, v_published, v_oldest
  from unpublished_events(p_region, p_limit) e where e.is_next
  order by e.tx desc, e.ride_id desc, e.seq desc limit 1;
  if v_tx is null then return query select 0, 0, null::timestamptz; return; end if;
  -- None of them is deleted meanwhile: nothing would take away what is queued for it after that.
  perform from webhooks w where w.region is null or w.region = p_region order by w.id for key share;

  with wanting as materialized (
    select w.id, w.types, w.created_tx, is_ours(w.created_tx, w.xmin) as is_ours
    from webhooks w where w.region is null or w.region = p_region
  )
  insert into work_items (queue, key, group_name, payload, ready_at)
  select 'cabrank/webhook/' || w.id, e.ride_id || '/' || e.seq, e.ride_id::text,
    jsonb_build_object('id', e.ride_id || '/' || e.seq, 'type', e.type, 'regionId', g.id, 'rideId', e.ride_id, 'seq', e.seq,
      'at', to_char(e.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'driverId', e.driver_id,
      'offerId', e.offer_id, 'fence', e.fence, 'reason', e.reason),
    clock_timestamp()
  from unpublished_events(p_region, p_limit) e
  join wanting w on (v_is_ours, e.tx) > (w.is_ours, w.created_tx)
    and (w.types is null or e.type = any(w.types))
  join regions g on g.number = p_region
  order by e.ride_id, e.seq
  on conflict (queue, key) do nothing;
  get diagnostics v_deliveries = row_count;

  update outbox_cursors c set tx = v_tx, ride_id = v_ride, seq = v_seq, fence = p_fence,
    updated_at = clock_timestamp()
  where c.region = p_region and c.fence <= p_fence;
  if not found then raise exception 'a newer publisher has written'; end if;
  return query select v_published, v_deliveries, v_oldest;
end $$;
