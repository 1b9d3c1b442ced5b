import { expect, test } from 'vitest';
import { createStateGauges } from '../../src/ops/health.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { assignRide, openDriver, openRegion, requestRide, startTestApi } from './harness.ts';

test('health, metrics and the description are open to all', async () => {
  await using api = await startTestApi();
  await openRegion(api);
  await openDriver(api, 'd1');
  await openDriver(api, 'd2');
  await assignRide(api, 'd1');
  await requestRide(api, 'rider-2');
  expect(await api.call('GET', '/healthz')).toMatchObject({ status: 200, body: { ok: true } });
  expect(await api.call('GET', '/readyz')).toMatchObject({
    status: 200,
    body: { ok: true, checks: { database: 'ok' } },
  });

  const { status, headers, body } = await api.call('GET', '/metrics');
  expect(status).toBe(200);
  expect(headers['content-type']).toContain('text/plain');
  expect((body as string).split('\n')).toEqual(
    expect.arrayContaining([
      'cabrank_transitions_total{transition="confirm",outcome="applied"} 1',
      'cabrank_drivers{region="city",status="offline"} 0',
      'cabrank_drivers{region="city",status="available"} 1',
      'cabrank_drivers{region="city",status="assigned"} 1',
      'cabrank_open_rides{region="city",status="searching"} 1',
      'cabrank_open_rides{region="city",status="assigned"} 1',
    ]),
  );

  const page = await api.call('GET', '/docs/');
  expect(page.status).toBe(200);
  expect(page.body).not.toMatch(/(src|href)="(https?:)?\/\//);
  expect(page.headers['content-security-policy']).toMatch(/^default-src 'self'; (?!.*https?:)/);
  expect((await api.call('GET', '/docs/static/swagger-ui-bundle.js')).status).toBe(200);
});

test('answers may not be cached, nor read as something else', async () => {
  await using api = await startTestApi();
  for (const path of ['/healthz', '/v1/rides', '/nowhere']) {
    const { headers } = await api.call('GET', path);
    expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff', 'cache-control': 'no-store' });
    expect(headers['access-control-allow-origin']).toBeUndefined();
  }
});

test('states are counted again only after five seconds', async () => {
  await using api = await startTestApi();
  await openRegion(api);
  await openDriver(api, 'd1');
  const metrics = createMetrics();
  let nowMs = 0;
  const collect = createStateGauges(api.database, metrics, () => nowMs);
  const available = async (): Promise<number> => {
    await collect();
    const text = await metrics.registry.getSingleMetricAsString('cabrank_drivers');
    return Number(/status="available"\} (\d+)/.exec(text)?.[1]);
  };
  expect(await available()).toBe(1);
  await openDriver(api, 'd2');
  nowMs = 4_999;
  expect(await available()).toBe(1);
  nowMs = 5_000;
  expect(await available()).toBe(2);
});
