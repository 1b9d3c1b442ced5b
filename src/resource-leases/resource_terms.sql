-- What the functions of resource leases share.

create or replace function after_ms(p_ms float8) returns interval language sql immutable as $$
  select make_interval(secs => p_ms / 1000.0) $$;

create or replace function ms_between(p_from timestamptz, p_to timestamptz) returns float8 language sql immutable as $$
  select extract(epoch from p_to - p_from)::float8 * 1000 $$;

-- What a holder may count on: never more than a term, also of one that a clock wrote which was ahead. Null: it has no end.
create or replace function left_ms(p_now timestamptz, p_ends_at timestamptz, p_ttl_ms bigint) returns float8
language sql immutable as $$
  select case when p_ends_at is not null then least(ms_between(p_now, p_ends_at), p_ttl_ms) end $$;

-- A queueing process says every half second that it is there; four of those missed, and those behind go first.
create or replace function ticket_patience_ms() returns float8 language sql immutable as $$ select 2000.0::float8 $$;

-- The rows of these resources, locked in order; they are made first where they are new. Without p_wait a row that
-- somebody else holds is left out.
create or replace function lock_resources(p_resources text[], p_wait boolean) returns text[] language plpgsql as $$
begin
  insert into resource_leases (resource)
  select distinct r.resource from unnest(p_resources) r(resource)
  where not exists (select from resource_leases l where l.resource = r.resource)
  order by 1 on conflict do nothing;
  return lock_known_resources(p_resources, p_wait);
end $$;

create or replace function lock_known_resources(p_resources text[], p_wait boolean) returns text[] language plpgsql as $$
begin
  if p_wait then
    return array(select resource from resource_leases where resource = any(p_resources)
      order by resource for no key update);
  end if;
  return array(select resource from resource_leases where resource = any(p_resources)
    order by resource for no key update skip locked);
end $$;

-- active, confirmed → expired, recovered, broken: terms that are over by p_now are written to the history, each with
-- the end that it had, and not with the moment at which that was found out.
create or replace function end_terms(p_resources text[], p_now timestamptz) returns void language plpgsql as $$
begin
  with over as (
    update resource_leases l set due_at = null, updated_at = greatest(p_now, l.updated_at),
      status = case when l.ends_at = l.break_at then 'broken' when l.ends_at = l.recover_at then 'recovered' else 'expired' end
    where l.resource = any(p_resources) and l.status in ('active', 'confirmed') and p_now >= l.ends_at
    returning l.*
  )
  insert into resource_lease_terms
    (resource, fence, holder, token_hash, granted_at, renewed_at, renewals, confirmed_at, data, ended_at, ended_as, ended_by)
  select o.resource, o.fence, o.holder, o.token_hash, o.granted_at, o.renewed_at, o.renewals, o.confirmed_at, o.data,
    o.ends_at, o.status, o.broken_by
  from over o;
end $$;

-- Tells the processes whose clients queue for these; nobody is told where nobody queues.
create or replace function call_tickets(p_resources text[]) returns void language sql as $$
  select pg_notify('cabrank_leases', q.resource)
  from (select distinct resource from resource_lease_tickets where resource = any(p_resources)) q;
$$;

-- Whether a term is still the newest of its resource. The answer holds until the caller's transaction ends: no newer
-- term can begin before, so a write guarded by it can't come after the write of a later holder.
create or replace function guard_fence(p_resource text, p_fence bigint) returns boolean language plpgsql as $$
begin
  perform from resource_leases l where l.resource = p_resource and l.fence = p_fence for share;
  return found;
end $$;
