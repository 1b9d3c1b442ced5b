import { describe, expect, test } from 'vitest';
import { calmPolicy, CENTER, must, openRegion, OPS, requestRide, startTestApi, type TestApi } from './harness.ts';

const region = { name: 'A city', center: CENTER, radiusM: 10_000 };
const policyPath = '/v1/regions/city/policy';

const putPolicy = (api: TestApi, body: object) => api.call('PUT', policyPath, { ...OPS, body });

describe.concurrent('regions', () => {
  test('are created once, and changed by the same call', async () => {
    await using api = await startTestApi();
    const created = await api.call('PUT', '/v1/regions/city', { ...OPS, body: region });
    expect(created).toMatchObject({ status: 201, body: { id: 'city', ...region, policyVersion: 1 } });
    expect(await api.call('PUT', '/v1/regions/city', { ...OPS, body: region })).toMatchObject({
      status: 200,
      body: created.body,
    });
    const moved = { ...region, name: 'Größere Stadt', radiusM: 20_000 };
    await must(api.call('PUT', '/v1/regions/city', { ...OPS, body: moved }));
    expect((await api.call('GET', '/v1/regions/city', OPS)).body).toEqual({ id: 'city', ...moved, policyVersion: 1 });
    expect((await api.call('GET', '/v1/regions/town', OPS)).body.code).toBe('region_not_found');
  });

  test('use up one of their few numbers each, however often they are written', async () => {
    await using api = await startTestApi();
    for (let i = 0; i < 5; i += 1) await must(api.call('PUT', '/v1/regions/city', { ...OPS, body: region }));
    await must(api.call('PUT', '/v1/regions/town', { ...OPS, body: region }));
    const rows = await api.database.cold`select id, number from regions order by number`;
    expect(rows.map(({ id, number }) => `${id} ${number}`)).toEqual(['city 1', 'town 2']);
  });

  test('written at once by many are created once', async () => {
    await using api = await startTestApi();
    const puts = Array.from({ length: 8 }, () => api.call('PUT', '/v1/regions/city', { ...OPS, body: region }));
    const statuses = (await Promise.all(puts)).map(({ status }) => status).sort();
    expect(statuses).toEqual([...Array<number>(7).fill(200), 201]);
  });
});

describe.concurrent('policies', () => {
  test('change setting by setting, each change a new version', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    expect((await api.call('GET', policyPath, OPS)).body).toEqual({ version: 1, ...calmPolicy });
    const changed = await putPolicy(api, { matching: 'nearest', offersMax: 7 });
    expect(changed).toMatchObject({
      status: 200,
      body: { ...calmPolicy, version: 2, matching: 'nearest', offersMax: 7 },
    });
    expect((await api.call('GET', policyPath, OPS)).body).toEqual(changed.body);
    expect((await api.call('GET', '/v1/regions/city', OPS)).body.policyVersion).toBe(2);
    const [second] = await api.database.cold`select created_by from policies where version = 2`;
    expect(second!.created_by).toBe('operator');
  });

  test('a ride keeps the version it was requested under', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const before = await requestRide(api);
    await must(putPolicy(api, { patienceMs: 60_000 }));
    const after = await requestRide(api, 'rider-2');
    const read = async (id: string) => (await api.call('GET', `/v1/rides/${id}`, OPS)).body;
    expect((await read(before)).policyVersion).toBe(1);
    const ride = await read(after);
    expect(ride.policyVersion).toBe(2);
    expect(Date.parse(ride.patienceUntil as string) - Date.parse(ride.requestedAt as string)).toBe(60_000);
  });

  test('that say nothing new make no version', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await must(putPolicy(api, { offersMax: 7 }));
    expect((await putPolicy(api, { offersMax: 7 })).body.version).toBe(2);
    const current = await api.call('GET', policyPath, OPS);
    expect((await putPolicy(api, current.body as object)).body).toEqual(current.body);
  });

  test('that couldn’t run are refused, and every setting at fault is named', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    expect(await putPolicy(api, { offersMax: 0, searchRadiusStepM: -5, retryMs: 10.5 })).toMatchObject({
      status: 422,
      body: {
        code: 'policy_invalid',
        errors: [
          { path: 'body.offersMax', message: 'must be a number from 1 to 100' },
          { path: 'body.searchRadiusStepM' },
          { path: 'body.retryMs', message: 'must be a whole number' },
        ],
      },
    });
    const shortTerm = await putPolicy(api, { deliveryTtlMs: 500, pushRetryMs: 1_000 });
    expect(shortTerm).toMatchObject({ status: 422, body: { errors: [{ path: 'body.deliveryTtlMs' }] } });
    expect((await putPolicy(api, { matching: 'magic' })).body.code).toBe('invalid_request');
    expect((await putPolicy(api, { offersMin: 1 })).body.errors).toEqual([
      { path: 'body.offersMin', message: 'is not a known field' },
    ]);
    expect((await api.call('GET', policyPath, OPS)).body.version).toBe(1);
  });

  test('changed at once lose no change', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const changes = [
      { offersMax: 7 },
      { candidatesMax: 9 },
      { retryMs: 500 },
      { detourFactor: 2 },
      { matching: 'nearest' },
    ];
    const answers = await Promise.all(changes.map((change) => putPolicy(api, change)));
    expect(answers.map(({ body }) => body.version as number).sort()).toEqual([2, 3, 4, 5, 6]);
    expect((await api.call('GET', policyPath, OPS)).body).toEqual({
      ...calmPolicy,
      ...Object.assign({}, ...changes),
      version: 6,
    });
  });

  test('based on an older version are refused', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await must(putPolicy(api, { version: 1, offersMax: 7 }));
    expect(await putPolicy(api, { version: 1, offersMax: 8 })).toMatchObject({
      status: 409,
      body: { code: 'policy_version_changed' },
    });
    expect((await putPolicy(api, { version: 2, offersMax: 8 })).status).toBe(200);
  });

  test('try a policy on a share of the rides, and roll it forward or back', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    const canary = '/v1/regions/city/policy/canary';
    const put = (body: object) => api.call('PUT', canary, { ...OPS, body });
    expect((await api.call('GET', canary, OPS)).body.code).toBe('canary_not_found');
    const tried = await put({ share: 1, offersMax: 7 });
    expect(tried).toMatchObject({ status: 200, body: { version: 2, share: 1, offersMax: 7 } });
    expect((await put({ share: 1, offersMax: 7 })).body.version).toBe(2);
    expect((await put({ share: 0.5, offersMax: 7 })).body).toMatchObject({ version: 2, share: 0.5 });
    expect((await put({ share: 1, offersMax: 7 })).body).toMatchObject({ version: 2, share: 1 });
    const ride = async () => {
      const id = await requestRide(api);
      return (await api.call('GET', `/v1/rides/${id}`, OPS)).body.policyVersion as number;
    };
    expect(await ride()).toBe(2);
    // The current policy may change beside it.
    expect((await putPolicy(api, { offersMax: 9 })).body).toMatchObject({ version: 3, offersMax: 9 });
    expect(await ride()).toBe(2);
    expect((await api.call('DELETE', canary, OPS)).body).toMatchObject({ version: 3, offersMax: 9 });
    expect((await api.call('DELETE', canary, OPS)).status).toBe(200);
    expect(await ride()).toBe(3);
    expect((await api.call('POST', `${canary}/promote`, OPS)).body.code).toBe('canary_not_found');
    expect((await put({ share: 0.01, offersMax: 11 })).body).toMatchObject({ version: 4, offersMax: 11 });
    expect((await api.call('POST', `${canary}/promote`, OPS)).body).toMatchObject({ version: 4, offersMax: 11 });
    expect(await ride()).toBe(4);
    for (const body of [{ share: 0 }, { share: 1.1 }, { offersMax: 7 }])
      expect((await put(body)).body.code).toBe('invalid_request');
    expect((await put({ share: 0.1, offersMax: 1, escalatedParallelOffers: 3 })).body.code).toBe('policy_invalid');
  });
});

test('a region beyond the last number is refused by name, and the others go on', async () => {
  await using api = await startTestApi();
  await openRegion(api);
  await api.database.cold`select setval('regions_number_seq', 4095)`;
  const body = { name: 'One too many', center: CENTER, radiusM: 1_000 };
  const { status, body: said } = await api.call('PUT', '/v1/regions/one-too-many', { ...OPS, body });
  expect(`${status} ${said.code}`).toBe('409 regions_exhausted');
  expect((await api.call('GET', '/v1/regions/one-too-many', OPS)).status).toBe(404);
  expect((await api.call('PUT', '/v1/regions/city', { ...OPS, body })).status).toBe(200);
});
