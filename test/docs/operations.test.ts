import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { UNSUITABLE } from '../../domain/eligibility.ts';
import { defaultPolicy, policyBounds } from '../../domain/policy.ts';
import { readConfig, ROLES } from '../../src/config.ts';
import { createMetrics } from '../../src/ops/metrics.ts';

const page = readFileSync(new URL('../../docs/operations.md', import.meta.url), 'utf8');
/** The cells of the table row whose first cell is `name`. */
const row = (name: string): string[] => {
  const line = page.split('\n').find((each) => each.startsWith(`| \`${name}\``));
  expect(line, `docs/operations.md has no row for ${name}`).toBeDefined();
  return line!
    .split('|')
    .slice(1, -1)
    .map((cell) => cell.trim());
};

it.each(Object.entries(policyBounds))(
  'the policy’s %s is described with its default and bounds',
  (setting, { min, max }) => {
    const [, value, bounds] = row(setting);
    expect(value).toBe(String(defaultPolicy[setting as keyof typeof policyBounds]));
    expect(bounds).toBe(`${min}–${max}`);
  },
);

it('the reasons for finding nobody are described, and no other', () => {
  const named = page.slice(page.indexOf('| reason'), page.indexOf('`cabrank verify` reads'));
  const described = [...named.matchAll(/^\| (`.*?) +\|/gm)].flatMap(([, cell]) => [...cell!.matchAll(/`(\w+)`/g)]);
  const known = ['nobody_near', 'taken', 'offers_used_up', ...UNSUITABLE];
  expect(described.map(([, name]) => name).toSorted()).toEqual(known.toSorted());
});

it('the matching policies are named', () => {
  expect(row('matching')).toContain(`\`${defaultPolicy.matching}\``);
});

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
