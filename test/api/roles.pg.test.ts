import { describe, expect, test } from 'vitest';
import type { Role } from '../../src/auth.ts';
import { CENTER, rideBody, startTestApi, type Method } from './harness.ts';

const ride = '/v1/rides/01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e';
const work = { queue: 'q', key: 'k', token: 't' };
const claim = { resource: 'r', token: 't' };
const offer = '/v1/offers/01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e';
const term = { leaseToken: 'x' };
const region = { name: 'A city', center: CENTER, radiusM: 1_000 };

/** Who may call what: everybody else hears `forbidden`. */
const routes: readonly [Method, string, object | undefined, ...Role[]][] = [
  ['PUT', '/v1/regions/city', region, 'ops'],
  ['GET', '/v1/regions/city', undefined, 'ops'],
  ['GET', '/v1/regions/city/policy', undefined, 'ops'],
  ['PUT', '/v1/regions/city/policy', {}, 'ops'],
  ['POST', '/v1/rides', rideBody('me'), 'rider', 'service', 'ops'],
  ['GET', ride, undefined, 'rider', 'driver', 'service', 'ops'],
  ['GET', '/v1/rides?regionId=city', undefined, 'service', 'ops'],
  ['GET', `${ride}/timeline`, undefined, 'rider', 'driver', 'service', 'ops'],
  ['POST', `${ride}/cancel`, { reasonCode: 'x' }, 'rider', 'driver', 'service', 'ops'],
  ['POST', `${ride}/unassign`, { driverId: 'd1', reasonCode: 'x' }, 'service', 'ops'],
  ['POST', `${ride}/hold`, { reasonCode: 'x' }, 'service', 'ops'],
  ['POST', `${ride}/release`, { reasonCode: 'x' }, 'service', 'ops'],
  ['POST', `${ride}/reassign`, { fromDriverId: 'd1', toDriverId: 'd2', reasonCode: 'x' }, 'service', 'ops'],
  ['GET', '/v1/regions/city/policy/canary', undefined, 'ops'],
  ['PUT', '/v1/regions/city/policy/canary', { share: 0.1 }, 'ops'],
  ['POST', '/v1/regions/city/policy/canary/promote', undefined, 'ops'],
  ['DELETE', '/v1/regions/city/policy/canary', undefined, 'ops'],
  ['POST', `${ride}/assign`, { driverId: 'd1' }, 'service', 'ops'],
  ['POST', `${ride}/arrive`, undefined, 'driver'],
  ['POST', `${ride}/start`, undefined, 'driver'],
  ['POST', `${ride}/complete`, undefined, 'driver'],
  ['POST', `${ride}/offers`, { driverId: 'me' }, 'service', 'ops'],
  ['PUT', '/v1/drivers/me', { regionId: 'city' }, 'driver', 'service', 'ops'],
  ['GET', '/v1/drivers/me', undefined, 'driver', 'service', 'ops'],
  ['GET', '/v1/drivers?regionId=city', undefined, 'service', 'ops'],
  ['POST', '/v1/drivers/me/online', undefined, 'driver', 'ops'],
  ['POST', '/v1/drivers/me/offline', undefined, 'driver', 'ops'],
  ['POST', '/v1/drivers/me/location', CENTER, 'driver', 'ops'],
  ['GET', offer, undefined, 'driver', 'service', 'ops'],
  ['POST', `${offer}/received`, term, 'driver', 'service', 'ops'],
  ['POST', `${offer}/confirm`, term, 'driver', 'service'],
  ['POST', `${offer}/decline`, term, 'driver', 'service', 'ops'],
  ['POST', `${offer}/release`, term, 'service', 'ops'],
  ['POST', '/v1/leases', { resource: 'r', holder: 'h', ttlMs: 1_000 }, 'service', 'ops'],
  ['POST', '/v1/leases/renew', claim, 'service', 'ops'],
  ['POST', '/v1/leases/release', claim, 'service', 'ops'],
  ['POST', '/v1/leases/confirm', claim, 'service', 'ops'],
  ['POST', '/v1/leases/break', { resource: 'r' }, 'ops'],
  ['GET', '/v1/leases', undefined, 'service', 'ops'],
  ['GET', '/v1/leases/r', undefined, 'service', 'ops'],
  ['GET', '/v1/leases/r/terms', undefined, 'service', 'ops'],
  ['POST', '/v1/queues/q/items', { items: [{ key: 'k', payload: 1 }] }, 'service', 'ops'],
  ['POST', '/v1/queues/q/next', { max: 1, ttlMs: 1_000 }, 'service', 'ops'],
  ['POST', '/v1/claims/heartbeat', { claims: [work], ttlMs: 1_000 }, 'service', 'ops'],
  ['POST', '/v1/claims/complete', { claims: [work] }, 'service', 'ops'],
  ['POST', '/v1/claims/put-back', { claims: [work] }, 'service', 'ops'],
  ['POST', '/v1/claims/fail', { ...work, error: 'no', retryInMs: 0, attemptsMax: 1 }, 'service', 'ops'],
  ['PUT', '/v1/riders/me/blocks/d1', undefined, 'service', 'ops'],
  ['GET', '/v1/riders/me/blocks', undefined, 'service', 'ops'],
  ['DELETE', '/v1/riders/me/blocks/d1', undefined, 'service', 'ops'],
  ['PUT', '/v1/webhooks/hook', { url: 'https://backend.example/' }, 'ops'],
  ['GET', '/v1/webhooks', undefined, 'ops'],
  ['GET', '/v1/webhooks/hook', undefined, 'ops'],
  ['GET', '/v1/webhooks/hook/dead', undefined, 'ops'],
  ['POST', '/v1/webhooks/hook/redeliver', undefined, 'ops'],
  ['DELETE', '/v1/webhooks/hook', undefined, 'ops'],
];

describe('every route', () => {
  test('is open to its roles, and to nobody without a token', async () => {
    await using api = await startTestApi();
    for (const [method, path, body, ...allowed] of routes) {
      const sent = body === undefined ? {} : { body };
      const nobody = await api.call(method, path, sent);
      expect(`${nobody.status} ${nobody.body.code}`, `${method} ${path}`).toBe('401 token_missing');
      expect(nobody.headers['www-authenticate']).toBe('Bearer');
      for (const role of ['rider', 'driver', 'service', 'ops'] as const) {
        const { status, body: said } = await api.call(method, path, { as: `${role}:me`, ...sent });
        const isForbidden = status === 403 && said.code === 'forbidden';
        expect(isForbidden, `${role}: ${method} ${path} ${status} ${said.code}`).toBe(!allowed.includes(role));
        expect(status).toBeLessThan(500);
      }
    }
  });

  test('is in the table above', async () => {
    await using api = await startTestApi();
    const { body } = await api.call('GET', '/openapi.json');
    const described = Object.entries(body.paths as Record<string, object>)
      .filter(([path]) => path.startsWith('/v1/'))
      .flatMap(([path, operations]) => Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`));
    const listed = routes.map(([method, path]) => {
      const template = path
        .split('?')[0]!
        .replace(/(?<=^\/v1\/leases\/)r\b(?!e)/, '{resource}')
        .replace(/(?<=\/blocks\/)d1$/, '{driverId}')
        .replace(/(?<=^\/v1\/queues\/)q\b/, '{queue}')
        .replace(/(?<=^\/v1\/(?!leases|queues|claims)\w+\/)[^/]+/, '{id}');
      return `${method} ${template}`;
    });
    expect(listed.sort()).toEqual(described.sort());
  });
});
