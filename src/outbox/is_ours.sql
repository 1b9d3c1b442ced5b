-- Transactions are numbered by the cluster. A dump that is read into another one brings along the former's numbers, in
-- cursors, webhooks and events: those that are ahead here would be waited for, or taken for transactions of this cluster once
-- it has come so far. They are told apart for good by the row's own xmin, which is the transaction that wrote it here: what
-- happened in this cluster isn't ahead of that.

-- The whole number of a row's xmin, which is its lower half: the one that is nearest to now.
create or replace function written_by(p_xmin xid) returns xid8 language sql stable as $$
  select (n.soon - mod(n.soon - p_xmin::text::bigint, 4294967296))::text::xid8
  from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 2147483648 as soon) n
$$;

-- Almost all are equal, which costs nothing to see: without it a batch of events took half as long again.
create or replace function is_ours(p_tx xid8, p_xmin xid) returns boolean language sql stable as $$
  select p_tx::xid = p_xmin or p_tx <= written_by(p_xmin)
$$;
