-- active, confirmed → released: the term ends now, and whoever queues is called. A repetition hears the same, also when others
-- have had the resource since: it is looked for among the newest terms, and not in all of a long history.
create or replace function release_leases(p_resources text[], p_tokens text[], p_wait boolean)
returns table (ord int, refused text, applied boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_locked text[] := lock_known_resources(p_resources, p_wait);
  v_now timestamptz := clock_timestamp();
  v_live text[] := array(select distinct j.resource from judge_claims(p_resources, p_tokens, v_locked, v_now) j where j.verdict is null);
begin
  with ended as (
    update resource_leases l set status = 'released', ends_at = greatest(v_now, l.updated_at), free_at = greatest(v_now, l.updated_at),
      due_at = null, updated_at = greatest(v_now, l.updated_at)
    where l.resource = any(v_live) and l.status in ('active', 'confirmed')
    returning l.*
  )
  insert into resource_lease_terms
    (resource, fence, holder, token_hash, granted_at, renewed_at, renewals, confirmed_at, data, ended_at, ended_as)
  select e.resource, e.fence, e.holder, e.token_hash, e.granted_at, e.renewed_at, e.renewals, e.confirmed_at, e.data, e.ends_at, 'released'
  from ended e;
  perform call_tickets(v_live);

  return query
  select j.ord,
    case when j.verdict <> 'lease_lost' or not exists (
        select from (select t.token_hash, t.ended_as from resource_lease_terms t
          where t.resource = j.resource order by t.fence desc limit 100) t
        where t.token_hash = sha256(convert_to(p_tokens[j.ord], 'UTF8')) and t.ended_as = 'released')
      then j.verdict end,
    j.resource = any(v_live)
  from judge_claims(p_resources, p_tokens, v_locked, v_now) j
  order by j.ord;
end $$;
