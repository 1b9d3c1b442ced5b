-- What every new fence is above: 2^32 times the database's epoch. A replica that is promoted without the primary's last
-- grants, or a backup that is restored, would hand out their fences again; the next epoch starts above all of them. The
-- first one is 0, so that fences are 1, 2, 3, …
--
-- An epoch ends when the timeline changes, which PostgreSQL begins anew at each promotion and each restore to a point in
-- time, or when the records find themselves in another cluster. The session remembers its own: this is asked at each grant.
create or replace function fence_floor()
returns bigint language plpgsql as $$
declare
  v_timeline text := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
  v_known text := current_setting('cabrank.epoch', true);
  v_epoch int;
begin
  if starts_with(v_known, v_timeline) then return split_part(v_known, ' ', 2)::bigint << 32; end if;
  v_epoch := open_epoch(v_timeline, false);
  perform set_config('cabrank.epoch', v_timeline || ' ' || v_epoch, false);
  return v_epoch::bigint << 32;
end $$;

-- The epoch on this timeline of this cluster, which is opened if need be; with p_always a new one in any case, for
-- backups that begin no timeline.
create or replace function open_epoch(p_timeline text, p_always boolean)
returns int language plpgsql as $$
declare
  v_system bigint := (select system_identifier from pg_control_system());
  v_last epochs;
begin
  select * into v_last from epochs order by number desc limit 1;
  if p_always or (v_last.system_identifier, v_last.timeline) is distinct from (v_system, p_timeline) then
    insert into epochs (number, system_identifier, timeline, since)
    values (coalesce(v_last.number + 1, 0), v_system, p_timeline, clock_timestamp())
    -- Another session was first: it saw the same.
    on conflict do nothing;
    select * into v_last from epochs order by number desc limit 1;
  end if;
  return v_last.number;
end $$;
