/** A region in the database: it is asked what the specification is asked, and its rows are read as the specification's. */
import { isDeepStrictEqual } from 'node:util';
import type { LeaseStore } from '../../domain/lease-store.ts';
import type { Sql } from '../../src/database/connection.ts';
import * as t from '../../src/leasing/transitions.ts';
import { newRide } from '../support/city.ts';
import { done, PATIENCE_MS, TERMS, type Outcome, type NewOffer, type Request, type Specified } from './requests.ts';

/** Rides that search and drivers who are available, as `Specified` begins. */
export async function openRegion(sql: Sql, region: number, { rides, drivers }: Specified): Promise<void> {
  const asks = rides.map((rideId) => newRide(region, { rideId, riderId: 'rider', patienceMs: PATIENCE_MS }));
  await Promise.all([
    t.createRides(sql, region, asks),
    sql`insert into drivers (id, region, vehicle_class) select id, ${region}, 'economy'
      from unnest(${drivers as string[]}::text[]) id on conflict do nothing`,
    // Offline, then online: the version says so.
    sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at, version)
      select ${region}, id, 'available', 'economy', clock_timestamp(), 2 from unnest(${drivers as string[]}::text[]) id`,
  ]);
}

interface Answered {
  readonly refused: string | null;
  readonly applied?: boolean;
  readonly fence?: number;
  readonly withdrawn_offer_ids?: string[] | null;
  readonly ended_offer_id?: string | null;
  readonly released_driver_id?: string | null;
}

type OfKind<Kind extends Request['kind']> = Request & { kind: Kind };
const all = <Kind extends Request['kind']>(set: readonly Request[], _: Kind) => set as readonly OfKind<Kind>[];
const ask = ({ rideId, driverId, offerId, token, seenExclusions }: NewOffer): t.LeaseAsk => ({
  rideId,
  driverId,
  offerId,
  leaseToken: token,
  pickupEtaS: 60,
  ...(seenExclusions === undefined ? {} : { seenExclusions }),
});
const claim = ({ offerId, token, driverId }: Omit<OfKind<'confirm'>, 'kind'>) => ({
  offerId,
  leaseToken: token,
  driverId,
  reason: 'test',
});

/** Requests of one kind, in one call; in a set only of those that come in sets. */
export async function perform(sql: Sql, region: number, set: readonly Request[], wait: boolean): Promise<Outcome[]> {
  const { kind } = set[0]!;
  const isGrant = kind === 'lease' || kind === 'assign' || kind === 'reassign' || kind === 'confirm';
  const said = (answers: readonly Answered[]): Outcome[] =>
    answers.map(({ refused, fence = null, ...answer }) => {
      const applied = answer.applied ?? refused === null;
      const touched = [...(answer.withdrawn_offer_ids ?? []), answer.ended_offer_id, answer.released_driver_id];
      const known = touched.filter((id) => typeof id === 'string').toSorted();
      return { refused, applied, fence: isGrant && refused === null ? fence : null, touched: known };
    });
  switch (kind) {
    case 'lease':
      return said(await t.leaseDrivers(sql, region, all(set, kind).map(ask), TERMS, wait));
    case 'assign':
      return said(await t.assignDrivers(sql, region, all(set, kind).map(ask), TERMS, wait));
    case 'receive':
      return said(await t.receiveOffers(sql, region, all(set, kind).map(claim), wait));
    case 'confirm':
      return said(await t.confirmOffers(sql, region, all(set, kind).map(claim), wait));
    case 'decline':
    case 'release': {
      const end = kind === 'decline' ? 'declined' : 'withdrawn';
      return said(await t.returnOffers(sql, region, all(set, kind).map(claim), end, wait));
    }
    case 'cancel': {
      const asks = all(set, kind).map(({ rideId, riderId }) => ({
        rideId,
        riderId,
        source: 'rider' as const,
        reason: 'test',
      }));
      return said(await t.cancelRides(sql, region, asks, wait));
    }
    case 'driverCancel': {
      const asks = all(set, kind).map(({ rideId, driverId, source }) => ({ rideId, driverId, source, reason: 'test' }));
      return said(await t.unassignRides(sql, region, asks, wait));
    }
    case 'advance': {
      const asks = all(set, kind).map(({ rideId, driverId, step }) => ({ rideId, driverId, status: step }));
      return said(await t.advanceRides(sql, region, asks, wait));
    }
    case 'online':
      return said(
        await t.bringOnline(
          sql,
          region,
          all(set, kind).map(({ driverId }) => driverId),
          wait,
        ),
      );
    case 'offline':
      return said(
        await t.takeOffline(
          sql,
          region,
          all(set, kind).map(({ driverId }) => driverId),
          'test',
          wait,
        ),
      );
    default:
      return [await performOne(sql, region, set[0]!, said)];
  }
}

async function performOne(
  sql: Sql,
  region: number,
  asked: Request,
  said: (answers: readonly Answered[]) => Outcome[],
): Promise<Outcome> {
  switch (asked.kind) {
    case 'reassign': {
      const { fromDriverId, by } = asked;
      const reason = by === 'system' ? 'replaced' : 'test';
      const to = { ...ask(asked), fromDriverId, source: by, reason };
      return said([await t.reassignRide(sql, region, to, TERMS)])[0]!;
    }
    case 'hold':
      return said([await t.holdRide(sql, region, asked.rideId, 'test')])[0]!;
    case 'releaseHold':
      return said([await t.releaseHold(sql, region, asked.rideId, 'test')])[0]!;
    case 'sweep': {
      const looked = await t.expireLeases(sql, region, t.FROM_THE_FIRST, 100);
      const ended = looked.filter(({ ended_as: as }) => as !== null).map(({ offer_id: id }) => id);
      return done(ended.length > 0, ended);
    }
    case 'cancelNoShows': {
      const cancelled = await t.cancelNoShows(sql, region, 10);
      return done(
        cancelled.length > 0,
        cancelled.map(({ ride_id: id }) => id),
      );
    }
    case 'replaceStalled':
      return done((await t.replaceStalled(sql, region, [asked])).length === 1);
    case 'flag': {
      const pickup = { ...asked, stalledMs: asked.isStalled ? 60_000 : null };
      return done((await t.flagPickups(sql, region, [pickup])).length === 1);
    }
    case 'lift':
      return done((await t.liftExclusions(sql, region, [asked.rideId])).length === 1);
    case 'settle': {
      const terms = { offersMax: TERMS.offersMax, rescueMs: asked.rescueMs, recoveryMs: 0 };
      const ride = { rideId: asked.rideId, waitMs: 0, reason: 'nobody_near' };
      return done((await t.settleRides(sql, region, [ride], terms)).length === 1);
    }
    default:
      await befall(sql, region, asked);
      return done(true);
  }
}

/** What comes over the region by itself, or by the clock. */
async function befall(sql: Sql, region: number, what: Request): Promise<void> {
  switch (what.kind) {
    case 'lapse':
      // As if three hours had passed for the term.
      await sql`with lapsed as (
          update offers set due_at = due_at - interval '3 hours', expires_at = expires_at - interval '3 hours',
            granted_at = granted_at - interval '3 hours'
          where region = ${region} and driver_id = ${what.driverId} and due_at is not null)
        update driver_state set lease_expires_at = lease_expires_at - interval '3 hours',
          lease_granted_at = lease_granted_at - interval '3 hours',
          lease_received_at = lease_received_at - interval '3 hours', updated_at = updated_at - interval '3 hours'
        where region = ${region} and driver_id = ${what.driverId} and status = 'leased'`;
      return;
    case 'lookEarly':
      // The sweeper looks at a term that was renewed since: it isn't over.
      await sql`update offers set due_at = granted_at
        where region = ${region} and driver_id = ${what.driverId} and due_at is not null`;
      return;
    case 'outlastHold':
      await sql`update rides set held_until = updated_at where region = ${region} and id = ${what.rideId}`;
      return;
    case 'outlastWait':
      await sql`update rides set no_show_at = updated_at where region = ${region} and id = ${what.rideId}`;
      return;
    case 'outlastPatience':
      await sql`update rides set patience_until = requested_at where region = ${region} and id = ${what.rideId}`;
      return;
    case 'block': {
      const { driverId } = what;
      const pair = { region, rider_id: 'rider', driver_id: driverId, created_by: 'test' };
      if (what.isBlocked) await sql`insert into rider_driver_blocks ${sql(pair)} on conflict do nothing`;
      else await sql`delete from rider_driver_blocks where region = ${region} and driver_id = ${driverId}`;
      return;
    }
    default:
      throw new Error(`nothing does ${what.kind}`);
  }
}

export type Row = Record<string, unknown>;
type Rows = Record<'rides' | 'drivers' | 'offers' | 'assignments', readonly Row[]>;

const byId = <T extends { id: string }>(things: Iterable<T>): T[] =>
  [...things].toSorted((a, b) => (a.id < b.id ? -1 : 1));

/** Every row of a region, as far as it isn't a time. */
export async function readRows(sql: Sql, region: number, { cast }: Specified): Promise<Rows> {
  const rideIds = cast.rides as string[];
  const driverIds = cast.drivers as string[];
  const [rides, drivers, offers, assignments] = await Promise.all([
    sql`select id, status, live_offers, offers_made, empty_rounds, queue_at is not null as queued,
        excluded_driver_ids, excluded_as, rescue_until is not null as rescued, search_try, no_show_at is not null as no_show,
        held_until is not null as held, stalled_since is not null as stalled, event_seq, version, assigned_driver_id, assigned_offer_id,
        (select count(*)::int from ride_events e where e.region = r.region and e.ride_id = r.id) as events
      from rides r where region = ${region} and id = any(${rideIds}::uuid[]) order by id`,
    sql`select driver_id as id, status, fence::int, version::int, offer_id, leased_to_ride_id, lease_token,
        lease_received_at is not null as received
      from driver_state where region = ${region} and driver_id = any(${driverIds}::text[]) order by driver_id`,
    sql`select id, status, search_try, fence::int, proof is not null as proven, due_at is not null as due, version
      from offers where region = ${region} and id = any(${cast.offers}::uuid[]) order by id`,
    sql`select offer_id as id, ride_id, driver_id from assignments
      where region = ${region} and offer_id = any(${cast.offers}::uuid[]) and ended_at is null order by offer_id`,
  ]);
  return { rides: [...rides], drivers: [...drivers], offers: [...offers], assignments: [...assignments] };
}

/** The same, as specified. */
export function specifiedRows(store: LeaseStore): Rows {
  const rides = byId(store.rides.values());
  return {
    rides: rides.map((known) => ({
      id: known.id,
      status: known.status,
      live_offers: known.liveOffers,
      offers_made: known.offersMade,
      empty_rounds: known.emptyRounds,
      queued: known.isQueued,
      excluded_driver_ids: known.exclusions.map(({ driverId }) => driverId),
      excluded_as: known.exclusions.map(({ cause }) => cause),
      rescued: known.rescueUntilMs !== null,
      search_try: known.searchTry,
      no_show: known.noShowAtMs !== null,
      held: known.heldUntilMs !== null,
      stalled: known.isStalled,
      event_seq: known.events,
      version: known.version,
      assigned_driver_id: known.assignment?.driverId ?? null,
      assigned_offer_id: known.assignment?.offerId ?? null,
      events: known.events,
    })),
    drivers: byId(store.drivers.values()).map((known) => {
      const held = known.status === 'leased' ? known.term : known.status === 'assigned' ? known : null;
      const { id, status, fence, version } = known;
      return {
        id,
        status,
        fence,
        version,
        offer_id: held?.offerId ?? null,
        leased_to_ride_id: held?.rideId ?? null,
        lease_token: known.status === 'leased' ? store.offers.get(known.term.offerId)!.token : null,
        received: known.status === 'leased' && known.term.isReceived,
      };
    }),
    offers: byId(store.offers.values()).map(({ id, status, searchTry, fence, isProven, version }) => ({
      id,
      status,
      search_try: searchTry,
      fence,
      proven: isProven,
      due: status === 'pending',
      version,
    })),
    assignments: rides
      .filter(({ status }) => ['assigned', 'driver_arrived', 'in_progress'].includes(status))
      .map(({ id, assignment }) => ({ id: assignment!.offerId, ride_id: id, driver_id: assignment!.driverId }))
      .toSorted((a, b) => (a.id < b.id ? -1 : 1)),
  };
}

/** The first that isn't as specified, or null. */
export function difference(rows: Rows, store: LeaseStore): string | null {
  const specified = specifiedRows(store);
  for (const table of ['rides', 'drivers', 'offers', 'assignments'] as const) {
    if (
      isDeepStrictEqual(
        rows[table].map((row) => ({ ...row })),
        specified[table],
      )
    )
      continue;
    const at = specified[table].findIndex((row, n) => !isDeepStrictEqual({ ...rows[table][n] }, row));
    const show = (from: readonly unknown[]): string => JSON.stringify(from[Math.max(at, 0)] ?? from.length);
    return `${table}: recorded ${show(rows[table])}, specified ${show(specified[table])}`;
  }
  return null;
}
