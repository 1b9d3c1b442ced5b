/** A recorded history with something of everything in it, and databases whose records can be falsified. */
import { randomBytes } from 'node:crypto';
import { inject } from 'vitest';
import {
  acquireLeases,
  breakLease,
  confirmLease,
  releaseLeases,
  renewLeases,
} from '../../src/resource-leases/transitions.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as t from '../../src/leasing/transitions.ts';
import { addDrivers, addRegion, lease, leaseTerms, newRide, type Term } from './city.ts';
import { urlOfDatabase, withConnection, type TestDatabase } from './database.ts';

/** Rides of the history by what becomes of them, and the terms that tests falsify. */
export type RideName = (typeof rideNames)[number];
export type TermName =
  | 'completed'
  | 'declined'
  | 'expired'
  | 'undeliverable'
  | 'quick'
  | 'withdrawn'
  | 'taken'
  | 'lost'
  | 'givenBack'
  | 'driving'
  | 'assigned'
  | 'cancelled'
  | 'released'
  | 'offered'
  | 'shiftEnd'
  | 'undelivered'
  | 'heldBack'
  | 'stalled'
  | 'replaced'
  | 'moved';

const rideNames = [
  'completed',
  'tried',
  'givenUp',
  'cancelledWhileOffered',
  'cancelledWhenAssigned',
  'arrived',
  'driving',
  'assigned',
  'offered',
  'queued',
  'keyed',
  'held',
  'stalled',
  'replaced',
  'early',
] as const;

export interface History {
  readonly region: number;
  /** A second region, to which driver d12 moved. */
  readonly other: number;
  readonly ride: Readonly<Record<RideName, string>>;
  readonly term: Readonly<Record<TermName, Term>>;
}

/** As if `ms` had passed since everything recorded so far: every time in the database goes back by so much. */
export async function age(sql: Sql, ms: number): Promise<void> {
  const columns = await sql<{ table_name: string; names: string[] }[]>`
    select table_name, array_agg(column_name::text) as names from information_schema.columns
    where table_schema = 'public' and data_type = 'timestamp with time zone' group by table_name`;
  const updates = columns.map(
    ({ table_name, names }) =>
      `update ${table_name} set ${names.map((name) => `${name} = ${name} - interval '${ms} ms'`).join(', ')};`,
  );
  await sql.unsafe(updates.join('\n'));
}

class Recorder {
  readonly sql: Sql;
  readonly region: number;

  constructor(sql: Sql, region: number) {
    this.sql = sql;
    this.region = region;
  }

  lease(rideId: string, driverId: string): Promise<Term> {
    return lease(this.sql, this.region, rideId, driverId, { parallelOffers: 2 });
  }

  async received(rideId: string, driverId: string): Promise<Term> {
    const term = await this.lease(rideId, driverId);
    mustApply(await t.receiveOffers(this.sql, this.region, [term], true));
    return term;
  }

  async accepted(rideId: string, driverId: string): Promise<Term> {
    const term = await this.received(rideId, driverId);
    await this.confirm(term);
    return term;
  }

  async confirm(term: Term): Promise<void> {
    mustApply(await t.confirmOffers(this.sql, this.region, [term], true));
  }

  async advance({ rideId, driverId }: Term, ...steps: t.RideStep[]): Promise<void> {
    for (const status of steps)
      mustApply(await t.advanceRides(this.sql, this.region, [{ rideId, driverId, status }], true));
  }

  async end(term: Term, status: 'declined' | 'withdrawn', reason: string): Promise<void> {
    mustApply(await t.returnOffers(this.sql, this.region, [{ ...term, reason }], status, true));
  }

  async cancel(rideId: string, source: t.CancelAsk['source']): Promise<void> {
    mustApply(
      await t.cancelRides(this.sql, this.region, [{ rideId, riderId: null, source, reason: 'changed_mind' }], true),
    );
  }

  /** Lets so much time pass, and frees what is over. */
  async lapse(ms: number): Promise<void> {
    await age(this.sql, ms);
    await t.expireLeases(this.sql, this.region, t.FROM_THE_FIRST, 100);
  }
}

function mustApply(answers: readonly { refused: string | null; applied: boolean }[]): void {
  for (const { refused, applied } of answers) if (!applied) throw new Error(`not applied: ${refused ?? 'repeated'}`);
}

/** Every way in which rides and terms go and end, written by the service's own transitions. */
export async function recordHistory(sql: Sql): Promise<History> {
  const region = await addRegion(sql, 'berlin', { parallelOffers: 2 });
  const other = await addRegion(sql, 'potsdam', { parallelOffers: 2 });
  await addDrivers(sql, region, 16);
  const r = new Recorder(sql, region);
  const key = { subject: 'backend', key: 'once', requestHash: randomBytes(32) };
  const made = await t.createRides(
    sql,
    region,
    rideNames.map((name) => newRide(region, name === 'keyed' ? { idempotency: key } : {})),
  );
  const ride = Object.fromEntries(rideNames.map((name, i) => [name, made[i]!.ride_id])) as Record<RideName, string>;

  const early = await r.accepted(ride.early, 'd12');
  await r.advance(early, 'driver_arrived', 'in_progress', 'completed');
  const lapsed = await recordLapses(r, ride.tried);
  const completed = await r.accepted(ride.completed, 'd1');
  await r.advance(completed, 'driver_arrived', 'in_progress', 'completed');
  await t.settleRides(sql, region, [{ rideId: ride.givenUp, waitMs: 1_000, reason: 'nobody_near' }], {
    offersMax: 0,
    rescueMs: 0,
    recoveryMs: 0,
  });
  const ended = await recordCancellations(r, ride);
  const open = await recordOpenRides(r, ride);
  const handled = await recordByHand(r, ride);
  const keyedAsk = {
    rideId: ride.keyed,
    driverId: 'd10',
    offerId: newId(region),
    leaseToken: newLeaseToken(),
    pickupEtaS: 60,
  };
  const keyed = await t.leaseDriverOnce(sql, region, keyedAsk, { ...leaseTerms, parallelOffers: 2 }, key);
  await recordResourceTerms(sql);
  const moved = await recordMove(sql, { from: region, to: other });
  return {
    region,
    other,
    ride,
    term: {
      completed,
      ...lapsed,
      ...ended,
      ...open,
      ...handled,
      undelivered: { ...keyedAsk, fence: keyed.fence },
      moved,
    },
  };
}

/** Of `job` three terms: released, broken after a renewal, and one that runs; of `seat` one that is confirmed. */
async function recordResourceTerms(sql: Sql): Promise<void> {
  const grant = (resource: string, token: string) =>
    acquireLeases(sql, [{ request: { resource, holder: 'h', ttlMs: 60_000 }, token, ticket: null }], true);
  await grant('job', 'first');
  await releaseLeases(sql, [{ resource: 'job', token: 'first' }], true);
  await grant('job', 'second');
  await renewLeases(sql, [{ resource: 'job', token: 'second' }], true);
  await breakLease(sql, { resource: 'job' }, 'olga');
  await grant('job', 'third');
  await grant('seat', 'only');
  await confirmLease(sql, { resource: 'seat', token: 'only' }, { row: 7 });
  await grant('done', 'only');
  await releaseLeases(sql, [{ resource: 'done', token: 'only' }], true);
}

async function recordLapses(r: Recorder, rideId: string) {
  const declined = await r.received(rideId, 'd2');
  await r.end(declined, 'declined', 'too_far');
  const expired = await r.received(rideId, 'd3');
  await r.lapse(20_000);
  const undeliverable = await r.lease(rideId, 'd4');
  await r.lapse(5_000);
  const quick = await r.lease(rideId, 'd1');
  await r.confirm(quick);
  await r.advance(quick, 'driver_arrived', 'in_progress', 'completed');
  return { declined, expired, undeliverable, quick };
}

async function recordCancellations(r: Recorder, ride: Record<RideName, string>) {
  const withdrawn = await r.lease(ride.cancelledWhileOffered, 'd5');
  await r.cancel(ride.cancelledWhileOffered, 'rider');
  const cancelled = await r.accepted(ride.cancelledWhenAssigned, 'd6');
  await r.cancel(ride.cancelledWhenAssigned, 'operator');
  return { withdrawn, cancelled };
}

/** What is under way when the history is looked at. */
async function recordOpenRides(r: Recorder, ride: Record<RideName, string>) {
  const taken = await r.received(ride.arrived, 'd7');
  const lost = await r.lease(ride.arrived, 'd8');
  await r.confirm(taken);
  await r.advance(taken, 'driver_arrived');
  const givenBack = await r.accepted(ride.driving, 'd2');
  const asks = [{ rideId: ride.driving, driverId: 'd2', reason: 'breakdown' }];
  mustApply(await t.unassignRides(r.sql, r.region, asks, true));
  const driving = await r.accepted(ride.driving, 'd3');
  await r.advance(driving, 'driver_arrived', 'in_progress');
  const assigned = await r.accepted(ride.assigned, 'd6');
  const released = await r.lease(ride.offered, 'd4');
  await r.end(released, 'withdrawn', 'better_driver');
  const offered = await r.received(ride.offered, 'd5');
  const shiftEnd = await r.lease(ride.queued, 'd9');
  mustApply(await t.takeOffline(r.sql, r.region, ['d9'], 'driver_offline', true));
  return { taken, lost, givenBack, driving, assigned, released, offered, shiftEnd };
}

/** A ride that an operator holds, one whose driver stands still, and one that went to a better driver. */
async function recordByHand(r: Recorder, ride: Record<RideName, string>) {
  const heldBack = await r.lease(ride.held, 'd13');
  mustApply([await t.holdRide(r.sql, r.region, ride.held, 'vip')]);
  const stalled = await r.accepted(ride.stalled, 'd14');
  await t.flagPickups(r.sql, r.region, [{ rideId: ride.stalled, offerId: stalled.offerId, stalledMs: 60_000 }]);
  const replaced = await r.accepted(ride.replaced, 'd15');
  const better = {
    rideId: ride.replaced,
    driverId: 'd16',
    offerId: newId(r.region),
    leaseToken: newLeaseToken(),
    pickupEtaS: 10,
    fromDriverId: 'd15',
    source: 'system' as const,
    reason: 'replaced',
  };
  mustApply([await t.reassignRide(r.sql, r.region, better, leaseTerms)]);
  return { heldBack, stalled, replaced };
}

/** A driver who goes offline, changes region with his fence, and drives there. */
async function recordMove(sql: Sql, { from, to }: { from: number; to: number }): Promise<Term> {
  mustApply(await t.takeOffline(sql, from, ['d12'], 'driver_offline', true));
  await sql`update drivers set region = ${to} where id = 'd12'`;
  await sql`update driver_state set region = ${to} where driver_id = 'd12'`;
  mustApply(await t.bringOnline(sql, to, ['d12'], true));
  const [ride] = await t.createRides(sql, to, [newRide(to)]);
  const there = new Recorder(sql, to);
  const moved = await there.accepted(ride!.ride_id, 'd12');
  await there.advance(moved, 'driver_arrived', 'in_progress', 'completed');
  return moved;
}

/** A copy of a database that nobody is connected to. */
export async function copyDatabase(url: string): Promise<TestDatabase> {
  const adminUrl = inject('adminUrl');
  const template = new URL(url).pathname.slice(1);
  const name = `cabrank_test_${randomBytes(6).toString('hex')}`;
  await withConnection(
    adminUrl,
    (sql) => sql`CREATE DATABASE ${sql(name)} TEMPLATE ${sql(template)} STRATEGY FILE_COPY`,
  );
  return {
    url: urlOfDatabase(adminUrl, name),
    [Symbol.asyncDispose]: () => withConnection(adminUrl, (sql) => sql`DROP DATABASE ${sql(name)} WITH (FORCE)`),
  };
}

/** Drops every key, unique index, foreign key and check: from now on the database refuses nothing. */
export async function dropConstraints(sql: Sql): Promise<void> {
  await sql.unsafe(`do $$
    declare
      v_each record;
    begin
      for v_each in select conrelid::regclass as "table", conname from pg_constraint
        where connamespace = 'public'::regnamespace and contype in ('f', 'c', 'u', 'p')
        order by array_position(array['f', 'c', 'u', 'p'], contype::text)
      loop
        execute format('alter table %s drop constraint %I', v_each."table", v_each.conname);
      end loop;
      for v_each in select indexrelid::regclass as "index" from pg_index i join pg_class c on c.oid = i.indexrelid
        where indisunique and c.relnamespace = 'public'::regnamespace
      loop
        execute format('drop index %s', v_each."index");
      end loop;
    end $$`);
}

/** Runs something with the service's connections to a database, and closes them. */
export async function withDatabase<Result>(url: string, work: (sql: Sql) => Promise<Result>): Promise<Result> {
  const database = connectDatabase(url, { hotConnections: 4, coldConnections: 1 });
  try {
    return await work(database.hot);
  } finally {
    await database.close();
  }
}
