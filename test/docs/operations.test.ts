import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { readConfig, ROLES } from '../../src/config.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { rowOf } from './rows.ts';

const page = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');
const row = (name: string): string[] => rowOf(page, name);

it.each(ROLES)('the role %s is described', (role) => {
  expect(row(role)).toHaveLength(3);
});

it('every metric is described, and no other', async () => {
  const known = (await createMetrics().registry.getMetricsAsJSON())
    .map(({ name }) => name)
    .filter((name) => name.startsWith('cabrank_'));
  expect(known.length).toBeGreaterThan(20);
  for (const name of known) row(name);
  const described = [...page.matchAll(/^\| `(cabrank_\w+)`/gm)].map(([, name]) => name!);
  expect(described.toSorted()).toEqual(known.toSorted());
});

it('settings have the defaults that are said', () => {
  const config = readConfig({});
  expect(row('HOST')[1]).toBe(`\`${config.host}\``);
  expect(row('PORT')[1]).toBe(`\`${config.port}\``);
  expect(row('DATA_DIR')[1]).toBe(`\`${config.dataDir}\``);
  expect(row('HOT_CONNECTIONS')[1]).toBe(`\`${config.hotConnections}\``);
  expect(row('MATCHER_FAULT_RATE')[1]).toBe(`\`${config.matcherFaultRate}\``);
  expect(row('LOG_LEVEL')[1]).toBe(`\`${config.logLevel}\``);
  for (const name of ['ROLES', 'DATABASE_URL', 'AUTH_SECRET', 'REDIS_URL', 'POLICY']) row(name);
});
