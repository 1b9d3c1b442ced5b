-- active, confirmed → broken, now or after a delay: an operator's doing, recorded with their name. An end that was set
-- before can be brought forward, not put off. With a fence only that term is broken, not the one that came after it.
create or replace function break_lease(p_resource text, p_fence bigint, p_after_ms bigint, p_by text)
returns table (refused text, resource text, holder text, fence bigint, ends_in_ms float8)
language plpgsql as $$
#variable_conflict use_column
declare
  v_locked text[] := lock_known_resources(array[p_resource], true);
  v_now timestamptz := clock_timestamp();
  v_found boolean;
begin
  update resource_leases l set break_at = t.break_at, broken_by = p_by, updated_at = t.at,
    ends_at = case when t.break_at <= coalesce(l.ends_at, t.break_at) then t.break_at else l.ends_at end,
    free_at = case when t.break_at <= coalesce(l.ends_at, t.break_at) then t.break_at else l.free_at end,
    due_at = least(l.due_at, t.break_at)
  from (select o.resource, greatest(v_now, o.updated_at) as at,
      least(o.break_at, greatest(v_now, o.updated_at) + after_ms(p_after_ms)) as break_at
    from resource_leases o where o.resource = p_resource) t
  where l.resource = t.resource and l.status in ('active', 'confirmed') and (l.ends_at is null or v_now < l.ends_at)
    and (p_fence is null or l.fence = p_fence);
  v_found := found;
  perform end_terms(v_locked, clock_timestamp());
  perform call_tickets(v_locked);
  return query
  select case when not v_found then 'not_held' end, l.resource, l.holder, l.fence, greatest(ms_between(v_now, l.ends_at), 0)
  from resource_leases l where l.resource = p_resource;
end $$;
