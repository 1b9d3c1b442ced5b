/** A past: rides that were completed long ago, with their offers, assignments and events. */
import type { TransactionSql } from 'postgres';
import type { Sql } from '../src/database/connection.ts';
import postgres from '../src/database/postgres.ts';
import { addRegion } from './region.ts';

const STEP = 50_000;
/** One for each core of a small machine. */
const LANES = 4;
const DRIVERS = 10_000;

/**
 * As the service would have left them, in a region of their own: `verify` finds nothing wrong. Each ride was accepted at its
 * first offer, or at its second after another driver had declined.
 */
export async function addPast(databaseUrl: string, rides: number, offersEach: 1 | 2 = 1): Promise<void> {
  await using open = new AsyncDisposableStack();
  const sql = open.adopt(postgres(databaseUrl, { max: LANES, onnotice: () => {} }), (pool) => pool.end({ timeout: 2 }));
  const region = await addRegion(sql, 'past');
  const steps = Array.from({ length: Math.ceil(rides / STEP) }, (_, i) => i * STEP);
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      for (let from = steps.shift(); from !== undefined; from = steps.shift())
        await addStep(sql, region, { from, to: Math.min(rides, from + STEP) - 1, offersEach });
    }),
  );
  await addTheirDrivers(sql, region);
}

/**
 * Every driver accepts one ride of each `DRIVERS`, and declines the one half a turn away: of his terms of a turn the
 * acceptance is the first where his number is in the lower half.
 */
async function addStep(
  sql: Sql,
  region: number,
  { from, to, offersEach }: { readonly from: number; readonly to: number; readonly offersEach: 1 | 2 },
): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`set local search_path to public, leasing`;
    // Keys are made, not looked up: the triggers of the foreign keys would be most of the time.
    await tx`set local session_replication_role = replica`;
    await tx`create temporary table past on commit drop as
        select *, 'past-' || accepts as driver_id, 'past-' || declines as declined_by,
          1 + turn * ${offersEach}::int + (accepts >= ${DRIVERS / 2}::int and ${offersEach}::int = 2)::int as fence,
          1 + turn * 2 + (declines < ${DRIVERS / 2}::int)::int as declined_fence,
          at + case ${offersEach}::int when 2 then interval '150 ms' else interval '0' end as made_at
        from (select uuidv7(i * interval '10 ms' - interval '30 days') as ride_id,
            uuidv7(i * interval '10 ms' - interval '30 days') as declined_id,
            uuidv7(i * interval '10 ms' - interval '30 days') as offer_id,
            i / ${DRIVERS}::int as turn, i % ${DRIVERS}::int as accepts, (i + ${DRIVERS / 2}::int) % ${DRIVERS}::int as declines,
            now() - interval '30 days' + i * interval '10 ms' as at
          from generate_series(${from}::int, ${to}::int) i) made`;
    await tx`insert into rides (region, id, rider_id, status, vehicle_class, pickup_lat, pickup_lng, dropoff_lat, dropoff_lng, policy_version,
          requested_at, patience_until, offers_made, assigned_driver_id, assigned_offer_id, ended_at, event_seq, version, updated_at)
        select ${region}::int2, ride_id, 'rider', 'completed', 'economy', 48, 7.85, 48, 7.85, 1,
          at, at + interval '5 min', ${offersEach}, driver_id, offer_id, at + interval '1 s', 6, 6, at + interval '1 s' from past`;
    await tx`insert into offers (region, id, ride_id, driver_id, fence, status, token_hash, proof, granted_at, received_at,
          expires_at, lifetime_ends_at, ended_at, decision_ttl_ms, pickup_eta_s, policy_version, version)
        select ${region}::int2, offer_id, ride_id, driver_id, fence, 'accepted', h, h, made_at, at + interval '300 ms',
          made_at + interval '4 s', made_at + interval '30 s', at + interval '300 ms', 15000, 60, 1, 2
        from past, lateral (select sha256(offer_id::text::bytea) as h) x`;
    await tx`insert into assignments (region, offer_id, ride_id, driver_id, fence, assigned_at, ended_at, ended_as)
        select ${region}::int2, offer_id, ride_id, driver_id, fence, at + interval '300 ms', at + interval '1 s', 'completed' from past`;
    await tx`insert into ride_events (region, ride_id, seq, type, at)
        select ${region}::int2, ride_id, 1, 'ride_requested', at from past`;
    await tx`insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
        select ${region}::int2, ride_id, e.seq + 2 * (${offersEach}::int - 1), e.type,
          case e.seq when 2 then made_at else at + e.after end, driver_id, offer_id, fence
        from past, (values (2, 'offer_made', interval '0'), (3, 'offer_accepted', interval '300 ms'),
          (4, 'driver_arrived', interval '500 ms'), (5, 'ride_started', interval '600 ms'),
          (6, 'ride_completed', interval '1 s')) e(seq, type, after)`;
    if (offersEach === 2) await addDeclined(tx, region);
  });
}

async function addDeclined(tx: TransactionSql, region: number): Promise<void> {
  await tx`insert into offers (region, id, ride_id, driver_id, fence, status, token_hash, proof, granted_at,
        expires_at, lifetime_ends_at, ended_at, decision_ttl_ms, pickup_eta_s, policy_version, version)
      select ${region}::int2, declined_id, ride_id, declined_by, declined_fence, 'declined', h, h, at,
        at + interval '4 s', at + interval '30 s', at + interval '100 ms', 15000, 60, 1, 2
      from past, lateral (select sha256(declined_id::text::bytea) as h) x`;
  await tx`insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
      select ${region}::int2, ride_id, e.seq, e.type, at + e.after, declined_by, declined_id, declined_fence
      from past, (values (2, 'offer_made', interval '0'), (3, 'offer_declined', interval '100 ms')) e(seq, type, after)`;
  await tx`update rides r set event_seq = 8, version = 8, excluded_driver_ids = array[declined_by], excluded_as = array['declined'],
      excluded_at = array[at + interval '100 ms'] from past where r.region = ${region}::int2 and r.id = ride_id`;
}

/** Each available since its last term. */
async function addTheirDrivers(sql: Sql, region: number): Promise<void> {
  await sql`insert into drivers (id, region, vehicle_class)
    select distinct driver_id, ${region}::int2, 'economy' from offers where region = ${region}::int2`;
  await sql`insert into driver_state (region, driver_id, status, vehicle_class, fence, updated_at)
    select ${region}::int2, driver_id, 'available', 'economy', max(fence), max(ended_at) + interval '1 s'
    from offers where region = ${region}::int2 group by driver_id`;
}
