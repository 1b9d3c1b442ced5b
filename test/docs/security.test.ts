import { existsSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { defaultRateLimits } from '../../src/rate-limit.ts';

const root = new URL('../../', import.meta.url);
const page = readFileSync(new URL('docs/security.md', root), 'utf8');
const paths = [...page.matchAll(/`((?:test|src|docs)\/[^`\s]+)`/g)].map(([, path]) => path!);
const links = [...page.matchAll(/\]\(([\w.-]+\.md)\)/g)].map(([, path]) => `docs/${path!}`);

it('every path that the page names exists', () => {
  expect(paths.length).toBeGreaterThan(20);
  expect([...paths, ...links].filter((path) => !existsSync(new URL(path, root)))).toEqual([]);
});

it('each of the ten risks has its row, with a test', () => {
  for (let risk = 1; risk <= 10; risk += 1) {
    const row = page.split('\n').find((line) => line.startsWith(`| API${risk} `));
    expect(row, `API${risk}`).toMatch(/`test\/.*\.ts`/);
  }
});

it('the README leads to it, and the rates’ defaults are those that docs/operations.md says', () => {
  expect(readFileSync(new URL('README.md', root), 'utf8')).toContain('(docs/security.md)');
  const operations = readFileSync(new URL('docs/operations.md', root), 'utf8');
  expect(operations).toMatch(new RegExp(`\`DEVICE_REQUESTS_PER_S\` +\\| \`${defaultRateLimits.devicePerS}\``));
  expect(operations).toMatch(new RegExp(`\`SERVICE_REQUESTS_PER_S\` +\\| \`${defaultRateLimits.servicePerS}\``));
});
