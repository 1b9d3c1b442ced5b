-- active → confirmed: the reservation becomes permanent. A repetition hears what the first confirm heard.
create or replace function confirm_lease(p_resource text, p_token text, p_data jsonb)
returns table (refused text, applied boolean, fence bigint, confirmed_at timestamptz, data jsonb)
language plpgsql as $$
#variable_conflict use_column
declare
  v_locked text[] := lock_known_resources(array[p_resource], true);
  v_now timestamptz := clock_timestamp();
  v_applied boolean;
begin
  update resource_leases l set status = 'confirmed', confirmed_at = greatest(v_now, l.updated_at), data = p_data,
    ends_at = l.break_at, free_at = l.break_at, due_at = l.break_at, recover_at = null, updated_at = greatest(v_now, l.updated_at)
  where l.resource = p_resource and l.status = 'active' and v_now < l.ends_at
    and l.token_hash = sha256(convert_to(p_token, 'UTF8'));
  v_applied := found;
  return query
  select j.verdict, v_applied, l.fence, l.confirmed_at, l.data
  from judge_claims(array[p_resource], array[p_token], v_locked, v_now) j
  left join resource_leases l on l.resource = j.resource;
end $$;
