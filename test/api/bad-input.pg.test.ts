import { SignJWT } from 'jose';
import { describe, expect, test } from 'vitest';
import {
  CENTER,
  OPS,
  openRegion,
  rideBody,
  SECRET,
  startTestApi,
  type Call,
  type Method,
  type TestApi,
} from './harness.ts';

const RIDER = { as: 'rider:rider-1' } as const;
const DRIVER = { as: 'driver:d1' } as const;
const ride = '/v1/rides/01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e';
const offer = '/v1/offers/01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e';
const good = rideBody('rider-1');
const at = (lat: unknown, lng: unknown) => ({ ...good, pickup: { lat, lng } });

interface BadInput {
  readonly what: string;
  readonly call: [Method, string, Call];
  readonly says: string;
  /** The paths that the answer names. */
  readonly names?: readonly string[];
}

const bodies: readonly BadInput[] = [
  {
    what: 'malformed JSON',
    call: ['POST', '/v1/rides', { ...RIDER, body: '{"regionId": "city",}' }],
    says: '400 malformed_json',
  },
  { what: 'a bare word', call: ['POST', '/v1/rides', { ...RIDER, body: 'ride please' }], says: '400 malformed_json' },
  {
    what: '__proto__',
    call: ['POST', '/v1/rides', { ...RIDER, body: '{"__proto__": {}}' }],
    says: '400 malformed_json',
  },
  { what: 'no body', call: ['POST', '/v1/rides', RIDER], says: '400 invalid_request', names: ['body'] },
  {
    what: 'an array',
    call: ['POST', '/v1/rides', { ...RIDER, body: [good] }],
    says: '400 invalid_request',
    names: ['body'],
  },
  {
    what: 'an empty object',
    call: ['POST', '/v1/rides', { ...RIDER, body: {} }],
    says: '400 invalid_request',
    names: ['body.regionId', 'body.riderId', 'body.pickup', 'body.dropoff'],
  },
  {
    what: 'unknown fields',
    call: ['POST', '/v1/rides', { ...RIDER, body: { ...good, price: 1, pickup: { ...CENTER, alt: 3 } } }],
    says: '400 invalid_request',
    names: ['body.pickup.alt', 'body.price'],
  },
  {
    what: 'numbers as strings',
    call: ['POST', '/v1/rides', { ...RIDER, body: at('40.75', '-73.98') }],
    says: '400 invalid_request',
    names: ['body.pickup.lat', 'body.pickup.lng'],
  },
  {
    what: 'latitude 90.1',
    call: ['POST', '/v1/rides', { ...RIDER, body: at(90.1, 0) }],
    says: '400 invalid_request',
    names: ['body.pickup.lat'],
  },
  {
    what: 'longitude -181',
    call: ['POST', '/v1/rides', { ...RIDER, body: at(0, -181) }],
    says: '400 invalid_request',
    names: ['body.pickup.lng'],
  },
  {
    what: 'a number beyond all numbers',
    call: ['POST', '/v1/rides', { ...RIDER, body: JSON.stringify(good).replace('40.76', '1e999') }],
    says: '400 invalid_request',
    names: ['body.pickup.lat'],
  },
  {
    what: 'null',
    call: ['POST', '/v1/rides', { ...RIDER, body: at(null, 0) }],
    says: '400 invalid_request',
    names: ['body.pickup.lat'],
  },
  {
    what: 'a zero byte in an id',
    call: ['POST', '/v1/rides', { ...RIDER, body: { ...good, regionId: 'ci\u0000ty' } }],
    says: '400 invalid_request',
    names: ['body.regionId'],
  },
  {
    what: 'an id of 65 characters',
    call: ['POST', '/v1/rides', { ...RIDER, body: { ...good, riderId: 'r'.repeat(65) } }],
    says: '400 invalid_request',
    names: ['body.riderId'],
  },
  {
    what: 'a vehicle class in capitals',
    call: ['POST', '/v1/rides', { ...RIDER, body: { ...good, vehicleClass: 'VAN' } }],
    says: '400 invalid_request',
    names: ['body.vehicleClass'],
  },
  {
    what: 'an idempotency key with a space',
    call: ['POST', '/v1/rides', { ...RIDER, body: good, headers: { 'idempotency-key': 'a b' } }],
    says: '400 invalid_request',
    names: ['headers.idempotency-key'],
  },
  {
    what: 'an idempotency key of 256 characters',
    call: ['POST', '/v1/rides', { ...RIDER, body: good, headers: { 'idempotency-key': 'k'.repeat(256) } }],
    says: '400 invalid_request',
    names: ['headers.idempotency-key'],
  },
  {
    what: 'a body of 17 KiB',
    call: ['POST', '/v1/rides', { ...RIDER, body: { ...good, riderId: 'r'.repeat(17 * 1024) } }],
    says: '413 body_too_large',
  },
  {
    what: 'XML',
    call: ['POST', '/v1/rides', { ...RIDER, body: '<ride/>', headers: { 'content-type': 'text/xml' } }],
    says: '415 unsupported_media_type',
  },
  {
    what: 'plain text',
    call: ['POST', '/v1/rides', { ...RIDER, body: 'ride', headers: { 'content-type': 'text/plain' } }],
    says: '415 unsupported_media_type',
  },
  {
    what: 'a lease token with a backslash',
    call: ['POST', `${offer}/confirm`, { ...DRIVER, body: { leaseToken: '\\x' } }],
    says: '400 invalid_request',
    names: ['body.leaseToken'],
  },
  {
    what: 'a cancel without a reason',
    call: ['POST', `${ride}/cancel`, { ...RIDER, body: {} }],
    says: '400 invalid_request',
    names: ['body.reasonCode'],
  },
  {
    what: 'a body where there is nothing to say',
    call: ['POST', `${ride}/arrive`, { ...DRIVER, body: { now: true } }],
    says: '400 invalid_request',
    names: ['body.now'],
  },
  {
    what: 'a region of no size',
    call: ['PUT', '/v1/regions/x', { ...OPS, body: { name: 'x', center: CENTER, radiusM: 0 } }],
    says: '400 invalid_request',
    names: ['body.radiusM'],
  },
  {
    what: 'a region named with a control character',
    call: ['PUT', '/v1/regions/x', { ...OPS, body: { name: 'x\u0000', center: CENTER, radiusM: 1 } }],
    says: '400 invalid_request',
    names: ['body.name'],
  },
  {
    what: 'null in place of an object',
    call: ['POST', `${ride}/arrive`, { ...DRIVER, body: 'null' }],
    says: '400 invalid_request',
    names: ['body'],
  },
  {
    what: 'a number too small for the database',
    call: ['PUT', '/v1/drivers/d1', { ...OPS, body: { regionId: 'city', maxPickupM: 5e-324 } }],
    says: '400 invalid_request',
    names: ['body.maxPickupM'],
  },
  {
    what: 'the year 0',
    call: ['PUT', '/v1/drivers/d1', { ...OPS, body: { regionId: 'city', shiftEndsAt: '0000-01-01T00:00:00Z' } }],
    says: '400 invalid_request',
    names: ['body.shiftEndsAt'],
  },
  {
    what: 'a time of two hundred digits',
    call: [
      'PUT',
      '/v1/drivers/d1',
      { ...OPS, body: { regionId: 'city', shiftEndsAt: `2026-11-21T08:15:30.${'1'.repeat(200)}Z` } },
    ],
    says: '400 invalid_request',
    names: ['body.shiftEndsAt'],
  },
  {
    what: 'a share too small for the database',
    call: ['PUT', '/v1/regions/city/policy/canary', { ...OPS, body: { share: 5e-324 } }],
    says: '400 invalid_request',
    names: ['body.share'],
  },
  {
    what: 'an address with a zero byte',
    call: ['PUT', '/v1/webhooks/w', { ...OPS, body: { url: 'http://127.0.0.1/\0' } }],
    says: '400 invalid_request',
    names: ['body.url'],
  },
  {
    what: 'a key with a zero byte',
    call: ['POST', '/v1/webhooks/w/redeliver', { ...OPS, body: { keys: ['\0'] } }],
    says: '400 invalid_request',
    names: ['body.keys.0'],
  },
  ...[{ a: 'b\0' }, { '\0': 1 }, ['\ud800'], JSON.parse(`${'['.repeat(100)}${']'.repeat(100)}`) as unknown].map(
    (payload): BadInput => ({
      what: `a payload that can’t be kept: ${JSON.stringify(payload).slice(0, 20)}`,
      call: ['POST', '/v1/queues/q/items', { ...OPS, body: { items: [{ key: 'k', payload }] } }],
      says: '400 invalid_request',
      names: ['body.items.0.payload'],
    }),
  ),
  {
    what: 'data that can’t be kept',
    call: ['POST', '/v1/leases/confirm', { ...OPS, body: { resource: 'r', token: 't', data: '\0' } }],
    says: '400 invalid_request',
  },
  {
    what: 'a long body where none counts',
    call: ['DELETE', '/v1/webhooks/w', { ...OPS, body: { a: 'y'.repeat(17 * 1024) } }],
    says: '413 body_too_large',
  },
];

const addresses: readonly BadInput[] = [
  {
    what: 'a ride that isn’t a UUID',
    call: ['GET', '/v1/rides/17', OPS],
    says: '400 invalid_request',
    names: ['params.id'],
  },
  {
    what: 'a driver’s id with a dot',
    call: ['GET', '/v1/drivers/d.1', OPS],
    says: '400 invalid_request',
    names: ['params.id'],
  },
  {
    what: 'a driver’s id of 200 characters',
    call: ['GET', `/v1/drivers/${'d'.repeat(200)}`, OPS],
    says: '400 invalid_request',
    names: ['params.id'],
  },
  { what: 'an unknown ride', call: ['GET', ride, OPS], says: '404 ride_not_found' },
  {
    what: 'an unknown ride, in capitals',
    call: ['GET', ride.toUpperCase().replace('/V1/RIDES', '/v1/rides'), OPS],
    says: '404 ride_not_found',
  },
  {
    what: 'a UUID of somebody else',
    call: ['GET', '/v1/rides/3f2504e0-4f89-41d3-9a0c-0305e82c3301', OPS],
    says: '404 ride_not_found',
  },
  { what: 'an unknown offer', call: ['GET', offer, OPS], says: '404 offer_not_found' },
  { what: 'an unknown driver', call: ['GET', '/v1/drivers/nobody', OPS], says: '404 driver_not_found' },
  { what: 'an unknown region', call: ['GET', '/v1/rides?regionId=nowhere', OPS], says: '404 region_not_found' },
  { what: 'an unknown path', call: ['GET', '/v1/cars', OPS], says: '404 route_not_found' },
  {
    what: 'an unknown path with a body of any kind',
    call: ['POST', '/v1/cars', { body: 'x', headers: { 'content-type': 'text/xml' } }],
    says: '404 route_not_found',
  },
  { what: 'another method', call: ['DELETE', ride, OPS], says: '405 method_not_allowed' },
  { what: 'a broken escape', call: ['GET', '/v1/drivers/%E0%A4%A', OPS], says: '400 bad_request' },
  { what: 'no region', call: ['GET', '/v1/rides', OPS], says: '400 invalid_request', names: ['query.regionId'] },
  {
    what: 'an unknown filter',
    call: ['GET', '/v1/rides?regionId=city&state=open', OPS],
    says: '400 invalid_request',
    names: ['query.state'],
  },
  {
    what: 'an unknown status',
    call: ['GET', '/v1/rides?regionId=city&status=lost', OPS],
    says: '400 invalid_request',
    names: ['query.status'],
  },
  {
    what: 'limit 0',
    call: ['GET', '/v1/rides?regionId=city&limit=0', OPS],
    says: '400 invalid_request',
    names: ['query.limit'],
  },
  {
    what: 'limit 501',
    call: ['GET', '/v1/drivers?regionId=city&limit=501', OPS],
    says: '400 invalid_request',
    names: ['query.limit'],
  },
  {
    what: 'two limits',
    call: ['GET', '/v1/drivers?regionId=city&limit=1&limit=2', OPS],
    says: '400 invalid_request',
    names: ['query.limit'],
  },
  {
    what: 'a cursor of one’s own',
    call: ['GET', '/v1/rides?regionId=city&cursor=abc', OPS],
    says: '400 invalid_request',
    names: ['query.cursor'],
  },
];

async function judge(api: TestApi, { what, call, says, names }: BadInput): Promise<void> {
  const { status, body, headers } = await api.call(...call);
  expect(`${status} ${body.code}`, `${what}: ${JSON.stringify(body)}`).toBe(says);
  expect(headers['content-type']).toContain('application/problem+json');
  expect(body).toMatchObject({ type: `urn:cabrank:problem:${body.code}`, status, title: expect.any(String) });
  const paths = (body.errors as { path: string }[] | undefined)?.map(({ path }) => path);
  if (names !== undefined) expect(paths?.sort(), what).toEqual([...names].sort());
}

describe.concurrent('bad input', () => {
  test('in bodies is named, and changes nothing', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    for (const input of bodies) await judge(api, input);
    const [counts] = await api.database.cold`
      select (select count(*)::int from rides) as rides, (select count(*)::int from regions) as regions`;
    expect(counts).toEqual({ rides: 0, regions: 1 });
  });

  test('in addresses is named', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    for (const input of addresses) await judge(api, input);
    expect((await api.call('DELETE', ride, OPS)).headers['allow']).toBe('GET, HEAD');
  });

  test('an empty body of a named type is no body', async () => {
    await using api = await startTestApi();
    const { body } = await api.call('POST', `${ride}/arrive`, {
      ...DRIVER,
      headers: { 'content-type': 'application/json' },
    });
    expect(body.code).toBe('ride_not_found');
  });
});

describe.concurrent('tokens', () => {
  const key = new TextEncoder().encode(SECRET);
  const signed = (payload: Record<string, unknown>) =>
    new SignJWT({ exp: Math.floor(Date.now() / 1000) + 60, ...payload }).setProtectedHeader({ alg: 'HS256' }).sign(key);

  test('that have expired are told so, before anything else of the request is looked at', async () => {
    await using api = await startTestApi();
    const token = await signed({ sub: 'me', role: 'ops', exp: Math.floor(Date.now() / 1000) - 1 });
    const { body } = await api.call('PUT', '/v1/regions/city', {
      headers: { authorization: `Bearer ${token}` },
      body: '{',
    });
    expect(body.code).toBe('token_expired');
  });
});
