import { z } from 'zod';
import { greatCircleM } from '../../domain/geo.ts';
import type { Identity } from '../auth.ts';
import { newId, regionOf } from '../leasing/ids.ts';
import type { RequestedRide } from '../leasing/leasing.ts';
import type { NewRide, RideStep } from '../leasing/transitions.ts';
import { findRide, listRides, rideTimeline, type RideRecord } from '../records.ts';
import type { Region } from '../regions.ts';
import { regionById, regionByNumber, type ApiDeps, type App } from './context.ts';
import { accepted, ApiProblem } from './problem.ts';
import { cursorOf, IdempotencyHeaders, idempotencyOf, pageOf, pageQuery } from './requests.ts';
import * as schemas from './schemas.ts';

const DEFAULT_VEHICLE_CLASS = 'economy';
/** A region's radius that was computed from its pickups shall hold the farthest of them, roundings included. */
const PICKUP_MARGIN_M = 1;

const RideRequest = z
  .strictObject({
    regionId: schemas.FleetId,
    riderId: schemas.FleetId,
    pickup: schemas.Point,
    dropoff: schemas.Point,
    vehicleClass: schemas.VehicleClass.default(DEFAULT_VEHICLE_CLASS),
    seats: schemas.Seats.default(1),
    attributes: schemas.Attributes.default([]).meta({ description: 'What the driver has to offer, all of it.' }),
    acceptsLowerClass: z.boolean().default(false).meta({ description: 'Also a vehicle of a lower class will do.' }),
  })
  .meta({
    id: 'RideRequest',
    examples: [
      {
        regionId: 'nyc',
        riderId: 'rider-1',
        pickup: { lat: 40.7484, lng: -73.9857 },
        dropoff: { lat: 40.7061, lng: -74.0087 },
      },
    ],
  });
type RideRequest = z.infer<typeof RideRequest>;

export function rideRoutes(app: App, deps: ApiDeps): void {
  requestRide(app, deps);
  getRide(app, deps);
  getRides(app, deps);
  getTimeline(app, deps);
  cancelRide(app, deps);
  takeStep(app, deps, { path: 'arrive', status: 'driver_arrived', summary: 'The driver is at the pickup' });
  takeStep(app, deps, { path: 'start', status: 'in_progress', summary: 'The rider is in the car' });
  takeStep(app, deps, { path: 'complete', status: 'completed', summary: 'The ride is over, the driver free again' });
}

function requestRide(app: App, { database, regions, leasing }: ApiDeps): void {
  app.post(
    '/rides',
    {
      schema: {
        operationId: 'requestRide',
        tags: ['rides'],
        summary: 'Request a ride',
        description:
          'Searching begins at once. With an `Idempotency-Key` the call may be repeated: it is answered with the ' +
          'ride made first, as it is by then.',
        headers: IdempotencyHeaders,
        body: RideRequest,
        response: { 201: schemas.Ride },
      },
      config: {
        roles: ['rider', 'service', 'ops'],
        problems: ['wrong_rider', 'region_not_found', 'pickup_outside_region', 'idempotency_key_reused'],
        idempotent: true,
      },
    },
    async (request, reply) => {
      const { body, identity } = request;
      if (identity.role === 'rider' && body.riderId !== identity.sub) throw new ApiProblem('wrong_rider');
      const region = await regionById(regions, body.regionId);
      checkPickup(region, body);
      const rideId = newId(region.number);
      const { version: policyVersion, policy } = await regions.policyFor(region, rideId);
      const ride: NewRide = {
        rideId,
        riderId: body.riderId,
        vehicleClass: body.vehicleClass,
        seats: body.seats,
        attributes: body.attributes,
        acceptsLowerClass: body.acceptsLowerClass,
        pickup: body.pickup,
        dropoff: body.dropoff,
        policyVersion,
        patienceMs: policy.patienceMs,
        idempotency: idempotencyOf(request, askedOf(body)),
      };
      const answer = accepted(await leasing.request(region.number, ride));
      reply.code(201);
      if (!answer.replayed) return newRide(region, ride, answer);
      reply.header('idempotency-replayed', 'true');
      return (await findRide(database, region, answer.ride_id))!;
    },
  );
}

function checkPickup(region: Region, { pickup }: RideRequest): void {
  const distanceM = greatCircleM(region.center, pickup);
  if (distanceM <= region.radiusM + PICKUP_MARGIN_M) return;
  throw new ApiProblem('pickup_outside_region', {
    detail: `the pickup is ${Math.round(distanceM)} m from the region’s center, its radius is ${region.radiusM} m`,
  });
}

const askedOf = ({ regionId, riderId, pickup, dropoff, ...needs }: RideRequest): (string | number)[] => [
  regionId,
  riderId,
  pickup.lat,
  pickup.lng,
  dropoff.lat,
  dropoff.lng,
  needs.vehicleClass,
  needs.seats,
  needs.attributes.join(','),
  String(needs.acceptsLowerClass),
];

/** What the records say of a ride that was just made, without asking them. */
function newRide(
  region: Region,
  ride: NewRide,
  { requested_at: requestedAt, leased_at: leasedAt }: RequestedRide,
): RideRecord {
  return {
    id: ride.rideId,
    regionId: region.id,
    riderId: ride.riderId,
    status: 'searching',
    vehicleClass: ride.vehicleClass,
    seats: ride.seats,
    attributes: [...ride.attributes],
    acceptsLowerClass: ride.acceptsLowerClass,
    pickup: ride.pickup,
    dropoff: ride.dropoff,
    requestedAt: requestedAt.toISOString(),
    patienceUntil: new Date(requestedAt.getTime() + ride.patienceMs).toISOString(),
    rescueUntil: null,
    heldUntil: null,
    stalledSince: null,
    offersMade: leasedAt === null ? 0 : 1,
    assignment: null,
    cancellation: null,
    endedAt: null,
    policyVersion: ride.policyVersion,
    version: leasedAt === null ? 1 : 2,
    updatedAt: (leasedAt ?? requestedAt).toISOString(),
  };
}

function getRide(app: App, deps: ApiDeps): void {
  app.get(
    '/rides/:id',
    {
      schema: {
        operationId: 'getRide',
        tags: ['rides'],
        summary: 'A ride',
        description: 'Riders see their own, drivers those assigned to them.',
        params: schemas.ServerIdParams,
        response: { 200: schemas.Ride },
      },
      config: {
        roles: ['rider', 'driver', 'service', 'ops'],
        problems: ['ride_not_found', 'wrong_rider', 'wrong_driver'],
      },
    },
    async ({ params, identity }) => (await visibleRide(deps, params.id, identity)).ride,
  );
}

function getRides(app: App, { database, regions }: ApiDeps): void {
  app.get(
    '/rides',
    {
      schema: {
        operationId: 'listRides',
        tags: ['rides'],
        summary: 'A region’s rides, the newest first',
        querystring: z.strictObject({
          regionId: schemas.FleetId,
          status: schemas.RideStatus.optional(),
          needsRescue: z
            .enum(['true'])
            .optional()
            .meta({ description: 'Those that found nobody within their patience and wait for an operator.' }),
          isStalled: z
            .enum(['true'])
            .optional()
            .meta({ description: 'Those whose driver doesn’t come nearer the pickup.' }),
          ...pageQuery(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/),
        }),
        response: { 200: pageOf(schemas.Ride) },
      },
      config: { roles: ['service', 'ops'], problems: ['region_not_found'] },
    },
    async ({ query: { regionId, status, needsRescue, isStalled, cursor, limit } }) => {
      const region = await regionById(regions, regionId);
      const page = await listRides(database, region, {
        status: status ?? null,
        needsRescue: needsRescue !== undefined,
        isStalled: isStalled !== undefined,
        before: cursor ?? null,
        limit,
      });
      return { items: page.items, nextCursor: cursorOf(page.after) };
    },
  );
}

function getTimeline(app: App, deps: ApiDeps): void {
  app.get(
    '/rides/:id/timeline',
    {
      schema: {
        operationId: 'getTimeline',
        tags: ['rides'],
        summary: 'Everything that happened to a ride, in order',
        params: schemas.ServerIdParams,
        response: { 200: z.object({ items: z.array(schemas.TimelineEntry) }) },
      },
      config: {
        roles: ['rider', 'driver', 'service', 'ops'],
        problems: ['ride_not_found', 'wrong_rider', 'wrong_driver'],
      },
    },
    async ({ params, identity }) => {
      const { region, ride } = await visibleRide(deps, params.id, identity);
      return { items: await rideTimeline(deps.database, region, ride.id) };
    },
  );
}

function cancelRide(app: App, deps: ApiDeps): void {
  app.post(
    '/rides/:id/cancel',
    {
      schema: {
        operationId: 'cancelRide',
        tags: ['rides'],
        summary: 'Cancel a ride; as its driver, give it back',
        description:
          'By its rider, or by the fleet: the ride ends, its offers are withdrawn and its driver is free again. By ' +
          'its driver: the ride searches again, without that driver. Possible until the rider is in the car; ' +
          'repeated, it is answered as the first time.',
        params: schemas.ServerIdParams,
        body: z.strictObject({ reasonCode: schemas.ReasonCode }),
        response: { 200: schemas.Ride },
      },
      config: {
        roles: ['rider', 'driver', 'service', 'ops'],
        problems: ['ride_not_found', 'wrong_rider', 'wrong_driver', 'ride_in_progress', 'ride_over'],
      },
    },
    async ({ params: { id: rideId }, body: { reasonCode: reason }, identity }) => {
      const region = await regionByNumber(deps.regions, regionOf(rideId), 'ride_not_found');
      if (identity.role === 'driver') return giveBack(deps, region, { rideId, driverId: identity.sub, reason });
      const isRider = identity.role === 'rider';
      const riderId = isRider ? identity.sub : null;
      const source = isRider ? 'rider' : 'operator';
      accepted(await deps.leasing.cancel(region.number, { rideId, riderId, source, reason }));
      return (await findRide(deps.database, region, rideId))!;
    },
  );
}

async function giveBack(
  { database, leasing }: ApiDeps,
  region: Region,
  { rideId, driverId, reason }: { rideId: string; driverId: string; reason: string },
): Promise<RideRecord> {
  accepted(await leasing.unassign(region.number, { rideId, driverId, reason }));
  return asSeenByDriver((await findRide(database, region, rideId))!, driverId);
}

function takeStep(
  app: App,
  { database, regions, leasing }: ApiDeps,
  { path, status, summary }: { path: string; status: RideStep; summary: string },
): void {
  app.post(
    `/rides/:id/${path}`,
    {
      schema: {
        operationId: `${path}Ride`,
        tags: ['rides'],
        summary,
        description: 'By the assigned driver alone. Repeated, it is answered as the first time.',
        params: schemas.ServerIdParams,
        body: schemas.NoBody,
        response: { 200: schemas.Ride },
      },
      config: { roles: ['driver'], problems: ['ride_not_found', 'wrong_driver', 'ride_cancelled', 'wrong_phase'] },
    },
    async ({ params: { id: rideId }, identity: { sub: driverId } }) => {
      const region = await regionByNumber(regions, regionOf(rideId), 'ride_not_found');
      accepted(await leasing.advance(region.number, { rideId, driverId, status }));
      return asSeenByDriver((await findRide(database, region, rideId))!, driverId);
    },
  );
}

/** A ride, for whoever may see it: the others are told whose it isn't. */
async function visibleRide(
  { database, regions }: ApiDeps,
  rideId: string,
  identity: Identity,
): Promise<{ region: Region; ride: RideRecord }> {
  const region = await regionByNumber(regions, regionOf(rideId), 'ride_not_found');
  const ride = await findRide(database, region, rideId);
  if (ride === null) throw new ApiProblem('ride_not_found');
  if (identity.role === 'rider' && ride.riderId !== identity.sub) throw new ApiProblem('wrong_rider');
  if (identity.role === 'driver' && ride.assignment?.driverId !== identity.sub) throw new ApiProblem('wrong_driver');
  return { region, ride };
}

/** A driver who gave the ride back may ask again, and shall not learn who has it now. */
const asSeenByDriver = (ride: RideRecord, driverId: string): RideRecord =>
  ride.assignment === null || ride.assignment.driverId === driverId ? ride : { ...ride, assignment: null };
