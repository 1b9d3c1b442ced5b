-- active: the term's end moves to one TTL from now, never past its lifetime or an operator's end. It revives nothing:
-- a term that is over stays over. What others asked for (recovery) is off with it.
create or replace function renew_leases(p_resources text[], p_tokens text[], p_wait boolean)
returns table (ord int, refused text, applied boolean, fence bigint, left_ms float8)
language plpgsql as $$
#variable_conflict use_column
declare
  v_locked text[] := lock_known_resources(p_resources, p_wait);
  v_now timestamptz := clock_timestamp();
begin
  update resource_leases l set
    ends_at = t.ends_at, free_at = case when t.ends_at = l.break_at then t.ends_at
      else t.ends_at + after_ms(greatest(l.grace_ms, l.lock_delay_ms)) end,
    recover_at = null, renewed_at = t.at, renewals = l.renewals + 1, updated_at = t.at
  from (
    select o.resource, greatest(v_now, o.updated_at) as at,
      least(greatest(v_now, o.updated_at) + after_ms(o.ttl_ms), o.lifetime_ends_at, o.break_at) as ends_at
    from resource_leases o
    where o.resource = any(v_locked) and o.status = 'active' and v_now < o.ends_at
      and exists (select from unnest(p_resources, p_tokens) a(resource, token)
        where a.resource = o.resource and sha256(convert_to(a.token, 'UTF8')) = o.token_hash)) t
  where l.resource = t.resource and l.status = 'active' and v_now < l.ends_at;

  return query
  select j.ord, j.verdict, j.verdict is null, j.fence, j.left_ms
  from judge_claims(p_resources, p_tokens, v_locked, v_now) j order by j.ord;
end $$;

-- What these tokens are worth. Null: the term is live, and the token is its own.
create or replace function judge_claims(p_resources text[], p_tokens text[], p_locked text[], p_now timestamptz)
returns table (ord int, resource text, verdict text, status text, fence bigint, left_ms float8)
language sql as $$
  select a.ord::int, a.resource,
    case
      when l.resource is null or sha256(convert_to(a.token, 'UTF8')) is distinct from l.token_hash then 'lease_lost'
      when a.resource <> all(p_locked) then 'busy'
      when l.status in ('active', 'confirmed') and (l.ends_at is null or p_now < l.ends_at) then null
      when l.status = 'expired' then 'lease_expired'
      when l.status = 'active' and l.ends_at is distinct from l.break_at and l.ends_at is distinct from l.recover_at then 'lease_expired'
      else 'lease_lost'
    end,
    l.status, l.fence, left_ms(p_now, l.ends_at, l.ttl_ms)
  from unnest(p_resources, p_tokens) with ordinality a(resource, token, ord)
  left join resource_leases l on l.resource = a.resource;
$$;
