/** What operators and fleets' own matchers do with a ride: offer it, assign it, take it, hold it. */
import { z } from 'zod';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';
import { regionOf } from '../leasing/ids.ts';
import { findOffer, findPairing, findRide, type RideRecord } from '../records.ts';
import type { Region } from '../regions.ts';
import { regionByNumber, type ApiDeps, type App } from './context.ts';
import { accepted, ApiProblem } from './problem.ts';
import { IdempotencyHeaders, idempotencyOf } from './requests.ts';
import * as schemas from './schemas.ts';

/** As many as are counted. */
const OFFERS_BY_HAND_MAX = 32_767;

export function rideOperationRoutes(app: App, deps: ApiDeps): void {
  offerRide(app, deps);
  assignRide(app, deps);
  unassignRide(app, deps);
  reassignRide(app, deps);
  holdRide(app, deps);
  releaseRide(app, deps);
}

function offerRide(app: App, deps: ApiDeps): void {
  app.post(
    '/rides/:id/offers',
    {
      schema: {
        operationId: 'offerRide',
        tags: ['rides', 'offers'],
        summary: 'Lease a driver for a ride and push the offer',
        description:
          'For fleets that match by themselves. The answer holds the lease token: whoever has it confirms for the ' +
          'driver, or releases. With an `Idempotency-Key` a repetition is answered with the offer made first, as it ' +
          'is by then.',
        params: schemas.ServerIdParams,
        headers: IdempotencyHeaders,
        body: z.strictObject({ driverId: schemas.FleetId }),
        response: { 201: schemas.Offer },
      },
      config: {
        roles: ['service', 'ops'],
        problems: [
          'ride_not_found',
          'driver_not_found',
          'ride_not_searching',
          'driver_blocked',
          'driver_unavailable',
          'ride_fully_offered',
          'idempotency_key_reused',
        ],
        idempotent: true,
      },
    },
    async (request, reply) => {
      const region = await regionByNumber(deps.regions, regionOf(request.params.id), 'ride_not_found');
      const pair = { rideId: request.params.id, driverId: request.body.driverId };
      const idempotency = idempotencyOf(request, [pair.rideId, pair.driverId]);
      const { offerId, leaseToken, replayed } = await lease(deps, region, pair, idempotency);
      if (replayed) reply.header('idempotency-replayed', 'true');
      const offer = (await findOffer(deps.database, region, offerId))!;
      return reply.code(201).send({ ...offer, leaseToken: leaseToken ?? offer.leaseToken });
    },
  );
}

function assignRide(app: App, { database, leasing, regions }: ApiDeps): void {
  app.post(
    '/rides/:id/assign',
    {
      schema: {
        operationId: 'assignRide',
        tags: ['rides'],
        summary: 'Assign a driver to a ride, without asking',
        description:
          'Lease and confirmation in one, however many offers the ride has used up. Repeated for the driver who has the ride, it is answered with that assignment: ' +
          'a double click makes one.',
        params: schemas.ServerIdParams,
        body: z.strictObject({ driverId: schemas.FleetId }),
        response: { 200: schemas.Ride },
      },
      config: {
        roles: ['service', 'ops'],
        problems: [
          'ride_not_found',
          'driver_not_found',
          'ride_not_searching',
          'driver_blocked',
          'driver_unavailable',
          'ride_fully_offered',
        ],
      },
    },
    async ({ params: { id: rideId }, body: { driverId } }) => {
      const region = await regionByNumber(regions, regionOf(rideId), 'ride_not_found');
      const ask = await pairOf(database, region, rideId, driverId);
      const outcome = await leasing.assignOne(region.number, ask, termsByHand(region));
      const ride = (await findRide(database, region, rideId))!;
      if (!('refused' in outcome) || hasDriver(ride, driverId)) return ride;
      throw new ApiProblem(outcome.refused);
    },
  );
}

function unassignRide(app: App, { database, leasing, regions }: ApiDeps): void {
  app.post(
    '/rides/:id/unassign',
    {
      schema: {
        operationId: 'unassignRide',
        tags: ['rides'],
        summary: 'Take a ride from its driver, and search on',
        description:
          'Until the rider is in the car. The driver is free and no round asks for him again; the ride keeps its ' +
          'place in line. Repeated for the same driver, it is answered as the first time.',
        params: schemas.ServerIdParams,
        body: z.strictObject({ driverId: schemas.FleetId, reasonCode: schemas.ReasonCode }),
        response: { 200: schemas.Ride },
      },
      config: {
        roles: ['service', 'ops'],
        problems: ['ride_not_found', 'wrong_driver', 'ride_in_progress', 'ride_over'],
      },
    },
    async ({ params: { id: rideId }, body: { driverId, reasonCode: reason } }) => {
      const region = await regionByNumber(regions, regionOf(rideId), 'ride_not_found');
      accepted(await leasing.unassign(region.number, { rideId, driverId, source: 'operator', reason }));
      return (await findRide(database, region, rideId))!;
    },
  );
}

function reassignRide(app: App, { database, leasing, regions }: ApiDeps): void {
  app.post(
    '/rides/:id/reassign',
    {
      schema: {
        operationId: 'reassignRide',
        tags: ['rides'],
        summary: 'Take a ride from its driver and assign another, without asking',
        description: 'Both or neither, at once. Repeated, it is answered as the first time.',
        params: schemas.ServerIdParams,
        body: z
          .strictObject({
            fromDriverId: schemas.FleetId,
            toDriverId: schemas.FleetId,
            reasonCode: schemas.ReasonCode,
          })
          .refine(({ fromDriverId, toDriverId }) => fromDriverId !== toDriverId, { error: 'names one driver twice' }),
        response: { 200: schemas.Ride },
      },
      config: {
        roles: ['service', 'ops'],
        problems: [
          'ride_not_found',
          'driver_not_found',
          'wrong_driver',
          'ride_in_progress',
          'ride_over',
          'driver_blocked',
          'driver_unavailable',
          'ride_fully_offered',
        ],
      },
    },
    async ({ params: { id: rideId }, body: { fromDriverId, toDriverId: driverId, reasonCode: reason } }) => {
      const region = await regionByNumber(regions, regionOf(rideId), 'ride_not_found');
      const ask = await pairOf(database, region, rideId, driverId);
      const byHand = { ...ask, fromDriverId, source: 'operator', reason } as const;
      const answer = await leasing.reassign(region.number, byHand, termsByHand(region));
      const ride = (await findRide(database, region, rideId))!;
      if (answer.applied || hasDriver(ride, driverId)) return ride;
      throw new ApiProblem(answer.refused ?? 'wrong_driver');
    },
  );
}

function holdRide(app: App, { database, leasing, regions }: ApiDeps): void {
  app.post(
    '/rides/:id/hold',
    {
      schema: {
        operationId: 'holdRide',
        tags: ['rides'],
        summary: 'Keep a searching ride from the match rounds, to see to it by hand',
        description:
          'For the policy’s `holdMs`; its open offers are withdrawn, and its patience stands still. Repeated, it is ' +
          'answered as the first time.',
        params: schemas.ServerIdParams,
        body: z.strictObject({ reasonCode: schemas.ReasonCode }),
        response: { 200: schemas.Ride },
      },
      config: { roles: ['service', 'ops'], problems: ['ride_not_found', 'ride_not_searching'] },
    },
    async ({ params: { id: rideId }, body: { reasonCode } }) => {
      const region = await regionByNumber(regions, regionOf(rideId), 'ride_not_found');
      accepted(await leasing.hold(region.number, rideId, reasonCode));
      return (await findRide(database, region, rideId))!;
    },
  );
}

function releaseRide(app: App, { database, leasing, regions }: ApiDeps): void {
  app.post(
    '/rides/:id/release',
    {
      schema: {
        operationId: 'releaseRide',
        tags: ['rides'],
        summary: 'End a hold: the next match round looks at the ride',
        description: 'Repeated, or when the hold is over, it is answered as the first time.',
        params: schemas.ServerIdParams,
        body: z.strictObject({ reasonCode: schemas.ReasonCode }),
        response: { 200: schemas.Ride },
      },
      config: { roles: ['service', 'ops'], problems: ['ride_not_found', 'ride_not_searching'] },
    },
    async ({ params: { id: rideId }, body: { reasonCode } }) => {
      const region = await regionByNumber(regions, regionOf(rideId), 'ride_not_found');
      accepted(await leasing.releaseHold(region.number, rideId, reasonCode));
      return (await findRide(database, region, rideId))!;
    },
  );
}

/** An operator isn't bound by the number of offers. */
const termsByHand = ({ policy, policyVersion }: Region) => ({
  ...policy,
  policyVersion,
  offersMax: OFFERS_BY_HAND_MAX,
});

/** What a lease of this driver for this ride needs to know. */
async function pairOf(database: ApiDeps['database'], region: Region, rideId: string, driverId: string) {
  const found = await findPairing(database, region, rideId, driverId);
  if (found === null) throw new ApiProblem('ride_not_found');
  const { pickup, dropoff, position } = found;
  const pickupEtaS = position === null ? 0 : greatCircleTravelTime(region.policy).etaS(position, pickup);
  return { rideId, driverId, pickup, dropoff, pickupEtaS };
}

/** Serves the ride now: a driver who once had it, or will never again, doesn't. */
const hasDriver = ({ assignment, endedAt }: RideRecord, driverId: string): boolean =>
  endedAt === null && assignment?.driverId === driverId;

async function lease(
  { database, leasing }: ApiDeps,
  region: Region,
  pair: { readonly rideId: string; readonly driverId: string },
  idempotency: ReturnType<typeof idempotencyOf>,
): Promise<{ offerId: string; leaseToken: string | null; replayed: boolean }> {
  const ask = await pairOf(database, region, pair.rideId, pair.driverId);
  const terms = { ...region.policy, policyVersion: region.policyVersion };
  if (idempotency !== null) {
    const answer = await leasing.offerOnce(region.number, ask, terms, idempotency);
    if ('refused' in answer) throw new ApiProblem(answer.refused);
    return { ...answer, leaseToken: null };
  }
  const answer = await leasing.offerOne(region.number, ask, terms);
  if ('refused' in answer) throw new ApiProblem(answer.refused);
  return { offerId: answer.offerId, leaseToken: answer.leaseToken, replayed: false };
}
