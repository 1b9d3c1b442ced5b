import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { makeReport } from '../../chaos/report.ts';

it('docs/reliability.md is what the results say', async () => {
  const page = readFileSync(new URL('../../docs/reliability.md', import.meta.url), 'utf8');
  // The formatter may pad the tables.
  const tidy = (text: string): string => text.replaceAll(/-{3,}/g, '---').replaceAll(/ +/g, ' ');
  expect(tidy(page)).toBe(tidy(await makeReport()));
});
