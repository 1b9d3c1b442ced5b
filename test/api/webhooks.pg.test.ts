import { randomUUID } from 'node:crypto';
import { afterAll, expect, it, vi } from 'vitest';
import { RIDE_EVENT_TYPES } from '../../src/records.ts';
import { DatabaseLeases } from '../../src/resource-leases/database-leases.ts';
import { addRegion, addRides } from '../support/city.ts';
import { SECRET, startTestApi } from './harness.ts';

const api = await startTestApi();
const { hot, cold } = api.database;
const leases = new DatabaseLeases({ database: api.database, secret: SECRET });
afterAll(async () => {
  await leases.close();
  await api[Symbol.asyncDispose]();
});

const as = 'ops:olga';
const put = (id: string) => api.call('PUT', `/v1/webhooks/${id}`, { as, body: { url: 'https://backend.example/' } });
const remove = (id: string) => api.call('DELETE', `/v1/webhooks/${id}`, { as });
const queued = async (id: string): Promise<number> => {
  const [row] = await cold<
    { n: number }[]
  >`select count(*)::int as n from work_items where queue = ${`cabrank/webhook/${id}`}`;
  return row!.n;
};

/** Runs `work` while a transaction that did `what` is open. */
async function during(what: Parameters<typeof cold.begin>[1], work: (end: () => void) => Promise<void>): Promise<void> {
  const open = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  const transaction = cold.begin(async (sql) => {
    await what(sql);
    open.resolve();
    await end.promise;
  });
  transaction.catch(open.reject);
  await open.promise;
  await work(end.resolve).finally(end.resolve);
  await transaction;
}

it('a webhook that couldn’t be deleted is still there; asked again, it is gone with all that was queued', async () => {
  await put('busy');
  // More than one statement takes away.
  await cold`insert into work_items (queue, key, payload, ready_at)
    select 'cabrank/webhook/busy', n::text, '{}', now() from generate_series(1, 25000) n`;
  await during(
    (sql) => sql`select id from work_items where queue = 'cabrank/webhook/busy' and key = '7' for update`,
    async () => expect(await remove('busy')).toMatchObject({ status: 503 }),
  );
  expect(await api.call('GET', '/v1/webhooks/busy', { as })).toMatchObject({ status: 200 });
  expect(await queued('busy')).toBeGreaterThanOrEqual(1);
  expect(await remove('busy')).toMatchObject({ status: 200, body: { id: 'busy' } });
  expect(await queued('busy')).toBe(0);
  expect(await remove('busy')).toMatchObject({ status: 404, body: { code: 'webhook_not_found' } });
});

it('what is being published to a webhook while it is deleted isn’t left behind', async () => {
  const region = await addRegion(hot);
  await put('hook');
  await addRides(hot, region, 3);
  const answer = await leases.acquire({ resource: 'publisher', holder: 'h', ttlMs: 60_000 }, randomUUID());
  if (answer.refused !== null) throw new Error(answer.refused);
  const { resource, fence } = answer.leases[0]!;
  await cold`select open_outbox(${region}::smallint, ${resource}, ${fence}::bigint, '1')`;
  await during(
    (sql) =>
      // Transactions of other tests' databases may hold the events up.
      vi.waitFor(
        async () => {
          await sql`select publish_events(${region}::smallint, ${resource}, ${fence}::bigint, 10)`;
          const [row] = await sql`select count(*)::int as n from work_items where queue = 'cabrank/webhook/hook'`;
          expect(row).toEqual({ n: 3 });
        },
        { timeout: 4_000 },
      ),
    async (end) => {
      const removed = remove('hook');
      const waits = vi.waitFor(async () =>
        expect(
          await hot`select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        ).toHaveLength(1),
      );
      await Promise.race([removed, waits]);
      end();
      expect(await removed).toMatchObject({ status: 200 });
    },
  );
  expect(await queued('hook')).toBe(0);
});

const putFor = (types: readonly string[]) =>
  api.call('PUT', '/v1/webhooks/w', { as, body: { url: 'http://127.0.0.1/', types } });

it('a webhook for a type of event that there isn’t is refused by its place, and isn’t made', async () => {
  expect(await putFor(['ride_completed', 'no_such_type'])).toMatchObject({
    status: 400,
    body: { code: 'invalid_request', errors: [{ path: 'body.types.1' }] },
  });
  expect(await api.call('GET', '/v1/webhooks/w', { as })).toMatchObject({ status: 404 });
});

it('one for all types that there are is made', async () => {
  expect(await putFor(RIDE_EVENT_TYPES)).toMatchObject({ status: 201, body: { types: RIDE_EVENT_TYPES } });
});
