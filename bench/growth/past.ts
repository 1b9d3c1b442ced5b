/** A past: rides that were completed long ago, with their offers, assignments and events. */
import type { Sql } from '../../src/database/connection.ts';
import postgres from '../../src/database/postgres.ts';
import { addRegion } from '../region.ts';

const STEP = 50_000;
/** One for each core of a small machine. */
const LANES = 4;
const DRIVERS = 10_000;

/** As the service would have left them, one offer a ride, in a region of their own: `verify` finds nothing wrong. */
export async function addPast(databaseUrl: string, offers: number): Promise<void> {
  await using open = new AsyncDisposableStack();
  const sql = open.adopt(postgres(databaseUrl, { max: LANES, onnotice: () => {} }), (pool) => pool.end({ timeout: 2 }));
  const region = await addRegion(sql, 'past');
  const steps = Array.from({ length: Math.ceil(offers / STEP) }, (_, i) => i * STEP);
  await Promise.all(
    Array.from({ length: LANES }, async () => {
      for (let from = steps.shift(); from !== undefined; from = steps.shift())
        await addStep(sql, region, from, Math.min(offers, from + STEP) - 1);
    }),
  );
  await addTheirDrivers(sql, region);
}

async function addStep(sql: Sql, region: number, from: number, to: number): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`set local search_path to public, leasing`;
    // Keys are made, not looked up: the triggers of the foreign keys would be most of the time.
    await tx`set local session_replication_role = replica`;
    await tx`create temporary table past on commit drop as
        select uuidv7(i * interval '10 ms' - interval '30 days') as ride_id,
          uuidv7(i * interval '10 ms' - interval '30 days') as offer_id, 'past-' || i % ${DRIVERS}::int as driver_id,
          1 + i / ${DRIVERS}::int as fence, now() - interval '30 days' + i * interval '10 ms' as at
        from generate_series(${from}::int, ${to}::int) i`;
    await tx`insert into rides (region, id, rider_id, status, vehicle_class, pickup_lat, pickup_lng, dropoff_lat, dropoff_lng, policy_version,
          requested_at, patience_until, offers_made, assigned_driver_id, assigned_offer_id, ended_at, event_seq, version, updated_at)
        select ${region}::int2, ride_id, 'rider', 'completed', 'economy', 48, 7.85, 48, 7.85, 1,
          at, at + interval '5 min', 1, driver_id, offer_id, at + interval '1 s', 6, 6, at + interval '1 s' from past`;
    await tx`insert into offers (region, id, ride_id, driver_id, fence, status, token_hash, proof, granted_at, received_at,
          expires_at, lifetime_ends_at, ended_at, decision_ttl_ms, pickup_eta_s, policy_version, version)
        select ${region}::int2, offer_id, ride_id, driver_id, fence, 'accepted', h, h, at, at + interval '300 ms',
          at + interval '4 s', at + interval '30 s', at + interval '300 ms', 15000, 60, 1, 2
        from past, lateral (select sha256(offer_id::text::bytea) as h) x`;
    await tx`insert into assignments (region, offer_id, ride_id, driver_id, fence, assigned_at, ended_at, ended_as)
        select ${region}::int2, offer_id, ride_id, driver_id, fence, at + interval '300 ms', at + interval '1 s', 'completed' from past`;
    await tx`insert into ride_events (region, ride_id, seq, type, at)
        select ${region}::int2, ride_id, 1, 'ride_requested', at from past`;
    await tx`insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
        select ${region}::int2, ride_id, e.seq, e.type, at + e.after, driver_id, offer_id, fence
        from past, (values (2, 'offer_made', interval '0'), (3, 'offer_accepted', interval '300 ms'),
          (4, 'driver_arrived', interval '500 ms'), (5, 'ride_started', interval '600 ms'),
          (6, 'ride_completed', interval '1 s')) e(seq, type, after)`;
  });
}

/** Each available since its last ride. */
async function addTheirDrivers(sql: Sql, region: number): Promise<void> {
  await sql`insert into drivers (id, region, vehicle_class)
    select distinct driver_id, ${region}::int2, 'economy' from assignments where region = ${region}::int2`;
  await sql`insert into driver_state (region, driver_id, status, vehicle_class, fence, updated_at)
    select ${region}::int2, driver_id, 'available', 'economy', max(fence), max(ended_at)
    from assignments where region = ${region}::int2 group by driver_id`;
}
