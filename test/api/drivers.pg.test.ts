import { describe, expect, test } from 'vitest';
import {
  assignRide,
  CENTER,
  makeOffer,
  must,
  openDriver,
  openRegion,
  OPS,
  requestRide,
  SERVICE,
  startTestApi,
} from './harness.ts';

const DRIVER = { as: 'driver:d1' } as const;

describe.concurrent('drivers', () => {
  test('are registered once, offline, and the same call again changes nothing', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const put = () => api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: 'city', vehicleClass: 'van' } });
    const made = await put();
    expect(made).toMatchObject({
      status: 201,
      body: {
        id: 'd1',
        regionId: 'city',
        status: 'offline',
        vehicleClass: 'van',
        fence: 0,
        position: null,
        offer: null,
        assignment: null,
      },
    });
    expect(await put()).toMatchObject({ status: 200, body: made.body });
    const kept = await api.call('PUT', '/v1/drivers/d1', { ...SERVICE, body: { regionId: 'city' } });
    expect(kept.body).toEqual(made.body);
    const nowhere = await api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: 'nowhere' } });
    expect(nowhere).toMatchObject({ status: 404, body: { code: 'region_not_found' } });
  });

  test('have seats, attributes and limits, which change alone and stay when nothing is said of them', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openRegion(api, 'town');
    const put = (body: object) => api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: 'city', ...body } });
    expect((await put({})).body).toMatchObject({ seats: 4, attributes: [], maxPickupM: null, shiftEndsAt: null });
    const wanted = { seats: 6, attributes: ['pet', 'wheelchair', 'pet'], maxPickupM: 1_500 };
    const shiftEndsAt = '2030-01-01T05:00:00.000Z';
    const changed = (await put({ ...wanted, shiftEndsAt })).body;
    expect(changed).toMatchObject({ ...wanted, attributes: ['pet', 'wheelchair'], shiftEndsAt });
    expect((await put({})).body).toEqual(changed);
    expect((await put({ seats: 6 })).body).toEqual(changed);
    expect((await put({ maxPickupM: null, shiftEndsAt: null })).body).toMatchObject({
      seats: 6,
      maxPickupM: null,
      shiftEndsAt: null,
      version: changed.version + 1,
    });
    expect((await put({ regionId: 'town' })).body).toMatchObject({ regionId: 'town', seats: 6 });
    for (const body of [
      { seats: 0 },
      { seats: 1.5 },
      { attributes: ['A b'] },
      { maxPickupM: 0 },
      { shiftEndsAt: 'late' },
    ])
      expect((await put(body)).body.code).toBe('invalid_request');
  });

  test('are kept apart from riders: offered by nobody, listed, and brought together again', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openRegion(api, 'town');
    await openDriver(api, 'd1');
    const block = (method: 'PUT' | 'DELETE', driverId = 'd1') =>
      api.call(method, `/v1/riders/rider-1/blocks/${driverId}`, SERVICE);
    expect((await block('PUT', 'nobody')).body.code).toBe('driver_not_found');
    const made = await block('PUT');
    expect(made).toMatchObject({ status: 200, body: { riderId: 'rider-1', driverId: 'd1' } });
    expect((await block('PUT')).body).toEqual(made.body);
    // Along with the driver to another region, and back.
    await must(api.call('POST', '/v1/drivers/d1/offline', DRIVER));
    for (const regionId of ['town', 'city'])
      await must(api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId } }));
    await must(api.call('POST', '/v1/drivers/d1/online', DRIVER));
    const rideId = await requestRide(api);
    const offer = () => api.call('POST', `/v1/rides/${rideId}/offers`, { ...SERVICE, body: { driverId: 'd1' } });
    expect(await offer()).toMatchObject({ status: 409, body: { code: 'driver_blocked' } });
    const list = () => api.call('GET', '/v1/riders/rider-1/blocks', OPS);
    expect((await list()).body).toEqual({ items: [made.body], nextCursor: null });
    expect((await block('DELETE')).status).toBe(200);
    expect((await block('DELETE')).status).toBe(200);
    expect((await list()).body.items).toEqual([]);
    expect((await offer()).status).toBe(201);
  });

  test('registered at once by many are made once', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const puts = Array.from({ length: 8 }, () =>
      api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: 'city' } }),
    );
    const statuses = (await Promise.all(puts)).map(({ status }) => status).sort();
    expect(statuses).toEqual([...Array<number>(7).fill(200), 201]);
  });

  test('go online and offline, repeatedly', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const shift = async (to: string) => (await must(api.call('POST', `/v1/drivers/d1/${to}`, DRIVER))).body;
    expect(await shift('online')).toMatchObject({ status: 'available', position: CENTER });
    const offline = await shift('offline');
    expect(offline).toMatchObject({ status: 'offline', position: null });
    expect(await shift('offline')).toEqual(offline);
    expect((await api.call('POST', '/v1/drivers/nobody/online', OPS)).body.code).toBe('driver_not_found');
    expect((await api.call('POST', '/v1/drivers/nobody/location', { ...OPS, body: CENTER })).body.code).toBe(
      'driver_not_found',
    );
  });

  test('who go offline with an offer open decline it; with a ride to finish they can’t', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const offer = await makeOffer(api, await requestRide(api), 'd1');
    expect((await api.call('POST', '/v1/drivers/d1/offline', DRIVER)).body.status).toBe('offline');
    expect((await api.call('GET', `/v1/offers/${offer.id}`, DRIVER)).body.status).toBe('declined');
    await openDriver(api, 'd1');
    await assignRide(api, 'd1', 'rider-2');
    expect(await api.call('POST', '/v1/drivers/d1/offline', DRIVER)).toMatchObject({
      status: 409,
      body: { code: 'driver_assigned' },
    });
  });

  test('change region only while offline, and keep the fence', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openRegion(api, 'town');
    await openDriver(api, 'd1');
    const { id, leaseToken } = await makeOffer(api, await requestRide(api), 'd1');
    const move = () =>
      api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: 'town', vehicleClass: 'van' } });
    expect(await move()).toMatchObject({ status: 409, body: { code: 'driver_not_offline' } });
    await must(api.call('POST', `/v1/offers/${id}/release`, { ...SERVICE, body: { leaseToken } }));
    expect(await move()).toMatchObject({ status: 409, body: { code: 'driver_not_offline' } });
    expect((await api.call('GET', '/v1/drivers/d1', DRIVER)).body).toMatchObject({
      regionId: 'city',
      vehicleClass: 'economy',
    });

    await must(api.call('POST', '/v1/drivers/d1/offline', DRIVER));
    // A straggler, sent before and written after.
    await must(api.call('POST', '/v1/drivers/d1/location', { ...DRIVER, body: CENTER }));
    await api.positionsWritten();
    expect(await move()).toMatchObject({
      status: 200,
      body: { regionId: 'town', vehicleClass: 'van', fence: 1, status: 'offline' },
    });
    expect(await api.database.cold`select region from driver_presence`).toHaveLength(0);
    expect((await api.call('GET', '/v1/drivers?regionId=city', OPS)).body.items).toEqual([]);

    await openDriver(api, 'd1', 'town');
    const offer = await makeOffer(api, await requestRide(api, 'rider-2', 'town'), 'd1');
    expect((await api.call('GET', `/v1/offers/${offer.id}`, DRIVER)).body).toMatchObject({
      regionId: 'town',
      fence: 2,
    });
  });

  test('who move and go online at once end in one region, in one of both orders', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openRegion(api, 'town');
    await must(api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: 'city' } }));
    for (let round = 0; round < 10; round += 1) {
      const to = round % 2 === 0 ? 'town' : 'city';
      const [moved, online] = await Promise.all([
        api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: to } }),
        api.call('POST', '/v1/drivers/d1/online', DRIVER),
      ]);
      expect(moved.status).toBeOneOf([200, 409]);
      expect(online.status).toBe(200);
      const rows = await api.database.cold`select d.status, d.region = v.region as same
        from driver_state d join drivers v on v.id = d.driver_id`;
      expect(rows).toEqual([{ status: 'available', same: true }]);
      await must(api.call('POST', '/v1/drivers/d1/offline', DRIVER));
      await must(api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: to } }));
    }
  });

  test('change the vehicle class only while no ride holds them', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const change = (vehicleClass: string) =>
      api.call('PUT', '/v1/drivers/d1', { ...DRIVER, body: { regionId: 'city', vehicleClass } });
    expect((await change('van')).body).toMatchObject({ vehicleClass: 'van', status: 'available' });
    await makeOffer(api, await requestRide(api), 'd1');
    expect(await change('bike')).toMatchObject({ status: 409, body: { code: 'driver_held' } });
    expect((await api.call('GET', '/v1/drivers/d1', OPS)).body.vehicleClass).toBe('van');
    const [profile] = await api.database.cold`select vehicle_class from drivers`;
    expect(profile!.vehicle_class).toBe('van');
  });

  test('are listed by id, page by page, by status too', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const ids = ['d1', 'd2', 'd3', 'd4', 'd5'];
    for (const id of ids) await must(api.call('PUT', `/v1/drivers/${id}`, { ...SERVICE, body: { regionId: 'city' } }));
    for (const id of ['d2', 'd4']) await must(api.call('POST', `/v1/drivers/${id}/online`, OPS));
    const collect = async (filter: string): Promise<string[][]> => {
      const pages: string[][] = [];
      let cursor: string | null = '';
      while (cursor !== null) {
        const query: string = `/v1/drivers?regionId=city&limit=2${filter}${cursor === '' ? '' : `&cursor=${cursor}`}`;
        const { body } = await must(api.call('GET', query, OPS));
        pages.push(body.items.map((driver: { id: string }) => driver.id));
        cursor = body.nextCursor as string | null;
      }
      return pages;
    };
    expect(await collect('')).toEqual([['d1', 'd2'], ['d3', 'd4'], ['d5']]);
    expect(await collect('&status=available')).toEqual([['d2', 'd4']]);
    expect((await collect('&status=offline')).flat()).toEqual(['d1', 'd3', 'd5']);
  });
});
