-- Some of what is queued for a webhook that is to be deleted, in short transactions before it: there may be more of it than
-- one statement has time for. What somebody is busy with is left to the end.
create or replace function drop_deliveries(p_webhook text, p_limit int) returns int language plpgsql as $$
declare
  v_dropped int;
begin
  delete from work_items w using (select d.id from work_items d where d.queue = 'cabrank/webhook/' || p_webhook
    limit p_limit for update skip locked) old where w.id = old.id;
  get diagnostics v_dropped = row_count;
  return v_dropped;
end $$;

-- A webhook is gone with all that is queued for it, or is still there. While its row is held nobody publishes to it, and
-- what was published before is seen by the statements after: nothing is left that a later one of its id would get.
create or replace function delete_webhook(p_webhook text) returns boolean language plpgsql as $$
begin
  perform from webhooks w where w.id = p_webhook for update;
  if not found then return false; end if;
  perform from work_items w where w.queue = 'cabrank/webhook/' || p_webhook order by w.id for update;
  delete from work_items w where w.queue = 'cabrank/webhook/' || p_webhook;
  delete from webhooks w where w.id = p_webhook;
  return true;
end $$;
