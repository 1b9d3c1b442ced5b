-- Work claimed under a lease. A claim is a term of one item: it ends by itself, and what was claimed is ready again.

-- New items, each known by its key: one that is known, done within the day, or dead, is left alone. In their order.
create or replace function add_work(p_queue text, p_keys text[], p_groups text[], p_payloads text[], p_delays_ms bigint[])
returns int language plpgsql as $$
declare
  v_added int;
begin
  insert into work_items (queue, key, group_name, payload, ready_at)
  select p_queue, a.key, a.group_name, a.payload::jsonb, clock_timestamp() + after_ms(a.delay_ms)
  from unnest(p_keys, p_groups, p_payloads, p_delays_ms) with ordinality a(key, group_name, payload, delay_ms, ord)
  order by a.ord
  on conflict (queue, key) do nothing;
  get diagnostics v_added = row_count;
  return v_added;
end $$;

-- The first of an item's group that is still to be done: the others wait for it. Itself if it has no group.
create or replace function leading_work(p_queue text, p_group text, p_id bigint) returns bigint language sql stable as $$
  select case when p_group is null then p_id else (select o.id from work_items o
    where o.queue = p_queue and o.group_name = p_group and o.id <= p_id and o.ready_at is not null
    order by o.id limit 1) end
$$;

-- Claims what is ready, the longest first. Never waits for rows that somebody else is claiming. Items that wait for
-- others of their group are put off until that one's turn should be over, so that a stuck group isn't walked again and
-- again; whoever ends the one calls the next.
create or replace function next_work(p_queue text, p_max int, p_ttl_ms bigint, p_tokens text[])
returns table (ord int, key text, group_name text, payload jsonb, attempt int)
language plpgsql as $$
#variable_conflict use_column
declare
  -- A variable ends the walk along the index; the clock itself would be asked again for each item that is put off.
  v_asked_at timestamptz := clock_timestamp();
  v_ready bigint[] := array(select w.id from work_items w
    where w.queue = p_queue and w.ready_at is not null and w.ready_at <= v_asked_at
    order by w.ready_at, w.id limit 4 * p_max for no key update skip locked);
  v_now timestamptz := clock_timestamp();
  -- Each stands for the first of its group, which needn't be among them: one that was put back, or whose claim ran out,
  -- is ready since later than all that wait for it.
  v_leading bigint[] := array(select leading_work(p_queue, w.group_name, w.id)
    from unnest(v_ready) with ordinality r(id, nth) join work_items w on w.id = r.id order by r.nth);
  v_free bigint[] := array(select w.id from work_items w where w.id = any(v_leading) and w.ready_at <= v_now
    for no key update skip locked);
begin
  return query
  with chosen as (
    select f.id, row_number() over (order by f.id)::int as ord from unnest(v_free) f(id) order by f.id limit p_max
  )
  update work_items w set attempts = w.attempts + 1, ready_at = v_now + after_ms(p_ttl_ms),
    token_hash = sha256(convert_to(p_tokens[c.ord], 'UTF8'))
  from chosen c where w.id = c.id
  returning c.ord, w.key, w.group_name, w.payload, w.attempts;

  -- Nobody is put off behind one that somebody is just ending: its end may have called the next already.
  with held as (
    select l.id, l.ready_at from work_items l where l.id = any(v_leading) and l.ready_at > v_now
    for no key update skip locked
  )
  update work_items w set ready_at = l.ready_at + interval '1 millisecond'
  from unnest(v_ready, v_leading) r(id, leading_id) join held l on l.id = r.leading_id
  where r.id <> r.leading_id and w.id = r.id and w.ready_at <= v_now;
end $$;

-- Of these claims, those that are live: the newest of their items, and not over. Locked.
create or replace function live_work(p_queues text[], p_keys text[], p_tokens text[])
returns bigint[] language plpgsql as $$
begin
  perform from work_items w join unnest(p_queues, p_keys) a(queue, key) on w.queue = a.queue and w.key = a.key
  order by w.id for no key update of w;
  return array(
    select w.id from work_items w join unnest(p_queues, p_keys, p_tokens) a(queue, key, token)
      on w.queue = a.queue and w.key = a.key and w.token_hash = sha256(convert_to(a.token, 'UTF8'))
    where w.ready_at > clock_timestamp());
end $$;

create or replace function answer_work(p_queues text[], p_keys text[], p_tokens text[], p_live bigint[])
returns table (ord int, refused text) language sql stable as $$
  select a.ord::int, case when w.id is null then 'claim_lost' end
  from unnest(p_queues, p_keys, p_tokens) with ordinality a(queue, key, token, ord)
  left join work_items w on w.queue = a.queue and w.key = a.key and w.id = any(p_live)
    and w.token_hash = sha256(convert_to(a.token, 'UTF8'))
  order by a.ord
$$;

-- The next of a group may be claimed at once.
create or replace function call_next_work(p_ids bigint[]) returns void language sql as $$
  update work_items n set ready_at = clock_timestamp()
  from work_items w, lateral (select o.id from work_items o
    where o.queue = w.queue and o.group_name = w.group_name and o.id > w.id and o.ready_at is not null
    order by o.id limit 1) f
  where w.id = any(p_ids) and w.group_name is not null and n.id = f.id and n.ready_at > clock_timestamp() and n.token_hash is null
$$;

create or replace function heartbeat_work(p_queues text[], p_keys text[], p_tokens text[], p_ttl_ms bigint)
returns table (ord int, refused text) language plpgsql as $$
declare
  v_live bigint[] := live_work(p_queues, p_keys, p_tokens);
begin
  update work_items w set ready_at = clock_timestamp() + after_ms(p_ttl_ms) where w.id = any(v_live);
  return query select * from answer_work(p_queues, p_keys, p_tokens, v_live);
end $$;

create or replace function complete_work(p_queues text[], p_keys text[], p_tokens text[])
returns table (ord int, refused text) language plpgsql as $$
declare
  v_live bigint[] := live_work(p_queues, p_keys, p_tokens);
begin
  update work_items w set ready_at = null, done_at = clock_timestamp(), last_error = null where w.id = any(v_live);
  perform call_next_work(v_live);
  -- A completion that is repeated was completed.
  return query
  select a.ord, case when a.refused is not null and w.done_at is not null then null else a.refused end
  from answer_work(p_queues, p_keys, p_tokens, v_live) a
  left join work_items w on w.queue = p_queues[a.ord] and w.key = p_keys[a.ord]
    and w.token_hash = sha256(convert_to(p_tokens[a.ord], 'UTF8'));
end $$;

-- Not done: due again later, or dead once its attempts are used up. A dead item blocks nobody.
create or replace function fail_work(p_queue text, p_key text, p_token text, p_error text, p_retry_ms bigint, p_attempts_max int)
returns table (refused text, dead boolean) language plpgsql as $$
declare
  v_live bigint[] := live_work(array[p_queue], array[p_key], array[p_token]);
  v_dead boolean;
begin
  update work_items w set last_error = p_error, token_hash = null,
    ready_at = case when w.attempts < p_attempts_max then clock_timestamp() + after_ms(p_retry_ms) end,
    dead_at = case when w.attempts >= p_attempts_max then clock_timestamp() end
  where w.id = any(v_live) returning w.dead_at is not null into v_dead;
  if v_dead then perform call_next_work(v_live); end if;
  return query select case when cardinality(v_live) = 0 then 'claim_lost' end, coalesce(v_dead, false);
end $$;

create or replace function put_back_work(p_queues text[], p_keys text[], p_tokens text[])
returns table (ord int, refused text) language plpgsql as $$
declare
  v_live bigint[] := live_work(p_queues, p_keys, p_tokens);
begin
  return query select * from answer_work(p_queues, p_keys, p_tokens, v_live);
  update work_items w set ready_at = clock_timestamp(), token_hash = null, attempts = w.attempts - 1 where w.id = any(v_live);
end $$;

-- Dead items of a queue come to life again, with all their attempts; null: all of them, a bounded number at a time.
create or replace function revive_work(p_queue text, p_keys text[], p_limit int) returns int language plpgsql as $$
declare
  v_revived int;
begin
  update work_items w set ready_at = clock_timestamp(), dead_at = null, attempts = 0
  where w.id in (select d.id from work_items d where d.queue = p_queue and d.dead_at is not null
    and (p_keys is null or d.key = any(p_keys)) order by d.id limit p_limit for update skip locked);
  get diagnostics v_revived = row_count;
  return v_revived;
end $$;

create or replace function drop_done_work(p_limit int) returns int language plpgsql as $$
declare
  v_before timestamptz := clock_timestamp() - interval '1 day';
  v_dropped int;
begin
  delete from work_items w using (select d.id from work_items d where d.done_at < v_before
    order by d.done_at limit p_limit for update skip locked) old where w.id = old.id;
  get diagnostics v_dropped = row_count;
  return v_dropped;
end $$;
