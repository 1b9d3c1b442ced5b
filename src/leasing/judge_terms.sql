-- What a token may do to the term it belongs to. The order of the refusals is part of the contract. Called once
-- the rides and drivers are locked, and of a mixed set again after the change to read the answers: a term in p_ended_as is
-- `repeated`, so that a later answer says what the first one did.
-- A null verdict means: the term is live, the token is its own.
create or replace function judge_terms(
  p_region smallint, p_offer_ids uuid[], p_tokens text[], p_driver_ids text[],
  p_rides uuid[], p_drivers text[], p_ended_as text, p_now timestamptz)
returns table (ord int, offer_id uuid, ride_id uuid, driver_id text, verdict text, at timestamptz, lease_expires_at timestamptz, received boolean)
language plpgsql as $$
#variable_conflict use_column
begin
  return query
  select a.ord::int, o.id, o.ride_id, o.driver_id,
    case
      when o.id is null then 'offer_not_found'
      when a.driver_id <> o.driver_id then 'wrong_driver'
      when sha256(convert_to(a.token, 'UTF8')) <> o.token_hash then 'wrong_token'
      when o.status = p_ended_as and o.proof is not null then 'repeated'
      -- A term that has ended stays so, whoever holds its driver; he may have moved to another region since.
      when o.ride_id <> all(p_rides) or o.status = 'pending' and o.driver_id <> all(p_drivers) then 'busy'
      when o.status = 'pending' and d.offer_id = o.id and o.search_try = r.search_try and t.at < d.lease_expires_at then null
      when r.status = 'cancelled' then 'ride_cancelled'
      when r.assigned_offer_id <> o.id then 'ride_taken'
      when o.status in ('pending', 'expired', 'undeliverable') and d.fence = o.fence then 'lease_expired'
      else 'lease_lost'
    end,
    t.at, d.lease_expires_at, d.lease_received_at is not null
  from unnest(p_offer_ids, p_tokens, p_driver_ids) with ordinality a(offer_id, token, driver_id, ord)
  left join offers o on o.region = p_region and o.id = a.offer_id
  left join rides r on r.region = p_region and r.id = o.ride_id
  left join driver_state d on d.region = p_region and d.driver_id = o.driver_id
  cross join lateral (select greatest(p_now, d.updated_at, r.updated_at) as at) t
  order by a.ord;
end $$;
