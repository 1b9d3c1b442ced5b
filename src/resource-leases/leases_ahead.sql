-- What a clock that was ahead leaves behind when it is put back (as in src/leasing/clock_ahead.sql): terms that were granted
-- or renewed in the future. Whoever holds one renews it all the same; one that nobody renews would live for as long as the
-- clock was ahead. free_after_ms: how long after its last renewal it may be taken.
create or replace function leases_ahead(p_limit int)
returns table (resource text, fence bigint, renewals int, free_after_ms float8) language sql stable as $$
  select l.resource, l.fence, l.renewals, (l.ttl_ms + greatest(l.grace_ms, l.lock_delay_ms))::float8
  from resource_leases l
  where l.due_at is not null and l.status = 'active' and l.updated_at > clock_timestamp() + interval '1 second'
  limit p_limit;
$$;

-- active → expired, for a caller who has known of these terms, with so many renewals, for as long. Each ends at the end that it
-- had. Never waits.
create or replace function end_leases_ahead(p_resources text[], p_fences bigint[], p_renewals int[])
returns void language plpgsql as $$
declare
  v_locked text[] := lock_known_resources(p_resources, false);
  v_over text[] := array(
    select l.resource from resource_leases l
    join unnest(p_resources, p_fences, p_renewals) a(resource, fence, renewals) on a.resource = l.resource
    where l.resource = any(v_locked) and l.status = 'active' and l.fence = a.fence and l.renewals = a.renewals);
begin
  perform end_terms(array[l.resource], l.ends_at) from resource_leases l where l.resource = any(v_over);
  perform call_tickets(v_over);
end $$;
