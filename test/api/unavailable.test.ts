import { describe, expect, test } from 'vitest';
import { OPS, rideBody, startApiWithoutDatabase } from './harness.ts';

describe('with the database gone', () => {
  test('whatever needs it is answered 503, to be asked again', async () => {
    await using api = await startApiWithoutDatabase();
    const offer = '/v1/offers/01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e';
    const answers = await Promise.all([
      api.call('POST', '/v1/rides', { as: 'rider:r', body: rideBody('r') }),
      api.call('GET', '/v1/drivers/d1', OPS),
      api.call('PUT', '/v1/regions/city', { ...OPS, body: { name: 'x', center: { lat: 0, lng: 0 }, radiusM: 1 } }),
      api.call('POST', `${offer}/confirm`, { as: 'driver:d1', body: { leaseToken: 'x' } }),
    ]);
    for (const { status, body, headers } of answers) {
      expect(`${status} ${body.code}`).toBe('503 database_unavailable');
      expect(headers['retry-after']).toBe('1');
      expect(JSON.stringify(body)).not.toContain('secret-word');
    }
  });

  test('the process is up and not ready, and its metrics can be read', async () => {
    await using api = await startApiWithoutDatabase();
    expect((await api.call('GET', '/healthz')).status).toBe(200);
    const ready = await api.call('GET', '/readyz');
    expect(ready).toMatchObject({ status: 503, body: { ok: false, checks: { database: 'ECONNREFUSED' } } });
    expect(ready.headers['retry-after']).toBe('1');
    const metrics = await api.call('GET', '/metrics');
    expect(metrics.status).toBe(200);
    expect(metrics.body).not.toMatch(/^cabrank_drivers\{/m);
  });

  test('what is wrong with the request is said all the same', async () => {
    await using api = await startApiWithoutDatabase();
    expect((await api.call('POST', '/v1/rides', { as: 'rider:r', body: {} })).status).toBe(400);
    expect((await api.call('GET', '/v1/rides?regionId=x')).status).toBe(401);
  });
});
