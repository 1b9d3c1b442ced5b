-- The queue before a resource. A ticket counts as long as its process says that it is there.
create or replace function take_ticket(p_resources text[], p_priority int) returns bigint language plpgsql as $$
declare
  v_ticket bigint := nextval('resource_lease_ticket');
begin
  insert into resource_lease_tickets (resource, ticket, priority, seen_at)
  select distinct r.resource, v_ticket, p_priority, clock_timestamp() from unnest(p_resources) r(resource);
  return v_ticket;
end $$;

-- These are still there; tells which of them have a resource that is free, should a call have been lost.
create or replace function see_tickets(p_tickets bigint[]) returns bigint[] language plpgsql as $$
begin
  update resource_lease_tickets q set seen_at = clock_timestamp() where q.ticket = any(p_tickets);
  return array(select distinct q.ticket from resource_lease_tickets q
    join resource_leases l on l.resource = q.resource
    where q.ticket = any(p_tickets) and (l.status not in ('active', 'confirmed') or clock_timestamp() >= l.free_at));
end $$;

-- Gives up a place: whoever is behind it may be next.
create or replace function drop_tickets(p_tickets bigint[]) returns void language plpgsql as $$
declare
  v_resources text[];
begin
  with gone as (delete from resource_lease_tickets q where q.ticket = any(p_tickets) returning q.resource)
  select array_agg(distinct g.resource) into v_resources from gone g;
  perform call_tickets(v_resources);
end $$;
