/** What a database clock that was an hour ahead leaves behind of resource leases when it is put back. */
import { randomUUID } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import { ClockAhead } from '../../src/dispatch/clock-ahead.ts';
import { endLeasesAhead } from '../../src/resource-leases/transitions.ts';
import { verify } from '../../src/verify/verify.ts';
import { startLeases } from './harness.ts';

const test = await startLeases();
afterAll(() => test[Symbol.asyncDispose]());
const { leases, acquire, granted, letPass, database } = test;
const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const HOUR_MS = 3_600_000;
const TTL_MS = 5_000;
const LOCK_DELAY_MS = 2_000;

/** A process's mending, by a clock of the test's own. */
function mender(): (atMs: number) => Promise<void> {
  let nowMs = 0;
  const deps = { sql: database.hot, leasing: { endTermsAhead: async () => {} }, regions: { all: async () => [] } };
  const clockAhead = new ClockAhead({ ...deps, log: silent }, () => nowMs);
  return async (atMs) => {
    nowMs = atMs;
    await clockAhead.mend();
  };
}

async function leaseOfTheFuture(resource: string) {
  const lease = await granted({ resource, ttlMs: TTL_MS, lockDelayMs: LOCK_DELAY_MS });
  await letPass(-HOUR_MS, resource);
  return lease;
}

it('its holder, and whoever waits for it, count on no more than a term', async () => {
  const resource = randomUUID();
  const lease = await leaseOfTheFuture(resource);
  const [renewed] = await leases.renew([lease]);
  expect(renewed).toMatchObject({ refused: null });
  expect(renewed!.refused === null && renewed!.expiresInMs).toBeLessThanOrEqual(TTL_MS);
  const answer = await acquire({ resource });
  expect(answer.refused === 'held' && answer.held[0]!.forMs).toBeLessThanOrEqual(TTL_MS + LOCK_DELAY_MS);
});

it('one that nobody renews ends when it has been known for as long as it may last, and the next is granted', async () => {
  const [resource, renewed, present] = [randomUUID(), randomUUID(), randomUUID()];
  await leaseOfTheFuture(resource);
  const living = await leaseOfTheFuture(renewed);
  await granted({ resource: present });
  const mendAt = mender();
  await mendAt(0);
  await leases.renew([living]);
  await mendAt(TTL_MS + LOCK_DELAY_MS - 1);
  expect(await acquire({ resource })).toMatchObject({ refused: 'held' });
  await database.cold.begin(async (tx) => {
    await tx`select from resource_leases where resource = ${resource} for update`;
    await mendAt(TTL_MS + LOCK_DELAY_MS);
  });
  expect(await acquire({ resource })).toMatchObject({ refused: 'held' });
  await mendAt(TTL_MS + LOCK_DELAY_MS);
  expect(await granted({ resource, holder: 'next' })).toMatchObject({ fence: 2, holder: 'next' });
  for (const other of [renewed, present]) expect(await acquire({ resource: other })).toMatchObject({ refused: 'held' });
  expect(await verify(test.url)).toMatchObject({ violations: 0 });
});

it('one that is taken or renewed just before it would be ended goes on', async () => {
  const resource = randomUUID();
  const lease = await leaseOfTheFuture(resource);
  await leases.renew([lease]);
  const known = { resource, fence: 1, renewals: 1, free_after_ms: TTL_MS };
  await endLeasesAhead(database.hot, [{ ...known, renewals: 0 }]);
  await endLeasesAhead(database.hot, [{ ...known, fence: 2 }]);
  expect(await leases.renew([lease])).toMatchObject([{ refused: null }]);
  await endLeasesAhead(database.hot, [{ ...known, renewals: 2 }]);
  expect(await leases.renew([lease])).toMatchObject([{ refused: 'lease_expired' }]);
});

it('who waits for it is called', async () => {
  const resource = randomUUID();
  await leaseOfTheFuture(resource);
  const mendAt = mender();
  await mendAt(0);
  const waiting = acquire({ resource, waitMs: 20_000 });
  await expect
    .poll(() => database.cold`select from resource_lease_tickets where resource = ${resource}`)
    .toHaveLength(1);
  await mendAt(HOUR_MS);
  expect(await waiting).toMatchObject({ refused: null });
});
