/** What a failover leaves: everything with a synchronous replica, no repeated fence with any. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { startReplica } from '../../chaos/replica.ts';
import { connectDatabase, isUnreachable } from '../../src/database/connection.ts';
import { type EmbeddedDatabase, startEmbedded } from '../../src/database/embedded.ts';
import { migrate } from '../../src/database/migrate.ts';
import { DatabaseLeases } from '../../src/resource-leases/database-leases.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { verify } from '../../src/verify/verify.ts';
import { addDrivers, addRegion, addRides, lease } from '../support/city.ts';

const EPOCH = 2 ** 32;
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** A server of its own: a failover ends all that is on it. */
async function startPrimary(stack: AsyncDisposableStack): Promise<EmbeddedDatabase> {
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-primary-'));
  stack.defer(() => rm(folder, { recursive: true, force: true }));
  const primary = stack.use(await startEmbedded({ dataDir: folder }));
  await migrate(primary.url);
  return primary;
}

test('grants that an asynchronous replica never heard of are lost, and their fences are used by nobody else', async () => {
  await using stack = new AsyncDisposableStack();
  const primary = await startPrimary(stack);
  const before = stack.use(connectDatabase(primary.url, { hotConnections: 1 }));
  const region = await addRegion(before.hot);
  await addDrivers(before.hot, region, 1);
  const [first, second, third] = await addRides(before.hot, region, 3);
  const kept = await lease(before.hot, region, first!, 'd1');
  await transitions.confirmOffers(before.hot, region, [kept], true);
  for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
    await transitions.advanceRides(before.hot, region, [{ rideId: first!, driverId: 'd1', status }], true);
  const leasesBefore = new DatabaseLeases({ database: before, secret: 'a secret of the tests' });
  stack.defer(() => leasesBefore.close());
  const replica = stack.use(await startReplica(primary));
  await replica.catchUp();
  await replica.cutOff();

  const lost = await lease(before.hot, region, second!, 'd1');
  expect([kept.fence, lost.fence]).toEqual([1, 2]);
  process.kill(primary.pid, 'SIGKILL');
  await replica.promote();

  const after = stack.use(connectDatabase(replica.database.url, { hotConnections: 1 }));
  const next = await lease(after.hot, region, third!, 'd1');
  expect(next.fence).toBe(EPOCH + 1);
  // What the lost lease's holder asks for touches nobody.
  const [stale] = await transitions.confirmOffers(after.hot, region, [lost], true);
  expect(stale).toMatchObject({ refused: 'offer_not_found', applied: false });
  await transitions.confirmOffers(after.hot, region, [next], true);
  const leases = new DatabaseLeases({ database: after, secret: 'a secret of the tests' });
  stack.defer(() => leases.close());
  const granted = await leases.acquire({ resource: 'job', holder: 'me', ttlMs: 60_000 } as never, 'key');
  expect(granted).toMatchObject({ refused: null, leases: [{ fence: EPOCH + 1 }] });
  expect((await after.cold`select number, timeline from epochs order by number`).map((row) => ({ ...row }))).toEqual([
    { number: 0, timeline: '00000001' },
    { number: 1, timeline: '00000002' },
  ]);
  expect(await verify(replica.database.url)).toMatchObject({ violations: 0 });
});

test('with a synchronous replica nothing acknowledged is lost', async () => {
  await using stack = new AsyncDisposableStack();
  const primary = await startPrimary(stack);
  const before = stack.use(connectDatabase(primary.url, { hotConnections: 4 }));
  const sql = before.hot;
  const region = await addRegion(sql);
  const driverIds = await addDrivers(sql, region, 50);
  const replica = stack.use(await startReplica(primary));
  await replica.becomeSynchronous();

  // Each is asked for alone, and the primary dies in the middle of them.
  const confirmed: string[] = [];
  const failures: unknown[] = [];
  await Promise.all(
    driverIds.map(async (driverId) => {
      try {
        const [rideId] = await addRides(sql, region, 1);
        const term = await lease(sql, region, rideId!, driverId);
        const [answer] = await transitions.confirmOffers(sql, region, [term], true);
        if (answer!.applied) confirmed.push(term.offerId);
        if (confirmed.length === 20) process.kill(primary.pid, 'SIGKILL');
      } catch (error) {
        failures.push(error);
      }
    }),
  );
  expect(failures.filter((error) => !isUnreachable(error))).toEqual([]);
  await replica.promote();
  const after = stack.use(connectDatabase(replica.database.url, { hotConnections: 1 }));
  const rows = await after.hot`select offer_id from assignments where offer_id = any(${confirmed}::uuid[])`;
  expect(confirmed.length).toBeGreaterThanOrEqual(20);
  expect(rows).toHaveLength(confirmed.length);
  expect(await verify(replica.database.url)).toMatchObject({ violations: 0 });
});

test('files put back from a snapshot begin no timeline: an operator opens the epoch', async () => {
  await using stack = new AsyncDisposableStack();
  const primary = await startPrimary(stack);
  const before = stack.use(connectDatabase(primary.url, { hotConnections: 1 }));
  const region = await addRegion(before.hot);
  await addDrivers(before.hot, region, 1);
  const [rideId] = await addRides(before.hot, region, 1);
  const { stdout } = await promisify(execFile)(process.execPath, [MAIN, 'migrate', '--restored'], {
    env: { ...process.env, DATABASE_URL: primary.url },
  });
  expect(stdout).toContain('epoch 1 begins');
  expect((await lease(before.hot, region, rideId!, 'd1')).fence).toBe(EPOCH + 1);
});
