import { z } from 'zod';
import type { Identity } from '../auth.ts';
import { regionOf } from '../leasing/ids.ts';
import type { TermClaim } from '../leasing/transitions.ts';
import { findOffer, type OfferRecord } from '../records.ts';
import { regionByNumber, type ApiDeps, type App } from './context.ts';
import { accepted, ApiProblem, type ProblemCode } from './problem.ts';
import * as schemas from './schemas.ts';

/** In the order in which they are checked, after 401 and the form of the request. */
const termProblems: readonly ProblemCode[] = [
  'offer_not_found',
  'wrong_driver',
  'wrong_token',
  'ride_cancelled',
  'ride_taken',
  'lease_lost',
  'lease_expired',
];

export function offerRoutes(app: App, deps: ApiDeps): void {
  getOffer(app, deps);
  receiveOffer(app, deps);
  confirmOffer(app, deps);
  declineOffer(app, deps);
  releaseOffer(app, deps);
}

function getOffer(app: App, { database, regions }: ApiDeps): void {
  app.get(
    '/offers/:id',
    {
      schema: {
        operationId: 'getOffer',
        tags: ['offers'],
        summary: 'An offer',
        description: 'Drivers see their own; the lease token is shown to nobody else, and only while it is pending.',
        params: schemas.ServerIdParams,
        response: { 200: schemas.Offer },
      },
      config: { roles: ['driver', 'service', 'ops'], problems: ['offer_not_found', 'wrong_driver'] },
    },
    async ({ params: { id }, identity }) => {
      const region = await regionByNumber(regions, regionOf(id), 'offer_not_found');
      const offer = await findOffer(database, region, id);
      if (offer === null) throw new ApiProblem('offer_not_found');
      return asSeenBy(identity, offer);
    },
  );
}

function receiveOffer(app: App, { leasing }: ApiDeps): void {
  app.post(
    '/offers/:id/received',
    {
      schema: {
        operationId: 'receiveOffer',
        tags: ['offers'],
        summary: 'The device has the offer',
        description:
          'Renews the lease to the whole decision window, which the device counts from the moment it had the offer. ' +
          'Repeated, it renews nothing and is told what is left.',
        params: schemas.ServerIdParams,
        body: schemas.LeaseTokenBody,
        response: { 200: z.object({ expiresInMs: z.int() }) },
      },
      config: { roles: ['driver', 'service', 'ops'], problems: termProblems },
    },
    async ({ params, body, identity }) => {
      const { region, claim } = claimOf(params.id, body.leaseToken, identity);
      const { expires_in_ms: expiresInMs } = accepted(await leasing.received(region, claim));
      return { expiresInMs };
    },
  );
}

function confirmOffer(app: App, { leasing }: ApiDeps): void {
  app.post(
    '/offers/:id/confirm',
    {
      schema: {
        operationId: 'confirmOffer',
        tags: ['offers'],
        summary: 'Accept: the lease becomes an assignment',
        description:
          'Every holder of the right token hears the same assignment, however often and late it asks again. Refusals ' +
          'are checked in this order: `offer_not_found`, `wrong_driver`, `wrong_token`; an earlier success is ' +
          'repeated; `ride_cancelled`, `ride_taken`, `lease_lost`, `lease_expired`.',
        params: schemas.ServerIdParams,
        body: schemas.LeaseTokenBody,
        response: { 200: z.object({ assignment: schemas.Assignment }) },
      },
      // Operators do everything but accept for a driver.
      config: { roles: ['driver', 'service'], problems: termProblems },
    },
    async ({ params, body, identity }) => {
      const { region, claim } = claimOf(params.id, body.leaseToken, identity);
      const answer = accepted(await leasing.confirm(region, claim));
      return {
        assignment: {
          rideId: answer.ride_id,
          driverId: answer.driver_id,
          offerId: claim.offerId,
          fence: answer.fence,
          assignedAt: answer.assigned_at.toISOString(),
        },
      };
    },
  );
}

function declineOffer(app: App, { leasing }: ApiDeps): void {
  app.post(
    '/offers/:id/decline',
    {
      schema: {
        operationId: 'declineOffer',
        tags: ['offers'],
        summary: 'The driver says no',
        description:
          'Rounds don’t offer the driver this ride again for the policy’s `declinedExclusionMs`. Repeated, it is answered as ' +
          'the first time.',
        params: schemas.ServerIdParams,
        body: schemas.ReturnBody,
        response: { 200: schemas.EndedOffer },
      },
      config: { roles: ['driver', 'service', 'ops'], problems: termProblems },
    },
    async ({ params: { id }, body, identity }) => {
      const { region, claim } = claimOf(id, body.leaseToken, identity);
      const { ride_id: rideId, driver_id: driverId } = accepted(
        await leasing.decline(region, claim, body.reasonCode ?? 'driver_declined'),
      );
      return { id, rideId, driverId, status: 'declined' as const };
    },
  );
}

function releaseOffer(app: App, { leasing }: ApiDeps): void {
  app.post(
    '/offers/:id/release',
    {
      schema: {
        operationId: 'releaseOffer',
        tags: ['offers'],
        summary: 'The holder takes the offer back',
        description:
          'It ends `withdrawn`; the driver may be offered the ride again. Repeated, it is answered as the first time.',
        params: schemas.ServerIdParams,
        body: schemas.ReturnBody,
        response: { 200: schemas.EndedOffer },
      },
      config: { roles: ['service', 'ops'], problems: termProblems.filter((code) => code !== 'wrong_driver') },
    },
    async ({ params: { id }, body, identity }) => {
      const { region, claim } = claimOf(id, body.leaseToken, identity);
      const { ride_id: rideId, driver_id: driverId } = accepted(
        await leasing.release(region, claim, body.reasonCode ?? 'released'),
      );
      return { id, rideId, driverId, status: 'withdrawn' as const };
    },
  );
}

/** A driver claims his own offers only; of others the token is proof enough. */
function claimOf(offerId: string, leaseToken: string, { role, sub }: Identity): { region: number; claim: TermClaim } {
  const region = regionOf(offerId);
  if (region === null) throw new ApiProblem('offer_not_found');
  return { region, claim: { offerId, leaseToken, driverId: role === 'driver' ? sub : null } };
}

function asSeenBy({ role, sub }: Identity, offer: OfferRecord): OfferRecord {
  if (role !== 'driver') return { ...offer, leaseToken: null };
  if (offer.driverId !== sub) throw new ApiProblem('wrong_driver');
  return offer;
}
