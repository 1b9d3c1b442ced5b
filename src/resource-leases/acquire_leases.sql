-- free, over → active: the next term of one resource, of the first free one of several, or of all of them at once.
-- Asks are judged one after the other under the locks of all their resources, so that each sees what those before it
-- took. An ask's resources come flattened: p_of[i] is the ask that p_resources[i] belongs to, in order of preference.
--
-- A resource may be taken when its term is over (whether or not a sweeper has seen that), its lock delay and grace
-- have passed, and nobody queues before the ask; within the grace its former token may, before everybody.
create or replace function acquire_leases(
  p_of int[], p_resources text[], p_modes text[], p_holders text[], p_tokens text[], p_former_tokens text[],
  p_ttl_ms bigint[], p_lifetime_ms bigint[], p_lock_delay_ms bigint[], p_grace_ms bigint[], p_soft_ttl_ms bigint[],
  p_tickets bigint[], p_priorities int[], p_wait boolean)
returns table (ord int, refused text, applied boolean, resource text, holder text, fence bigint, left_ms float8)
language plpgsql as $$
#variable_conflict use_column
declare
  v_locked text[] := lock_resources(p_resources, p_wait);
  v_now timestamptz := clock_timestamp();
  v_ask int;
  v_verdict text;
  v_taken text[];
begin
  for v_ask in 1 .. cardinality(p_modes) loop
    select j.verdict, j.taken into v_verdict, v_taken
    from judge_acquire(v_ask, array(select r from unnest(p_of, p_resources) with ordinality a(ask, r, n) where ask = v_ask order by n),
      p_modes[v_ask] = 'all', p_tokens[v_ask], p_former_tokens[v_ask], p_tickets[v_ask], p_priorities[v_ask], v_locked, v_now) j;

    -- The key was used for another request: what that one was granted isn't this one's.
    if v_verdict = 'repeated' and exists (select from resource_leases l where l.resource = any(v_taken)
      and (l.holder, l.ttl_ms, l.lifetime_ends_at, l.lock_delay_ms, l.grace_ms, l.soft_ttl_ms) is distinct from
        (p_holders[v_ask], p_ttl_ms[v_ask], l.granted_at + after_ms(p_lifetime_ms[v_ask]),
          coalesce(p_lock_delay_ms[v_ask], 0), coalesce(p_grace_ms[v_ask], 0), p_soft_ttl_ms[v_ask]))
    then
      v_verdict := 'idempotency_key_reused';
    end if;

    if v_verdict = 'free' then
      perform end_terms(v_taken, v_now);
      update resource_leases l set
        fence = greatest(l.fence, fence_floor()) + 1, status = 'active', holder = p_holders[v_ask],
        token_hash = sha256(convert_to(p_tokens[v_ask], 'UTF8')),
        granted_at = t.at, renewed_at = null, renewals = 0, ends_at = t.ends_at, due_at = t.ends_at,
        free_at = t.ends_at + after_ms(greatest(p_grace_ms[v_ask], p_lock_delay_ms[v_ask], 0)),
        lifetime_ends_at = t.at + after_ms(p_lifetime_ms[v_ask]), break_at = null, broken_by = null, recover_at = null,
        ttl_ms = p_ttl_ms[v_ask], lock_delay_ms = coalesce(p_lock_delay_ms[v_ask], 0), grace_ms = coalesce(p_grace_ms[v_ask], 0),
        soft_ttl_ms = p_soft_ttl_ms[v_ask], confirmed_at = null, data = null, updated_at = t.at
      from (select o.resource, greatest(v_now, o.updated_at) as at,
          greatest(v_now, o.updated_at) + after_ms(least(p_ttl_ms[v_ask], p_lifetime_ms[v_ask])) as ends_at
        from resource_leases o where o.resource = any(v_taken)) t
      where l.resource = t.resource and l.status <> 'confirmed' and (l.status <> 'active' or v_now >= l.ends_at);
      delete from resource_lease_tickets q where q.ticket = p_tickets[v_ask];
    elsif v_verdict = 'held' then
      perform ask_for_recovery(array(select r from unnest(p_of, p_resources) a(ask, r) where ask = v_ask), v_now);
    end if;

    return query
    select v_ask, nullif(nullif(v_verdict, 'free'), 'repeated'), v_verdict = 'free', l.resource,
      case when l.status in ('active', 'confirmed') and (l.ends_at is null or v_now < l.free_at) then l.holder end, l.fence,
      case when v_verdict in ('free', 'repeated') then left_ms(v_now, l.ends_at, l.ttl_ms)
        when l.status = 'confirmed' and l.ends_at is null then null
        when l.status in ('active', 'confirmed') and v_now < l.free_at
          then left_ms(v_now, l.free_at, l.ttl_ms + greatest(l.grace_ms, l.lock_delay_ms))
        -- Free, but others queue before this ask: until the first of them should have come.
        else ticket_patience_ms() end
    from resource_leases l
    where l.resource = any(case when v_verdict in ('free', 'repeated') then v_taken
      else array(select r from unnest(p_of, p_resources) a(ask, r) where ask = v_ask) end)
    order by array_position(p_resources, l.resource);
  end loop;
end $$;

-- What may become of one ask, and of which of its resources.
create or replace function judge_acquire(
  p_ask int, p_resources text[], p_all boolean, p_token text, p_former_token text, p_ticket bigint, p_priority int,
  p_locked text[], p_now timestamptz)
returns table (verdict text, taken text[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_own text[];
  v_own_over boolean;
  v_free text[];
begin
  if not p_resources <@ p_locked then return query select 'busy', null::text[]; return; end if;

  select array_agg(l.resource order by w.n) filter (where l.status = 'confirmed' or (l.status = 'active' and p_now < l.ends_at)),
    bool_or(l.status not in ('active', 'confirmed') or p_now >= l.ends_at)
    into v_own, v_own_over
  from unnest(p_resources) with ordinality w(resource, n)
  join resource_leases l on l.resource = w.resource and l.token_hash = sha256(convert_to(p_token, 'UTF8'));
  -- The same ask again: the term that it got, or the news that it is over.
  if v_own is not null then return query select 'repeated', v_own; return; end if;
  if v_own_over then return query select 'lease_expired', null::text[]; return; end if;

  select array_agg(l.resource order by w.n) into v_free
  from unnest(p_resources) with ordinality w(resource, n)
  join resource_leases l on l.resource = w.resource
  where (l.status = 'active' and l.token_hash = sha256(convert_to(p_former_token, 'UTF8')) and p_now >= l.ends_at
      and l.ends_at is distinct from l.break_at and l.ends_at is distinct from l.recover_at
      and p_now < l.ends_at + after_ms(l.grace_ms))
    or ((l.status not in ('active', 'confirmed') or p_now >= l.free_at)
      and not exists (select from resource_lease_tickets q
        where q.resource = l.resource and q.ticket is distinct from p_ticket
          and q.seen_at > clock_timestamp() - after_ms(ticket_patience_ms())
          and (q.priority > p_priority or (q.priority = p_priority and (p_ticket is null or q.ticket < p_ticket)))));

  if p_all and cardinality(v_free) = cardinality(p_resources) then return query select 'free', v_free;
  elsif not p_all and v_free is not null then return query select 'free', v_free[1:1];
  else return query select 'held', null::text[];
  end if;
end $$;

-- A term past its soft TTL ends after its grace, unless the holder renews by then.
create or replace function ask_for_recovery(p_resources text[], p_now timestamptz)
returns void language sql as $$
  update resource_leases l set recover_at = p_now + after_ms(l.grace_ms), ends_at = p_now + after_ms(l.grace_ms),
    free_at = p_now + after_ms(l.grace_ms + l.lock_delay_ms), updated_at = greatest(p_now, l.updated_at)
  where l.resource = any(p_resources) and l.status = 'active' and p_now < l.ends_at and l.recover_at is null
    and p_now >= coalesce(l.renewed_at, l.granted_at) + after_ms(l.soft_ttl_ms)
    and p_now + after_ms(l.grace_ms) < l.ends_at;
$$;
