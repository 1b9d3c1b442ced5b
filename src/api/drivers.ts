import type { TransactionSql } from 'postgres';
import { z } from 'zod';
import { cellOf } from '../../domain/geo.ts';
import type { Identity } from '../auth.ts';
import type { Sql } from '../database/connection.ts';
import type { ShiftAnswer } from '../leasing/transitions.ts';
import { driverSnapshot, listDrivers, regionNumberOfDriver, type DriverSnapshot } from '../records.ts';
import type { Region } from '../regions.ts';
import { regionById, regionByNumber, type ApiDeps, type App } from './context.ts';
import { accepted, ApiProblem } from './problem.ts';
import { cursorOf, pageOf, pageQuery } from './requests.ts';
import * as schemas from './schemas.ts';

const DEFAULT_VEHICLE_CLASS = 'economy';
const MAX_PICKUP_MAX_M = 500_000;

const DriverProfile = z
  .strictObject({
    regionId: schemas.FleetId,
    vehicleClass: schemas.VehicleClass.optional(),
    seats: schemas.Seats.optional(),
    attributes: schemas.Attributes.optional().meta({
      description: 'What rides may ask for, in the fleet’s own words.',
    }),
    maxPickupM: z
      .number()
      .min(1)
      .max(MAX_PICKUP_MAX_M)
      .nullable()
      .optional()
      .meta({ description: 'The longest way to a pickup, great circle; null: any.' }),
    shiftEndsAt: schemas.NearTime.nullable()
      .optional()
      .meta({ description: 'No trip is offered that wouldn’t be over by then; null: no set end.' }),
  })
  .meta({ id: 'DriverProfile', examples: [{ regionId: 'nyc', vehicleClass: 'economy' }] });

type DriverProfile = z.infer<typeof DriverProfile>;

export function driverRoutes(app: App, deps: ApiDeps): void {
  putDriver(app, deps);
  getDriver(app, deps);
  getDrivers(app, deps);
  goOnline(app, deps);
  goOffline(app, deps);
  reportLocation(app, deps);
}

function putDriver(app: App, deps: ApiDeps): void {
  app.put(
    '/drivers/:id',
    {
      schema: {
        operationId: 'putDriver',
        tags: ['drivers'],
        summary: 'Register a driver, or change the profile',
        description:
          'A new driver is offline, of class `economy` and with 4 seats unless they are given. What is left out stays as ' +
          'it is. The region changes only while offline, and the driver keeps the fence; the class only while no ride ' +
          'holds the driver.',
        params: schemas.FleetIdParams,
        body: DriverProfile,
        response: { 200: schemas.Driver, 201: schemas.Driver },
      },
      config: {
        roles: ['driver', 'service', 'ops'],
        problems: ['wrong_driver', 'region_not_found', 'driver_not_offline', 'driver_held'],
      },
    },
    async ({ params: { id }, body, identity }, reply) => {
      ownOnly(identity, id);
      const region = await regionById(deps.regions, body.regionId);
      const isNew = await saveDriver(deps.database.cold, id, region.number, body);
      return reply.code(isNew ? 201 : 200).send(await readDriver(deps, id, identity));
    },
  );
}

function getDriver(app: App, deps: ApiDeps): void {
  app.get(
    '/drivers/:id',
    {
      schema: {
        operationId: 'getDriver',
        tags: ['drivers'],
        summary: 'A driver, with the current offer or assignment',
        params: schemas.FleetIdParams,
        response: { 200: schemas.Driver },
      },
      config: { roles: ['driver', 'service', 'ops'], problems: ['driver_not_found', 'wrong_driver'] },
    },
    async ({ params: { id }, identity }) => {
      ownOnly(identity, id);
      return readDriver(deps, id, identity);
    },
  );
}

function getDrivers(app: App, { database, regions }: ApiDeps): void {
  app.get(
    '/drivers',
    {
      schema: {
        operationId: 'listDrivers',
        tags: ['drivers'],
        summary: 'A region’s drivers, by id',
        querystring: z.strictObject({
          regionId: schemas.FleetId,
          status: schemas.DriverStatus.optional(),
          ...pageQuery(/^[A-Za-z0-9_-]{1,64}$/),
        }),
        response: { 200: pageOf(schemas.Driver) },
      },
      config: { roles: ['service', 'ops'], problems: ['region_not_found'] },
    },
    async ({ query: { regionId, status, cursor, limit }, identity }) => {
      const region = await regionById(regions, regionId);
      const page = await listDrivers(database, region, { status: status ?? null, after: cursor ?? null, limit });
      return {
        items: page.items.map((snapshot) => driverAsSeenBy(identity, snapshot, region)),
        nextCursor: cursorOf(page.after),
      };
    },
  );
}

function goOnline(app: App, deps: ApiDeps): void {
  app.post(
    '/drivers/:id/online',
    {
      schema: {
        operationId: 'goOnline',
        tags: ['drivers'],
        summary: 'Ready for rides',
        description: 'Offers come once the driver has sent a position. Repeated, it changes nothing.',
        params: schemas.FleetIdParams,
        body: schemas.NoBody,
        response: { 200: schemas.Driver },
      },
      config: { roles: ['driver', 'ops'], problems: ['driver_not_found', 'wrong_driver'] },
    },
    async ({ params: { id }, identity }) => {
      ownOnly(identity, id);
      await inRegionOf(deps, id, (region) => deps.leasing.online(region, { driverId: id, overSocket: false }));
      return readDriver(deps, id, identity);
    },
  );
}

function goOffline(app: App, deps: ApiDeps): void {
  app.post(
    '/drivers/:id/offline',
    {
      schema: {
        operationId: 'goOffline',
        tags: ['drivers'],
        summary: 'No more rides',
        description:
          'An open offer ends `declined`. Whoever has a ride finishes it first. Repeated, it changes nothing.',
        params: schemas.FleetIdParams,
        body: schemas.NoBody,
        response: { 200: schemas.Driver },
      },
      config: { roles: ['driver', 'ops'], problems: ['driver_not_found', 'wrong_driver', 'driver_assigned'] },
    },
    async ({ params: { id }, identity }) => {
      ownOnly(identity, id);
      await inRegionOf(deps, id, (region) => deps.leasing.offline(region, { driverId: id, overSocket: false }));
      return readDriver(deps, id, identity);
    },
  );
}

function reportLocation(app: App, { database, presence }: ApiDeps): void {
  app.post(
    '/drivers/:id/location',
    {
      schema: {
        operationId: 'reportLocation',
        tags: ['drivers'],
        summary: 'Where the driver is',
        description: 'Written with others within moments; the newest counts. The websocket is the cheaper way.',
        params: schemas.FleetIdParams,
        body: schemas.Point,
        response: { 200: z.object({}) },
      },
      config: { roles: ['driver', 'ops'], problems: ['driver_not_found', 'wrong_driver'] },
    },
    async ({ params: { id }, body, identity }) => {
      ownOnly(identity, id);
      const region = await regionNumberOfDriver(database, id);
      if (region === null) throw new ApiProblem('driver_not_found');
      presence.report(region, { driverId: id, position: { ...body, cell: cellOf(body) } });
      return {};
    },
  );
}

function ownOnly({ role, sub }: Identity, driverId: string): void {
  if (role === 'driver' && sub !== driverId) throw new ApiProblem('wrong_driver');
}

/** A driver who changes region just now is looked up a second time. */
async function inRegionOf(
  { database }: ApiDeps,
  driverId: string,
  shift: (region: number) => Promise<ShiftAnswer>,
): Promise<void> {
  const region = await regionNumberOfDriver(database, driverId);
  if (region === null) throw new ApiProblem('driver_not_found');
  const answer = await shift(region);
  if (answer.refused !== 'driver_not_found') return void accepted(answer);
  const movedTo = await regionNumberOfDriver(database, driverId);
  if (movedTo === null || movedTo === region) throw new ApiProblem('driver_not_found');
  accepted(await shift(movedTo));
}

async function readDriver({ database, regions }: ApiDeps, driverId: string, identity: Identity) {
  const snapshot = await driverSnapshot(database, driverId);
  if (snapshot === null) throw new ApiProblem('driver_not_found');
  return driverAsSeenBy(identity, snapshot, await regionByNumber(regions, snapshot.region, 'driver_not_found'));
}

/** The lease token is for its driver's eyes only. */
function driverAsSeenBy({ role }: Identity, snapshot: DriverSnapshot, region: Region): z.infer<typeof schemas.Driver> {
  const { driverId: id, region: _number, offerReceived: _received, offer, ...rest } = snapshot;
  const seen = offer === null || role === 'driver' ? offer : { ...offer, leaseToken: null };
  return { id, regionId: region.id, ...rest, offer: seen };
}

/**
 * Whether the driver is new. Of two calls at once the second waits for the first: both begin with the driver's row.
 * What must hold of the driver's state is in the WHERE of the statement that changes it.
 */
function saveDriver(sql: Sql, id: string, region: number, profile: DriverProfile): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const newClass = profile.vehicleClass ?? DEFAULT_VEHICLE_CLASS;
    const made = await transaction`
      insert into drivers (id, region, vehicle_class) values (${id}, ${region}, ${newClass}) on conflict do nothing`;
    if (made.count === 1) {
      await transaction`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
        values (${region}, ${id}, 'offline', ${newClass}, clock_timestamp())`;
      await changePreferences(transaction, id, region, profile);
      return true;
    }
    const [known] = await transaction<{ region: number; vehicle_class: string }[]>`
      select region, vehicle_class from drivers where id = ${id} for no key update`;
    const current = { region: known!.region, vehicleClass: known!.vehicle_class };
    const next = { region, vehicleClass: profile.vehicleClass ?? current.vehicleClass };
    if (next.region !== current.region) await moveDriver(transaction, id, current.region, next);
    else if (next.vehicleClass !== current.vehicleClass) await changeClass(transaction, id, next);
    if (next.region !== current.region || next.vehicleClass !== current.vehicleClass) {
      await transaction`update drivers set region = ${next.region}, vehicle_class = ${next.vehicleClass},
        version = version + 1, updated_at = now() where id = ${id}`;
    }
    await changePreferences(transaction, id, region, profile);
    return false;
  });
}

/** What counts from the next match round on, whatever the driver is doing now. */
async function changePreferences(
  transaction: TransactionSql,
  id: string,
  region: number,
  { seats, attributes, maxPickupM, shiftEndsAt }: DriverProfile,
): Promise<void> {
  const wanted = {
    ...(seats !== undefined && { seats }),
    ...(attributes !== undefined && { attributes }),
    ...(maxPickupM !== undefined && { max_pickup_m: maxPickupM }),
    ...(shiftEndsAt !== undefined && { shift_ends_at: shiftEndsAt }),
  };
  const columns = Object.keys(wanted) as (keyof typeof wanted)[];
  if (columns.length === 0) return;
  // Repeated, it changes nothing.
  await transaction`update driver_state set ${transaction(wanted, columns)}, version = version + 1,
      updated_at = greatest(clock_timestamp(), updated_at)
    where region = ${region} and driver_id = ${id} and (
      seats is distinct from coalesce(${seats ?? null}::smallint, seats)
      or attributes is distinct from coalesce(${attributes ?? null}::text[], attributes)
      or ${maxPickupM === undefined ? 0 : 1}::int = 1 and max_pickup_m is distinct from ${maxPickupM ?? null}::real
      or ${shiftEndsAt === undefined ? 0 : 1}::int = 1 and shift_ends_at is distinct from ${shiftEndsAt ?? null}::timestamptz)`;
}

interface Placement {
  readonly region: number;
  readonly vehicleClass: string;
}

/** The row goes along with its fence and its last time, so that no later term has an earlier one or overlaps. */
async function moveDriver(transaction: TransactionSql, id: string, from: number, to: Placement): Promise<void> {
  const moved = await transaction`
    with gone as (
      delete from driver_state where region = ${from} and driver_id = ${id} and status = 'offline'
      returning *
    )
    insert into driver_state (region, driver_id, status, vehicle_class, seats, attributes, max_pickup_m, shift_ends_at,
      fence, version, updated_at)
    select ${to.region}, ${id}, 'offline', ${to.vehicleClass}, seats, attributes, max_pickup_m, shift_ends_at,
      fence, version + 1, greatest(clock_timestamp(), updated_at)
    from gone`;
  if (moved.count === 0) throw new ApiProblem('driver_not_offline');
  await transaction`delete from driver_presence where region = ${from} and driver_id = ${id}`;
  await transaction`update rider_driver_blocks set region = ${to.region} where region = ${from} and driver_id = ${id}`;
}

async function changeClass(
  transaction: TransactionSql,
  id: string,
  { region, vehicleClass }: Placement,
): Promise<void> {
  const changed = await transaction`
    update driver_state set vehicle_class = ${vehicleClass}, version = version + 1,
      updated_at = greatest(clock_timestamp(), updated_at)
    where region = ${region} and driver_id = ${id} and status in ('offline', 'available')`;
  if (changed.count === 0) throw new ApiProblem('driver_held');
}
