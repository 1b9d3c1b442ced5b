/** A city with something of everything that a request can be about. */
import {
  assignRide,
  makeOffer,
  must,
  openDriver,
  openRegion,
  OPS,
  requestRide,
  SERVICE,
  type MadeOffer,
  type TestApi,
} from '../api/harness.ts';

/** As much of the API as it takes. */
export type StagedApi = Pick<TestApi, 'call' | 'positionsWritten'>;

export interface Stage {
  /** Goes into every name, so that stages stand beside each other. */
  readonly name: string;
  readonly regionId: string;
  readonly riderId: string;
  /** Has no ride. */
  readonly freeDriver: string;
  readonly offeredDriver: string;
  readonly assignedDriver: string;
  readonly searchingRide: string;
  readonly offeredRide: string;
  readonly assignedRide: string;
  readonly offer: MadeOffer;
  /** Accepted. */
  readonly pastOffer: MadeOffer;
  readonly webhook: string;
  readonly webhookSecret: string;
  readonly resource: string;
  readonly resourceToken: string;
  readonly queue: string;
  readonly workKey: string;
  readonly claimToken: string;
}

/** In a region of its own unless one is given. */
export async function setStage(api: StagedApi, name: string, givenRegionId?: string): Promise<Stage> {
  const regionId = givenRegionId ?? name;
  if (givenRegionId === undefined) await openRegion(api, regionId);
  const [riderId, freeDriver, offeredDriver, assignedDriver] = ['r', 'free', 'offered', 'assigned'].map(
    (role) => `${name}-${role}`,
  ) as [string, string, string, string];
  for (const id of [freeDriver, offeredDriver, assignedDriver]) await openDriver(api, id, regionId);
  const searchingRide = await requestRide(api, riderId, regionId);
  const offeredRide = await requestRide(api, riderId, regionId);
  const offer = await makeOffer(api, offeredRide, offeredDriver);
  const { rideId: assignedRide, offer: pastOffer } = await assignRide(api, assignedDriver, riderId, regionId);
  await must(api.call('PUT', `/v1/riders/${riderId}/blocks/${assignedDriver}`, SERVICE));
  const [webhook, resource, queue, workKey] = [`${name}-hook`, `${name}/lease`, `${name}-queue`, `${name}-item`];
  const made = await must(
    api.call('PUT', `/v1/webhooks/${webhook}`, { ...OPS, body: { url: 'https://backend.example/hook', regionId } }),
  );
  const lease = await must(
    api.call('POST', '/v1/leases', { ...SERVICE, body: { resource, holder: 'worker', ttlMs: 600_000 } }),
  );
  await must(
    api.call('POST', `/v1/queues/${queue}/items`, { ...SERVICE, body: { items: [{ key: workKey, payload: 1 }] } }),
  );
  const claimed = await must(
    api.call('POST', `/v1/queues/${queue}/next`, { ...SERVICE, body: { max: 1, ttlMs: 600_000 } }),
  );
  return {
    name,
    regionId,
    riderId,
    freeDriver,
    offeredDriver,
    assignedDriver,
    searchingRide,
    offeredRide,
    assignedRide,
    offer,
    pastOffer,
    webhook,
    webhookSecret: (made.body as { secret: string }).secret,
    resource,
    resourceToken: (lease.body as { token: string }).token,
    queue,
    workKey,
    claimToken: (claimed.body as { items: { token: string }[] }).items[0]!.token,
  };
}
