import { type ChildProcess, fork } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it, vi } from 'vitest';
import { LeaseClient } from '../../../src/client/leases/client.ts';
import { connectDatabase } from '../../../src/database/connection.ts';
import { databaseLeases } from '../../../src/resource-leases/database-leases.ts';
import { createTestDatabase } from '../../support/database.ts';

const HOLDER = fileURLToPath(new URL('holder.ts', import.meta.url));
const SECRET = 'a secret of the tests';
const stack = new AsyncDisposableStack();
const { url } = stack.use(await createTestDatabase());
const leases = stack.use(new LeaseClient(databaseLeases(url, SECRET), { holder: 'the test' }));
const database = stack.use(connectDatabase(url));
const children: ChildProcess[] = [];
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  await stack.disposeAsync();
});

async function startHolder(resource: string, ttlMs: number, mode: string): Promise<ChildProcess> {
  const child = fork(HOLDER, [url, SECRET, resource, String(ttlMs), mode], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  children.push(child);
  expect(await once(child, 'message')).toEqual([{ held: expect.any(Number) }, undefined]);
  return child;
}

it.each([
  ['process.exit', 'exits', (child: ChildProcess) => child.send('go')],
  ['SIGTERM', 'waits', (child: ChildProcess) => child.kill('SIGTERM')],
])('a holder that ends by %s has released', async (_how, mode, end) => {
  const resource = randomUUID();
  const child = await startHolder(resource, 60_000, mode);
  const gone = once(child, 'exit');
  end(child);
  await gone;
  await using lease = await leases.acquire(resource, { ttlMs: 60_000, waitMs: 10_000 });
  expect(lease.fence).toBe(2);
});

it('a holder that is killed is followed once its term is over', async () => {
  const resource = randomUUID();
  const child = await startHolder(resource, 1_000, 'waits');
  child.kill('SIGKILL');
  await using lease = await leases.acquire(resource, { ttlMs: 60_000, waitMs: 20_000 });
  expect(lease.fence).toBe(2);
});

it('a busy event loop doesn’t starve the renewals', async () => {
  const resource = randomUUID();
  const child = await startHolder(resource, 2_500, 'busy');
  expect(await once(child, 'message')).toEqual([{ held: 1 }, undefined]);
  await expect(leases.acquire(resource, { ttlMs: 60_000 })).rejects.toThrow('held');
}, 60_000);

it('a holder suspended beyond its term: its signal has fired before its next guarded write, which is refused', async () => {
  const resource = randomUUID();
  const child = await startHolder(resource, 1_000, 'writes');
  child.kill('SIGSTOP');
  await using lease = await leases.acquire(resource, { ttlMs: 60_000, waitMs: 20_000 });
  expect(lease.fence).toBe(2);
  const said = once(child, 'message');
  child.send('write');
  child.kill('SIGCONT');
  expect(await said).toEqual([{ aborted: true, allowed: false }, undefined]);
  lease.assertHeld();
});

it('connections that are cut while renewals go on lose nothing', async () => {
  const lease = await leases.acquire(randomUUID(), { ttlMs: 4_000 });
  for (let cut = 0; cut < 3; cut++) {
    await database.cold`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name like 'cabrank leases%'`;
    await vi.waitFor(() => expect(lease.trustedForMs).toBeLessThan(3_400), { timeout: 8_000, interval: 5 });
    await vi.waitFor(() => expect(lease.trustedForMs).toBeGreaterThan(3_500), { timeout: 8_000, interval: 5 });
  }
  lease.assertHeld();
  await lease.release();
}, 60_000);

it('lost to another, and expired unclaimed, are told apart', async () => {
  const [taken, expired] = [randomUUID(), randomUUID()];
  const first = await leases.acquire(taken, { ttlMs: 60_000, autoRenew: false });
  const second = await leases.acquire(expired, { ttlMs: 60_000, autoRenew: false });
  // As if the holders had been away for a minute.
  await database.cold`update resource_leases set granted_at = granted_at - interval '2 minutes',
    ends_at = ends_at - interval '2 minutes', free_at = free_at - interval '2 minutes', due_at = due_at - interval '2 minutes'
    where resource in (${taken}, ${expired})`;
  await using next = await leases.acquire(taken, { ttlMs: 60_000 });
  expect(next.fence).toBe(2);
  await expect(first.renew()).rejects.toMatchObject({ outcome: 'taken' });
  await expect(second.renew()).rejects.toMatchObject({ outcome: 'expired' });
});
