import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { RIDE_EVENT_TYPES } from '../../src/records.ts';

const page = readFileSync(new URL('../../docs/webhooks.md', import.meta.url), 'utf8');

it('the types of events are described, and no other', () => {
  const table = page.slice(page.indexOf('## Types of events'), page.indexOf('## The Redis stream'));
  const described = [...table.matchAll(/^\| `(\w+)` +\| \S/gm)].map(([, type]) => type);
  expect(described).toEqual(RIDE_EVENT_TYPES);
});
