import * as fs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';
import { LeaseClient } from '../../../src/client/leases/client.ts';
import { startEmbedded } from '../../../src/database/embedded.ts';
import { migrate } from '../../../src/database/migrate.ts';
import { databaseLeases } from '../../../src/resource-leases/database-leases.ts';

it('a database that is killed and comes back while renewals go on: the lease is still held', async () => {
  await using stack = new AsyncDisposableStack();
  const folder = await fs.mkdtemp(join(tmpdir(), 'restart-test-'));
  await fs.chmod(folder, 0o755);
  stack.defer(() => fs.rm(folder, { recursive: true, force: true }));
  const dataDir = join(folder, 'data');
  const first = stack.use(await startEmbedded({ dataDir }));
  const home = await fs.realpath(join(dataDir, 'postgres'));
  stack.defer(() => fs.rm(home, { recursive: true, force: true }));
  await migrate(first.url);
  const leases = stack.use(new LeaseClient(databaseLeases(first.url, 'a secret of the tests')));
  const lease = await leases.acquire('job', { ttlMs: 20_000 });

  process.kill(first.pid, 'SIGKILL');
  await first.stop();
  // Past the time of the first renewal, and of some tries after it.
  await vi.waitFor(() => expect(lease.trustedForMs).toBeLessThan(12_000), { timeout: 15_000 });
  expect(lease.signal.aborted).toBe(false);

  const port = Number(new URL(first.url).port);
  const second = stack.use(await startEmbedded({ dataDir, port }));
  expect(second.url).toBe(first.url);
  await vi.waitFor(() => expect(lease.trustedForMs).toBeGreaterThan(15_000), { timeout: 15_000, interval: 10 });
  expect(lease.signal.aborted).toBe(false);
  await expect(leases.acquire('job', { ttlMs: 20_000 })).rejects.toMatchObject({ held: [{ fence: 1 }] });
  await leases.close();
}, 120_000);
