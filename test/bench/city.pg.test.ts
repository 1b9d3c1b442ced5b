import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { openCity, tryRate } from '../../bench/city/trial.ts';
import { startMember, verifyRecords } from '../../bench/member.ts';

it('a trial drives whole rides through the service, and what it counts is what the records say', async () => {
  await using service = await startMember(['serve', '--temporary']);
  await using workers = await openCity(service, { drivers: 30, workers: 2 });
  const { figures } = await tryRate({ services: [service], database: service, workers }, 10, 2);
  expect(figures).toMatchObject({ requested: 20, completed: 20, failures: {} });
  expect(figures.requestToOfferMs.p50).toBeGreaterThan(0);
  const verified = await verifyRecords(service.databaseUrl);
  expect(verified.violations).toBe(0);
  expect(verified.checked).toBeGreaterThan(100);
}, 60_000);

it.each([
  [['city', 'leases'], 'name of one benchmark'],
  [['nothing'], 'name of one benchmark'],
  [['city', '--seconds', '0'], '--seconds must be a whole number'],
  [['city', '--sedonds', '3'], 'sedonds'],
])('bench %j is refused with exit code 2', (args, said) => {
  const { status, stderr } = spawnSync(process.execPath, ['src/main.ts', 'bench', ...args], { encoding: 'utf8' });
  expect(stderr).toContain(said);
  expect(status).toBe(2);
});
