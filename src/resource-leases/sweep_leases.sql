-- Tidies: terms that have been over for as long as their grace and lock delay go to the history, a bounded batch at a
-- time. Nothing waits for it: an acquire finds out by itself.
create or replace function sweep_leases(p_limit int) returns table (resource text, late_ms float8)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_due text[] := array(select l.resource from resource_leases l where l.due_at <= v_now
    order by l.due_at limit p_limit for no key update skip locked);
  v_over text[] := array(select l.resource from resource_leases l where l.resource = any(v_due) and v_now >= l.free_at);
begin
  update resource_leases l set due_at = greatest(l.free_at, v_now + interval '1 millisecond')
  where l.resource = any(v_due) and l.resource <> all(v_over);
  perform end_terms(v_over, v_now);
  perform call_tickets(v_over);
  return query select l.resource, ms_between(l.free_at, v_now) from resource_leases l where l.resource = any(v_over);
end $$;

-- Tickets of processes that are long gone.
create or replace function drop_stale_tickets(p_limit int) returns int language plpgsql as $$
declare
  v_dropped int;
begin
  delete from resource_lease_tickets q using (
    select o.resource, o.ticket from resource_lease_tickets o where o.seen_at < clock_timestamp() - interval '1 minute'
    order by o.ticket limit p_limit for update skip locked) old
  where q.resource = old.resource and q.ticket = old.ticket;
  get diagnostics v_dropped = row_count;
  return v_dropped;
end $$;
