import { describe, expect, test } from 'vitest';
import {
  age,
  assignRide,
  calmPolicy,
  CENTER,
  makeOffer,
  must,
  NEARBY,
  OPS,
  openDriver,
  openRegion,
  requestRide,
  rideBody,
  SERVICE,
  startTestApi,
} from './harness.ts';

const RIDER = { as: 'rider:rider-1' } as const;
const DRIVER = { as: 'driver:d1' } as const;

describe.concurrent('rides over REST alone', () => {
  test('a ride goes from its request to its end', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');

    const requested = await api.call('POST', '/v1/rides', { ...RIDER, body: rideBody('rider-1') });
    expect(requested.status).toBe(201);
    expect(requested.body).toMatchObject({
      regionId: 'city',
      riderId: 'rider-1',
      status: 'searching',
      vehicleClass: 'economy',
      seats: 1,
      attributes: [],
      acceptsLowerClass: false,
    });
    const rideId = requested.body.id as string;
    expect((await api.call('GET', `/v1/rides/${rideId}`, RIDER)).body).toEqual(requested.body);

    const offered = await api.call('POST', `/v1/rides/${rideId}/offers`, { ...SERVICE, body: { driverId: 'd1' } });
    expect(offered.status).toBe(201);
    expect(offered.body).toMatchObject({ rideId, driverId: 'd1', status: 'pending', fence: 1, expiresInMs: 300_000 });
    expect(offered.body.pickupEtaS).toBeGreaterThan(200);
    const { id: offerId, leaseToken } = offered.body as { id: string; leaseToken: string };
    expect(api.notices).toMatchObject([
      { driverId: 'd1', event: 'shift' },
      { driverId: 'd1', event: 'offer', data: { offerId, leaseToken } },
    ]);
    expect((await api.call('GET', '/v1/drivers/d1', DRIVER)).body).toMatchObject({
      status: 'leased',
      offer: { offerId, rideId, leaseToken, expiresInMs: 300_000, pickup: NEARBY, dropoff: CENTER },
      assignment: null,
    });

    const received = await api.call('POST', `/v1/offers/${offerId}/received`, { ...DRIVER, body: { leaseToken } });
    expect(received).toMatchObject({ status: 200, body: { expiresInMs: 300_000 } });
    const confirmed = await api.call('POST', `/v1/offers/${offerId}/confirm`, { ...DRIVER, body: { leaseToken } });
    expect(confirmed.body.assignment).toMatchObject({ rideId, driverId: 'd1', offerId, fence: 1 });
    expect((await api.call('GET', '/v1/drivers/d1', DRIVER)).body).toMatchObject({
      status: 'assigned',
      offer: null,
      assignment: { ...confirmed.body.assignment, rideStatus: 'assigned' },
    });

    for (const [step, status] of [
      ['arrive', 'driver_arrived'],
      ['start', 'in_progress'],
      ['complete', 'completed'],
    ]) {
      const answer = await api.call('POST', `/v1/rides/${rideId}/${step}`, DRIVER);
      expect(answer).toMatchObject({ status: 200, body: { status, assignment: confirmed.body.assignment } });
      const again = await api.call('POST', `/v1/rides/${rideId}/${step}`, { ...DRIVER, body: {} });
      expect(again.body).toEqual(answer.body);
    }
    const timeline = await api.call('GET', `/v1/rides/${rideId}/timeline`, RIDER);
    expect(timeline.body.items.map((entry: { seq: number; type: string }) => `${entry.seq} ${entry.type}`)).toEqual([
      '1 ride_requested',
      '2 offer_made',
      '3 offer_received',
      '4 offer_accepted',
      '5 driver_arrived',
      '6 ride_started',
      '7 ride_completed',
    ]);
    expect((await api.call('GET', '/v1/drivers/d1', OPS)).body).toMatchObject({
      status: 'available',
      assignment: null,
    });
  });

  test('the same key asks for the same ride, and another body under it is refused', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const ask = (body: object, as: 'rider:rider-1' | 'service:backend' = 'rider:rider-1') =>
      api.call('POST', '/v1/rides', { as, headers: { 'idempotency-key': 'k-1' }, body });
    const first = await ask(rideBody('rider-1'));
    expect(first.headers['idempotency-replayed']).toBeUndefined();
    await must(
      api.call('POST', `/v1/rides/${first.body.id}/cancel`, { ...RIDER, body: { reasonCode: 'changed_mind' } }),
    );

    const { regionId, riderId, ...points } = rideBody('rider-1');
    const again = await ask({ ...points, vehicleClass: 'economy', riderId, regionId });
    expect(again).toMatchObject({ status: 201, body: { id: first.body.id, status: 'cancelled' } });
    expect(again.headers['idempotency-replayed']).toBe('true');

    expect(await ask({ ...rideBody('rider-1'), seats: 2 })).toMatchObject({ status: 422 });
    expect(await ask({ ...rideBody('rider-1'), attributes: ['pet'] })).toMatchObject({ status: 422 });
    expect(await ask({ ...rideBody('rider-1'), vehicleClass: 'van' })).toMatchObject({
      status: 422,
      body: { code: 'idempotency_key_reused' },
    });
    const other = await ask(rideBody('rider-1'), 'service:backend');
    expect(other.body.id).not.toBe(first.body.id);
  });

  test('the same key at once makes one ride', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const asks = Array.from({ length: 20 }, () =>
      api.call('POST', '/v1/rides', { ...RIDER, headers: { 'idempotency-key': 'k-1' }, body: rideBody('rider-1') }),
    );
    const answers = await Promise.all(asks);
    expect(new Set(answers.map(({ body }) => body.id as string)).size).toBe(1);
    expect(answers.filter(({ headers }) => headers['idempotency-replayed'] === undefined)).toHaveLength(1);
  });

  test('the same key offers once, and shows its token again only while the offer is open', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const rideId = await requestRide(api);
    const ask = () =>
      api.call('POST', `/v1/rides/${rideId}/offers`, {
        ...SERVICE,
        headers: { 'idempotency-key': 'k' },
        body: { driverId: 'd1' },
      });
    const first = await ask();
    expect(first.headers['idempotency-replayed']).toBeUndefined();
    const again = await ask();
    expect(again.headers['idempotency-replayed']).toBe('true');
    expect(again.body).toMatchObject({ id: first.body.id, leaseToken: first.body.leaseToken });
    const { id, leaseToken } = first.body as { id: string; leaseToken: string };
    await must(api.call('POST', `/v1/offers/${id}/release`, { ...SERVICE, body: { leaseToken } }));
    expect((await ask()).body).toMatchObject({ id, status: 'withdrawn', leaseToken: null, expiresInMs: null });
  });

  test('a pickup outside the region is refused, and in an unknown region too', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const far = { ...rideBody('rider-1'), pickup: { lat: 41, lng: -73.98 } };
    expect(await api.call('POST', '/v1/rides', { ...RIDER, body: far })).toMatchObject({
      status: 422,
      body: { code: 'pickup_outside_region', detail: expect.stringContaining('27799 m') },
    });
    expect(await api.call('POST', '/v1/rides', { ...RIDER, body: rideBody('rider-1', 'nowhere') })).toMatchObject({
      status: 404,
      body: { code: 'region_not_found' },
    });
  });

  test('what is another’s is refused as another’s', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    await openDriver(api, 'd2');
    const { rideId, offer } = await assignRide(api, 'd1');
    const stranger = { as: 'rider:rider-2' } as const;
    const other = { as: 'driver:d2' } as const;
    const { leaseToken } = offer;
    const refused = await Promise.all([
      api.call('POST', '/v1/rides', { ...stranger, body: rideBody('rider-1') }),
      api.call('GET', `/v1/rides/${rideId}`, stranger),
      api.call('GET', `/v1/rides/${rideId}/timeline`, stranger),
      api.call('POST', `/v1/rides/${rideId}/cancel`, { ...stranger, body: { reasonCode: 'x' } }),
      api.call('GET', `/v1/rides/${rideId}`, other),
      api.call('POST', `/v1/rides/${rideId}/cancel`, { ...other, body: { reasonCode: 'x' } }),
      api.call('POST', `/v1/rides/${rideId}/arrive`, other),
      api.call('GET', `/v1/offers/${offer.id}`, other),
      api.call('POST', `/v1/offers/${offer.id}/confirm`, { ...other, body: { leaseToken } }),
      api.call('GET', '/v1/drivers/d1', other),
      api.call('PUT', '/v1/drivers/d1', { ...other, body: { regionId: 'city' } }),
      api.call('POST', '/v1/drivers/d1/offline', other),
      api.call('POST', '/v1/drivers/d1/location', { ...other, body: CENTER }),
    ]);
    expect(refused.map(({ status, body }) => `${status} ${body.code}`)).toEqual([
      ...Array<string>(4).fill('403 wrong_rider'),
      ...Array<string>(9).fill('403 wrong_driver'),
    ]);
  });

  test('the lease token is shown to its driver and its maker, to nobody else', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const offer = await makeOffer(api, await requestRide(api), 'd1');
    expect((await api.call('GET', `/v1/offers/${offer.id}`, DRIVER)).body.leaseToken).toBe(offer.leaseToken);
    expect((await api.call('GET', `/v1/offers/${offer.id}`, OPS)).body.leaseToken).toBeNull();
    expect((await api.call('GET', '/v1/drivers/d1', OPS)).body.offer.leaseToken).toBeNull();
    const { body } = await api.call('GET', '/v1/drivers?regionId=city', SERVICE);
    expect(body.items[0].offer.leaseToken).toBeNull();
  });

  test('an offer whose term is over is no longer shown to be decided on', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const offer = await makeOffer(api, await requestRide(api), 'd1');
    await age(api, 'd1', 3_600);
    expect((await api.call('GET', '/v1/drivers/d1', DRIVER)).body).toMatchObject({ status: 'leased', offer: null });
    expect((await api.call('GET', `/v1/offers/${offer.id}`, DRIVER)).body).toMatchObject({
      status: 'pending',
      expiresInMs: null,
    });
  });
});

describe.concurrent('confirm', () => {
  test('refuses in the documented order', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    for (const id of ['d1', 'd2']) await openDriver(api, id);
    const rideId = await requestRide(api);
    const offer = await makeOffer(api, rideId, 'd1');
    const confirm = async (as: 'driver:d1' | 'driver:d2' | 'service:backend', leaseToken: string, id = offer.id) => {
      const { status, body } = await api.call('POST', `/v1/offers/${id}/confirm`, { as, body: { leaseToken } });
      return status === 200 ? '200' : `${status} ${body.code}`;
    };
    // A UUID that the server never made, and one of a region that isn't there.
    expect(await confirm('driver:d1', 'x', '3f2504e0-4f89-41d3-9a0c-0305e82c3301')).toBe('404 offer_not_found');
    expect(await confirm('driver:d1', 'x', '01993f3a-7c5e-7fff-9d1c-3f0a6b1c2d3e')).toBe('404 offer_not_found');
    expect(await confirm('driver:d2', 'x')).toBe('403 wrong_driver');
    expect(await confirm('driver:d2', offer.leaseToken)).toBe('403 wrong_driver');
    expect(await confirm('driver:d1', 'x')).toBe('403 wrong_token');
    expect(await confirm('service:backend', 'x')).toBe('403 wrong_token');

    await age(api, 'd1', 3_600);
    expect(await confirm('driver:d1', offer.leaseToken)).toBe('409 lease_expired');
    await age(api, 'd1', -3_600);
    expect(await confirm('driver:d1', offer.leaseToken)).toBe('200');
    expect(await confirm('service:backend', offer.leaseToken)).toBe('200');

    await must(api.call('POST', `/v1/rides/${rideId}/cancel`, { ...RIDER, body: { reasonCode: 'late' } }));
    expect(await confirm('driver:d1', offer.leaseToken)).toBe('200');
    expect(await confirm('driver:d2', offer.leaseToken)).toBe('403 wrong_driver');
    expect(await confirm('driver:d1', 'x')).toBe('403 wrong_token');
  });

  test('of a withdrawn, taken or superseded offer says what became of it', async () => {
    await using api = await startTestApi({ policy: { ...calmPolicy, parallelOffers: 2 } });
    await openRegion(api);
    for (const id of ['d1', 'd2']) await openDriver(api, id);
    const confirm = async (driverId: string, { id, leaseToken }: { id: string; leaseToken: string }) =>
      (await api.call('POST', `/v1/offers/${id}/confirm`, { as: `driver:${driverId}`, body: { leaseToken } })).body
        .code as string;

    const cancelledId = await requestRide(api);
    const cancelled = await makeOffer(api, cancelledId, 'd1');
    await must(api.call('POST', `/v1/rides/${cancelledId}/cancel`, { ...RIDER, body: { reasonCode: 'x' } }));
    expect(await confirm('d1', cancelled)).toBe('ride_cancelled');

    const rideId = await requestRide(api);
    const released = await makeOffer(api, rideId, 'd1');
    const { leaseToken } = released;
    await must(
      api.call('POST', `/v1/offers/${released.id}/release`, {
        ...OPS,
        body: { leaseToken, reasonCode: 'better_match' },
      }),
    );
    expect(await confirm('d1', released)).toBe('lease_lost');

    const second = await makeOffer(api, rideId, 'd1');
    const winner = await makeOffer(api, rideId, 'd2');
    expect(await confirm('d2', winner)).toBeUndefined();
    expect(await confirm('d1', second)).toBe('ride_taken');
  });

  test('200 at once make one assignment, and all hear of it', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const { id, leaseToken } = await makeOffer(api, await requestRide(api), 'd1');
    const asks = Array.from({ length: 200 }, (_, i) =>
      api.call('POST', `/v1/offers/${id}/confirm`, { ...(i % 2 === 0 ? DRIVER : SERVICE), body: { leaseToken } }),
    );
    const answers = await Promise.all(asks);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1);
  });
});

describe.concurrent('decline and release', () => {
  test('end the offer, are repeatable, and exclude each other', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const rideId = await requestRide(api);
    const { id, leaseToken } = await makeOffer(api, rideId, 'd1');
    const decline = () =>
      api.call('POST', `/v1/offers/${id}/decline`, { ...DRIVER, body: { leaseToken, reasonCode: 'too_far' } });
    const declined = await decline();
    expect(declined).toMatchObject({ status: 200, body: { id, rideId, driverId: 'd1', status: 'declined' } });
    expect(await decline()).toMatchObject({ status: 200, body: declined.body });
    expect((await api.call('GET', `/v1/offers/${id}`, OPS)).body).toMatchObject({
      status: 'declined',
      endReason: 'too_far',
    });
    const release = await api.call('POST', `/v1/offers/${id}/release`, { ...SERVICE, body: { leaseToken } });
    expect(release).toMatchObject({ status: 409, body: { code: 'lease_lost' } });
  });

  test('a fleet’s matcher hears why a driver can’t be leased', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    await openDriver(api, 'd2');
    const offer = async (rideId: string, driverId: string) => {
      const { status, body } = await api.call('POST', `/v1/rides/${rideId}/offers`, { ...SERVICE, body: { driverId } });
      return `${status} ${body.code}`;
    };
    const rideId = await requestRide(api);
    expect(await offer('01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e', 'd1')).toBe('404 ride_not_found');
    expect(await offer(rideId, 'nobody')).toBe('404 driver_not_found');
    await makeOffer(api, rideId, 'd1');
    expect(await offer(rideId, 'd2')).toBe('409 ride_fully_offered');
    const next = await requestRide(api, 'rider-2');
    expect(await offer(next, 'd1')).toBe('409 driver_unavailable');
    await must(api.call('POST', `/v1/rides/${next}/cancel`, { ...OPS, body: { reasonCode: 'x' } }));
    expect(await offer(next, 'd2')).toBe('409 ride_not_searching');
  });
});

describe.concurrent('cancelling', () => {
  test('while searching ends the ride; repeated, it is answered the same', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const rideId = await requestRide(api);
    const cancel = (reasonCode: string) =>
      api.call('POST', `/v1/rides/${rideId}/cancel`, { ...RIDER, body: { reasonCode } });
    const first = await cancel('changed_mind');
    expect(first).toMatchObject({
      status: 200,
      body: { status: 'cancelled', cancellation: { source: 'rider', reasonCode: 'changed_mind', phase: 'searching' } },
    });
    expect((await cancel('other_reason')).body).toEqual(first.body);
  });

  test('with an offer open withdraws it and frees the driver', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const rideId = await requestRide(api);
    const offer = await makeOffer(api, rideId, 'd1');
    await must(api.call('POST', `/v1/rides/${rideId}/cancel`, { ...SERVICE, body: { reasonCode: 'fraud' } }));
    expect((await api.call('GET', `/v1/rides/${rideId}`, OPS)).body.cancellation).toEqual({
      source: 'operator',
      reasonCode: 'fraud',
      phase: 'searching',
    });
    expect((await api.call('GET', `/v1/offers/${offer.id}`, DRIVER)).body).toMatchObject({
      status: 'withdrawn',
      leaseToken: null,
    });
    expect((await api.call('GET', '/v1/drivers/d1', DRIVER)).body.status).toBe('available');
    expect(api.notices.at(-1)).toMatchObject({
      event: 'offer:withdrawn',
      data: { offerId: offer.id, reason: 'ride_cancelled' },
    });
  });

  test('once assigned frees the driver, once started is refused, once over too', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const cancel = async (rideId: string) => {
      const { status, body } = await api.call('POST', `/v1/rides/${rideId}/cancel`, {
        ...RIDER,
        body: { reasonCode: 'x' },
      });
      return `${status} ${body.code ?? body.cancellation.phase}`;
    };
    expect(await cancel((await assignRide(api, 'd1')).rideId)).toBe('200 assigned');
    const { rideId: arrived } = await assignRide(api, 'd1');
    await must(api.call('POST', `/v1/rides/${arrived}/arrive`, DRIVER));
    expect(await cancel(arrived)).toBe('200 driver_arrived');

    const { rideId } = await assignRide(api, 'd1');
    const early = await api.call('POST', `/v1/rides/${rideId}/complete`, DRIVER);
    expect(early).toMatchObject({ status: 409, body: { code: 'wrong_phase' } });
    for (const step of ['arrive', 'start']) await must(api.call('POST', `/v1/rides/${rideId}/${step}`, DRIVER));
    expect(await cancel(rideId)).toBe('409 ride_in_progress');
    const late = await api.call('POST', `/v1/rides/${rideId}/cancel`, { ...DRIVER, body: { reasonCode: 'x' } });
    expect(late).toMatchObject({ status: 409, body: { code: 'ride_in_progress' } });
    await must(api.call('POST', `/v1/rides/${rideId}/complete`, DRIVER));
    expect(await cancel(rideId)).toBe('409 ride_over');
    expect(await cancel('01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e')).toBe('404 ride_not_found');
  });

  test('by the driver sends the ride back to searching, and hides from him who has it next', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    await openDriver(api, 'd2');
    const { rideId } = await assignRide(api, 'd1');
    const giveBack = () =>
      api.call('POST', `/v1/rides/${rideId}/cancel`, { ...DRIVER, body: { reasonCode: 'flat_tyre' } });
    expect(await giveBack()).toMatchObject({
      status: 200,
      body: { status: 'searching', assignment: null, cancellation: null },
    });
    expect((await api.call('GET', '/v1/drivers/d1', DRIVER)).body.status).toBe('available');
    const { id, leaseToken } = await makeOffer(api, rideId, 'd2');
    await must(api.call('POST', `/v1/offers/${id}/confirm`, { as: 'driver:d2', body: { leaseToken } }));
    expect(await giveBack()).toMatchObject({ status: 200, body: { status: 'assigned', assignment: null } });
    expect((await api.call('GET', `/v1/rides/${rideId}`, RIDER)).body.assignment.driverId).toBe('d2');
  });
});

describe.concurrent('lists of rides', () => {
  test('go through every ride once, the newest first, by status too', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const ids: string[] = [];
    for (let i = 0; i < 7; i += 1) ids.unshift(await requestRide(api, `rider-${i}`));
    for (const id of ids.slice(0, 3)) {
      await must(api.call('POST', `/v1/rides/${id}/cancel`, { ...OPS, body: { reasonCode: 'x' } }));
    }
    const collect = async (filter: string): Promise<string[]> => {
      const found: string[] = [];
      let cursor: string | null = '';
      while (cursor !== null) {
        const query: string = `/v1/rides?regionId=city&limit=3${filter}${cursor === '' ? '' : `&cursor=${cursor}`}`;
        const { body } = await must(api.call('GET', query, OPS));
        found.push(...body.items.map((ride: { id: string }) => ride.id));
        cursor = body.nextCursor as string | null;
      }
      return found;
    };
    expect(await collect('')).toEqual([...ids].sort().toReversed());
    expect(await collect('&status=cancelled')).toEqual(ids.slice(0, 3).sort().toReversed());
    expect(await collect('&status=searching')).toEqual(ids.slice(3).sort().toReversed());
    expect(await collect('&status=completed')).toEqual([]);
  });

  test('are assigned by an operator: a double click makes one assignment, and another driver is refused', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    for (const id of ['d1', 'd2']) await openDriver(api, id);
    const rideId = await requestRide(api);
    const assign = (driverId: string) => api.call('POST', `/v1/rides/${rideId}/assign`, { ...OPS, body: { driverId } });
    const answers = await Promise.all([assign('d1'), assign('d1'), assign('d1')]);
    for (const { status, body } of answers)
      expect({ status, body }).toMatchObject({
        status: 200,
        body: { status: 'assigned', assignment: { driverId: 'd1', fence: 1 } },
      });
    expect(api.notices.filter(({ event }) => event === 'assignment')).toHaveLength(1);
    expect(await assign('d2')).toMatchObject({ status: 409, body: { code: 'ride_not_searching' } });
    const other = await requestRide(api, 'rider-2');
    expect(await api.call('POST', `/v1/rides/${other}/assign`, { ...OPS, body: { driverId: 'd1' } })).toMatchObject({
      status: 409,
      body: { code: 'driver_unavailable' },
    });
  });

  test('are taken from their driver and given to another by an operator, and both are told', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    for (const id of ['d1', 'd2']) await openDriver(api, id);
    const rideId = await requestRide(api);
    const post = (what: string, body: object) => api.call('POST', `/v1/rides/${rideId}/${what}`, { ...OPS, body });
    const why = { reasonCode: 'complaint' };
    expect((await post('unassign', { driverId: 'd1', ...why })).body.code).toBe('wrong_driver');
    await must(post('assign', { driverId: 'd1' }));
    const reassign = () => post('reassign', { fromDriverId: 'd1', toDriverId: 'd2', ...why });
    for (const answer of [await reassign(), await reassign()])
      expect(answer).toMatchObject({ status: 200, body: { status: 'assigned', assignment: { driverId: 'd2' } } });
    const unassign = () => post('unassign', { driverId: 'd2', ...why });
    for (const answer of [await unassign(), await unassign()])
      expect(answer).toMatchObject({ status: 200, body: { status: 'searching', assignment: null } });
    expect((await post('reassign', { fromDriverId: 'd1', toDriverId: 'd1', ...why })).body.code).toBe(
      'invalid_request',
    );
    const told = api.notices.map(({ driverId, event }) => `${driverId} ${event}`);
    const shifts = ['d1 shift', 'd2 shift'];
    expect(told).toEqual([...shifts, 'd1 assignment', 'd1 ride:cancelled', 'd2 assignment', 'd2 ride:cancelled']);
  });

  test('an operator holds a ride, sees it so, and releases it; repeated, nothing changes', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const rideId = await requestRide(api);
    const { id: offerId } = await makeOffer(api, rideId, 'd1');
    const post = (path: string) =>
      api.call('POST', `/v1/rides/${rideId}/${path}`, { ...OPS, body: { reasonCode: 'vip' } });
    const held = await post('hold');
    expect(held).toMatchObject({ status: 200, body: { status: 'searching', heldUntil: expect.any(String) } });
    expect((await post('hold')).body).toEqual(held.body);
    expect(api.notices.at(-1)).toMatchObject({
      driverId: 'd1',
      event: 'offer:withdrawn',
      data: { offerId, reason: 'ride_held' },
    });
    const released = await post('release');
    expect(released).toMatchObject({ status: 200, body: { heldUntil: null } });
    expect((await post('release')).body).toEqual(released.body);
    const { body } = await api.call('GET', `/v1/rides/${rideId}/timeline`, OPS);
    expect(body.items.slice(-2)).toMatchObject([
      { type: 'ride_held', reason: 'operator:vip' },
      { type: 'ride_released', reason: 'operator:vip' },
    ]);
    await api.call('POST', `/v1/rides/${rideId}/cancel`, { ...OPS, body: { reasonCode: 'test' } });
    expect((await post('hold')).body.code).toBe('ride_not_searching');
    expect((await api.call('GET', '/v1/rides?regionId=city&isStalled=true', OPS)).body.items).toEqual([]);
  });
});
