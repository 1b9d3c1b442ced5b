import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Redis } from 'ioredis';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import type { WorkQueue } from '../../src/client/leases/work.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { Breaker } from '../../src/outbox/breaker.ts';
import { type Deliveries, deliverNext, startDeliveries } from '../../src/outbox/deliveries.ts';
import { publishAll } from '../../src/outbox/publisher.ts';
import { newSecret } from '../../src/outbox/signature.ts';
import { openStream, type StreamedEvent } from '../../src/outbox/stream.ts';
import { DatabaseLeases } from '../../src/resource-leases/database-leases.ts';
import { DatabaseWork } from '../../src/resource-leases/work.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { addRides, assign, openCity } from '../support/city.ts';
import { describeWithRedis } from '../support/describe-with-redis.ts';
import { startRedis } from '../support/redis.ts';

const city = await openCity(10);
const { sql, region } = city;
const leases = new DatabaseLeases({ database: city.database, secret: 'a secret of the tests' });
const metrics = createMetrics();
const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const work = new DatabaseWork(sql);
const place = { id: 'berlin', number: region };
const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) server.close();
  await sql`delete from webhooks`;
  await sql`delete from work_items`;
  // Each test has a lease of its own, with fences from 1.
  await sql`delete from outbox_cursors`;
});
afterAll(async () => {
  await leases.close();
  await city[Symbol.asyncDispose]();
});

interface Delivered {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly event: StreamedEvent;
}

/** A receiver whose answers the test decides; what it got, in order, and how many wait for their answer. */
async function receiver(answer: (event: StreamedEvent) => number | Promise<number> = () => 200) {
  const got: Delivered[] = [];
  let asking = 0;
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    asking += 1;
    response.once('close', () => (asking -= 1));
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    const respond = async (): Promise<void> => {
      const body = Buffer.concat(chunks).toString();
      const event = JSON.parse(body) as StreamedEvent;
      const status = await answer(event);
      if (status < 300) got.push({ headers: request.headers, body, event });
      response.writeHead(status).end();
    };
    request.on('end', () => void respond());
  }).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  const endpoint = {
    id: `hook-${randomUUID()}`,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/events`,
    secret: newSecret(),
  };
  await sql`insert into webhooks (id, url, secret) values (${endpoint.id}, ${endpoint.url}, ${endpoint.secret})`;
  return { endpoint, got, asking: () => asking };
}
const hanging = () => receiver(() => new Promise<never>(() => {}));

/** As the service delivers, by itself; `next` of the work may be another. */
function delivering(next: WorkQueue['next'] = (queue, options) => work.next(queue, options)) {
  const deliveries: Deliveries = startDeliveries({
    sql,
    work: Object.assign(new DatabaseWork(sql), { next }),
    metrics,
    log: silent,
  });
  return { ...deliveries, [Symbol.asyncDispose]: deliveries.stop };
}

async function publisher() {
  const answer = await leases.acquire({ resource: `outbox ${randomUUID()}`, holder: 'h', ttlMs: 60_000 }, randomUUID());
  if (answer.refused !== null) throw new Error(answer.refused);
  return answer.leases[0]!;
}

const deps = { sql, stream: null, metrics, log: silent, onQueued: () => {} };
/** Publishes until so many deliveries were queued: a transaction of another test's database may hold them up. */
const publish = (lease: { resource: string; fence: number }, count: number): Promise<void> =>
  vi.waitFor(
    async () => {
      await publishAll(deps, place, lease);
      const [row] = await sql<{ n: number }[]>`select count(*)::int as n from work_items`;
      expect(row!.n).toBeGreaterThanOrEqual(count);
    },
    { timeout: 20_000 },
  );
const parts = { sql, work, metrics, log: silent };
const never = new AbortController().signal;
const deliverAll = async (
  endpoint: { id: string; url: string; secret: string },
  breaker = new Breaker(),
): Promise<void> => {
  for (let batch = 0; batch < 100; batch++) if ((await deliverNext(parts, endpoint, breaker, never)) === 0) return;
};
/** Retries are due at once. */
const hurry = () => sql`update work_items set ready_at = clock_timestamp() where ready_at is not null`;
const seqs = (got: readonly Delivered[], rideId: string) =>
  got.filter(({ event }) => event.rideId === rideId).map(({ event }) => event.seq);

async function wholeRide(driverId: string): Promise<string> {
  const { rideId } = await assign(city, driverId);
  for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
    await transitions.advanceRides(sql, region, [{ rideId, driverId, status }], true);
  return rideId;
}

it('every event of a ride arrives once and in order, signed', async () => {
  const { endpoint, got } = await receiver();
  const rides = await Promise.all(['d1', 'd2', 'd3'].map(wholeRide));
  const lease = await publisher();
  await publish(lease, 18);
  await publishAll(deps, place, lease);
  await deliverAll(endpoint);
  for (const rideId of rides) expect(seqs(got, rideId)).toEqual([1, 2, 3, 4, 5, 6]);
  const [first] = got;
  const id = first!.headers['webhook-id'] as string;
  const timestamp = first!.headers['webhook-timestamp'] as string;
  const key = Buffer.from(endpoint.secret.slice('whsec_'.length), 'base64');
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.${first!.body}`).digest('base64');
  expect(first!.headers['webhook-signature']).toBe(`v1,${expected}`);
  expect(first!.event).toMatchObject({ id, regionId: 'berlin', type: 'ride_requested', seq: 1 });
});

it('a webhook hears of what happened from its creation on, and of the types it wants', async () => {
  await wholeRide('d1');
  const { endpoint, got } = await receiver();
  await sql`update webhooks set types = ${['ride_completed']} where id = ${endpoint.id}`;
  const rideId = await wholeRide('d2');
  await publish(await publisher(), 1);
  await deliverAll(endpoint);
  expect(got.map(({ event }) => [event.rideId, event.type])).toEqual([[rideId, 'ride_completed']]);
});

it('a receiver that fails holds up its ride and no other, and gets the rest in order when it is back', async () => {
  let isBroken = true;
  let sick = '';
  const { endpoint, got } = await receiver(({ rideId }) => (isBroken && rideId === sick ? 500 : 200));
  sick = await wholeRide('d1');
  const well = await wholeRide('d2');
  await publish(await publisher(), 12);
  await deliverAll(endpoint);
  expect(seqs(got, sick)).toEqual([]);
  expect(seqs(got, well)).toEqual([1, 2, 3, 4, 5, 6]);
  isBroken = false;
  await hurry();
  await deliverAll(endpoint);
  expect(seqs(got, sick)).toEqual([1, 2, 3, 4, 5, 6]);
});

it('what can’t be delivered is dead after 15 tries, its ride goes on, and it can be delivered again', async () => {
  let isBroken = true;
  const { endpoint, got } = await receiver(({ seq }) => (isBroken && seq === 1 ? 410 : 200));
  const [rideId] = await addRides(sql, region, 1);
  await transitions.cancelRides(sql, region, [{ rideId: rideId!, riderId: null, source: 'rider', reason: 'x' }], true);
  await publish(await publisher(), 2);
  for (let attempt = 0; attempt < 15; attempt++) {
    await deliverAll(endpoint);
    await hurry();
  }
  await deliverAll(endpoint);
  expect(seqs(got, rideId!)).toEqual([2]);
  const dead = await sql`select key, attempts, last_error from work_items where dead_at is not null`;
  expect(dead).toMatchObject([{ key: `${rideId}/1`, attempts: 15, last_error: 'answered 410' }]);
  isBroken = false;
  await sql`select revive_work(${`cabrank/webhook/${endpoint.id}`}, null, 10)`;
  await deliverAll(endpoint);
  expect(seqs(got, rideId!)).toEqual([2, 1]);
});

it('an endpoint that keeps failing is left alone for a while, then tried with one', async () => {
  let nowMs = 0;
  const breaker = new Breaker(() => nowMs);
  let asked = 0;
  let isBroken = true;
  const { endpoint, got } = await receiver(() => {
    asked++;
    return isBroken ? 503 : 200;
  });
  await addRides(sql, region, 30);
  await publish(await publisher(), 30);
  await deliverAll(endpoint, breaker);
  expect(breaker.state).toBe('open');
  const soFar = asked;
  expect(soFar).toBeLessThanOrEqual(16);
  await hurry();
  await deliverAll(endpoint, breaker);
  expect(asked).toBe(soFar);
  // However many were under way when it was left alone.
  nowMs += 5_000;
  expect(breaker.state).toBe('half_open');
  await deliverNext(parts, endpoint, breaker, never);
  expect(asked).toBe(soFar + 1);
  isBroken = false;
  expect(breaker.state).toBe('open');
  nowMs += 10_000;
  expect(breaker.state).toBe('half_open');
  await hurry();
  await deliverAll(endpoint, breaker);
  expect(got).toHaveLength(30);
  expect(breaker.state).toBe('closed');
});

it('a receiver that doesn’t answer holds up no other webhook', async () => {
  const stuck = await hanging();
  const { got } = await receiver();
  await using deliveries = delivering();
  const lease = await publisher();
  const [first] = await addRides(sql, region, 1);
  await publish(lease, 2);
  deliveries.wake();
  await vi.waitFor(() => expect([got.length, stuck.asking()]).toEqual([1, 1]), { timeout: 5_000 });
  const [second] = await addRides(sql, region, 1);
  await publish(lease, 4);
  deliveries.wake();
  await vi.waitFor(() => expect(got.map(({ event }) => event.rideId)).toEqual([first, second]), { timeout: 5_000 });
});

it('while claims for one webhook fail another has its 16 deliveries under way and no more', async () => {
  const sick = await hanging();
  const stuck = await hanging();
  await addRides(sql, region, 40);
  await publish(await publisher(), 80);
  let failures = 0;
  await using deliveries = delivering(async (queue, options) => {
    if (!queue.endsWith(sick.endpoint.id)) return work.next(queue, options);
    failures += 1;
    throw new Error('no claim for you');
  });
  for (let seen = 1; seen <= 4; seen++)
    await vi.waitFor(
      () => {
        deliveries.wake();
        expect(failures).toBeGreaterThanOrEqual(seen);
      },
      { timeout: 5_000 },
    );
  await vi.waitFor(() => expect(stuck.asking()).toBeGreaterThanOrEqual(16), { timeout: 5_000 });
  const claimed = await sql`select id from work_items where token_hash is not null`;
  expect([claimed.length, stuck.asking(), sick.asking()]).toEqual([16, 16, 0]);
});

it('what is under way when deliveries stop is broken off and put back at once, as if it had never been tried', async () => {
  const stuck = await hanging();
  await addRides(sql, region, 20);
  await publish(await publisher(), 20);
  const deliveries = delivering();
  await vi.waitFor(() => expect(stuck.asking()).toBe(16), { timeout: 5_000 });
  await deliveries.stop();
  await vi.waitFor(() => expect(stuck.asking()).toBe(0));
  const due = await sql`select id from work_items
    where ready_at <= clock_timestamp() and attempts = 0 and token_hash is null and last_error is null`;
  expect(due).toHaveLength(20);
});

it('a webhook that is made is delivered to, one that changes is where it says, one that is gone has no series', async () => {
  const before = await receiver();
  const after = await receiver();
  await sql`delete from webhooks where id = ${after.endpoint.id}`;
  await using deliveries = delivering();
  const lease = await publisher();
  const series = async () => (await metrics.webhookBreakers.get()).values.map(({ labels }) => labels['webhook']);
  await addRides(sql, region, 1);
  await publish(lease, 1);
  await vi.waitFor(() => expect(before.got).toHaveLength(1), { timeout: 5_000 });
  expect(await series()).toContain(before.endpoint.id);

  await sql`update webhooks set url = ${after.endpoint.url} where id = ${before.endpoint.id}`;
  // The next look knows of it.
  await vi.waitFor(
    async () => {
      await addRides(sql, region, 1);
      await publishAll(deps, place, lease);
      deliveries.wake();
      expect(after.got.length).toBeGreaterThanOrEqual(1);
    },
    { timeout: 10_000 },
  );
  await sql`delete from webhooks`;
  deliveries.wake();
  await vi.waitFor(async () => expect(await series()).not.toContain(before.endpoint.id), { timeout: 5_000 });
});

it('a publisher that was superseded writes nothing more, and that is counted', async () => {
  const { endpoint } = await receiver();
  await addRides(sql, region, 3);
  const stale = await publisher();
  await leases.release([stale]);
  const again = await leases.acquire({ resource: stale.resource, holder: 'next', ttlMs: 60_000 }, randomUUID());
  expect(again.refused).toBeNull();
  const before = await metrics.fenceRefusals.get();
  await publishAll(deps, place, stale);
  expect(await sql`select key from work_items where queue = ${`cabrank/webhook/${endpoint.id}`}`).toEqual([]);
  const after = await metrics.fenceRefusals.get();
  expect((after.values[0]?.value ?? 0) - (before.values[0]?.value ?? 0)).toBe(1);
  if (again.refused === null) await publish(again.leases[0]!, 3);
  expect(await sql`select key from work_items where queue = ${`cabrank/webhook/${endpoint.id}`}`).toHaveLength(3);
});

it('an event whose transaction is still under way is waited for, and nothing overtakes it', async () => {
  const { endpoint, got } = await receiver();
  const [first] = await addRides(sql, region, 1);
  const lease = await publisher();
  await publish(lease, 1);
  const open = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  const slow = city.database.cold.begin(async (tx) => {
    await tx`select cancel_rides(${region}::smallint, ${[first!]}::uuid[], ${['rider-1']}::text[], ${['rider']}::text[], ${['x']}::text[], true)`;
    open.resolve();
    await end.promise;
  });
  await open.promise;
  const [later] = await addRides(sql, region, 1);
  await publishAll(deps, place, lease);
  await deliverAll(endpoint);
  expect(got.map(({ event }) => event.rideId)).toEqual([first]);
  end.resolve();
  await slow;
  await publish(lease, 3);
  await deliverAll(endpoint);
  expect(seqs(got, first!)).toEqual([1, 2]);
  expect(seqs(got, later!)).toEqual([1]);
});

describeWithRedis('the stream in Redis', () => {
  const entries = async (redis: Redis): Promise<StreamedEvent[]> => {
    const read = await redis.xrange('cabrank:{berlin}:events', '-', '+');
    return read.map(([, [, event]]) => JSON.parse(event!) as StreamedEvent);
  };

  it('gets every event in order; what it missed while it was away comes later, and a superseded publisher writes nothing', async () => {
    await using server = await startRedis();
    await using stream = openStream(server.url, () => {});
    const redis = new Redis(server.url);
    redis.on('error', () => {});
    const lease = await publisher();
    const streaming = { ...deps, stream };
    // Begins the stream: from now on.
    await publishAll(streaming, place, lease);
    const rideId = await wholeRide('d1');
    const streamed = (client: Redis, by: typeof streaming, count: number) =>
      vi.waitFor(
        async () => {
          await publishAll(by, place, lease);
          const seen = (await entries(client)).filter((event) => event.rideId === rideId);
          expect(new Set(seen.map(({ seq }) => seq)).size).toBe(count);
          return seen;
        },
        { timeout: 20_000 },
      );
    const seen = await streamed(redis, streaming, 6);
    expect(seen.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(seen[0]).toMatchObject({ id: `${rideId}/1`, regionId: 'berlin', type: 'ride_requested' });

    await leases.release([lease]);
    const again = await leases.acquire({ resource: lease.resource, holder: 'next', ttlMs: 60_000 }, randomUUID());
    if (again.refused !== null) throw new Error(again.refused);
    const next = again.leases[0]!;
    await stream.append('berlin', next.fence, []);
    const length = (await entries(redis)).length;
    expect(await stream.append('berlin', lease.fence, seen)).toBe(false);
    expect((await entries(redis)).length).toBe(length);

    await server.stop();
    const [later] = await addRides(sql, region, 1);
    // Fails, or finds nothing to append yet; either way nothing is passed over.
    await publishAll(streaming, place, next).catch(() => {});
    redis.disconnect();

    await using fresh = await startRedis();
    await using freshStream = openStream(fresh.url, () => {});
    const reader = new Redis(fresh.url);
    await vi.waitFor(
      async () => {
        await publishAll({ ...deps, stream: freshStream }, place, next);
        expect((await entries(reader)).map((event) => event.rideId)).toContain(later);
      },
      { timeout: 20_000 },
    );
    reader.disconnect();
  }, 60_000);
});

it('a ride’s events stay in order though a transaction of a lower number wrote later', async () => {
  const { endpoint, got } = await receiver();
  const rideId = randomUUID();
  // As a set does that has its number before it locks the ride: 6 was written after 5, by an older transaction.
  await sql`select pg_current_xact_id()`;
  const [tx] = await sql<{ next: string }[]>`select pg_current_xact_id()::text as next`;
  const lower = (BigInt(tx!.next) - 1n).toString();
  await sql`insert into ride_events (region, ride_id, seq, type, at, tx) values
    (${region}, ${rideId}, 5, 'offer_made', now(), ${tx!.next}::text::xid8),
    (${region}, ${rideId}, 6, 'offer_accepted', now(), ${lower}::text::xid8)`;
  await sql`update webhooks set created_tx = '1'`;
  await sql`delete from outbox_cursors`;
  const lease = await publisher();
  await sql`select open_outbox(${region}::smallint, ${lease.resource}, ${lease.fence}::bigint, ${lower}::text::xid8)`;
  // One at a time, so that the two are of different batches.
  await vi.waitFor(
    async () => {
      await sql`select publish_events(${region}::smallint, ${lease.resource}, ${lease.fence}::bigint, 1)`;
      expect(await sql`select key from work_items where group_name = ${rideId}`).toHaveLength(2);
    },
    { timeout: 20_000, interval: 5 },
  );
  await deliverAll(endpoint);
  expect(seqs(got, rideId)).toEqual([5, 6]);
});

/** As in a cluster of lower numbers, into which a dump was read: what has a transaction's number is ahead by this much. */
async function moveToAnotherCluster(ahead: number): Promise<void> {
  const moved = (column: string) => sql.unsafe(`${column} = (${column}::text::bigint + ${ahead})::text::xid8`);
  await sql.begin(async (tx) => {
    await tx`update ride_events set ${moved('tx')}`;
    await tx`update outbox_cursors set ${moved('tx')}`;
    await tx`update webhooks set ${moved('created_tx')}`;
    await tx`select fence_floor()`;
    await tx`update epochs set system_identifier = 1`;
  });
}

it.each([
  { ahead: 10_000_000, hasStream: false },
  { ahead: 5_000, hasStream: true },
])(
  'after a dump was read into another cluster ($ahead behind) what wasn’t published is, then what happens, and nothing again',
  async ({ ahead, hasStream }) => {
    await sql`delete from ride_events`;
    const { endpoint, got } = await receiver();
    const streamed: string[] = [];
    const stream = {
      append: async (_region: string, _fence: number, events: readonly StreamedEvent[]) => {
        streamed.push(...events.map(({ rideId, seq }) => `${rideId} ${seq}`));
        return true;
      },
      [Symbol.asyncDispose]: async () => {},
    };
    const lease = await publisher();
    const [told, half] = await addRides(sql, region, 2);
    await publish(lease, 2);
    await sql`delete from work_items`;
    const cancel = (rideId: string) =>
      transitions.cancelRides(sql, region, [{ rideId, riderId: null, source: 'rider', reason: 'x' }], true);
    await cancel(half!);
    await moveToAnotherCluster(ahead);
    await cancel(told!);
    const [later] = await addRides(sql, region, 1);
    const expected = [`${half} 2`, `${later} 1`, `${told} 2`];
    await vi.waitFor(
      async () => {
        await publishAll({ ...deps, stream: hasStream ? stream : null }, place, lease);
        await deliverAll(endpoint);
        expect(got).toHaveLength(3);
      },
      { timeout: 20_000 },
    );
    const heard = got.map(({ event }) => `${event.rideId} ${event.seq}`);
    expect([heard[0], heard.toSorted()]).toEqual([`${half} 2`, expected.toSorted()]);

    // This cluster's numbers reach those of the other one: not for ten million.
    await sql.unsafe(`do $$ begin for n in 1..6000 loop perform pg_current_xact_id(); commit; end loop; end $$`);
    const [last] = await addRides(sql, region, 1);
    await vi.waitFor(
      async () => {
        await publishAll({ ...deps, stream: hasStream ? stream : null }, place, lease);
        await deliverAll(endpoint);
        expect(got.length).toBeGreaterThan(3);
      },
      { timeout: 20_000 },
    );
    expect(got.slice(3).map(({ event }) => event.rideId)).toEqual([last]);
    expect(streamed.toSorted()).toEqual(hasStream ? [...expected, `${last} 1`].toSorted() : []);
  },
);

it('the whole service delivers by itself', async () => {
  const { startTestService, openCity: openServiceCity, CITY } = await import('../support/service.ts');
  await using service = await startTestService();
  await openServiceCity(service, []);
  const got: StreamedEvent[] = [];
  const server = createServer((request, response) => {
    request.on('data', (chunk: Buffer) => got.push(JSON.parse(chunk.toString()) as StreamedEvent));
    request.on('end', () => response.end());
  }).listen(0, '127.0.0.1');
  servers.push(server);
  await once(server, 'listening');
  const call = async (
    method: string,
    path: string,
    role: 'ops' | 'rider',
    body: object,
  ): Promise<Record<string, unknown>> => {
    const authorization = `Bearer ${await service.token(role, 'someone')}`;
    const answer = await fetch(`${service.urlOf('api')}${path}`, {
      method,
      headers: { authorization, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    expect(answer.status).toBeLessThan(300);
    return (await answer.json()) as Record<string, unknown>;
  };
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  expect(await call('PUT', '/v1/webhooks/backend', 'ops', { url })).toMatchObject({
    secret: expect.stringMatching(/^whsec_/),
  });
  const { center } = CITY;
  const ride = await call('POST', '/v1/rides', 'rider', {
    regionId: 'city',
    riderId: 'someone',
    pickup: center,
    dropoff: center,
  });
  await call('POST', `/v1/rides/${ride['id'] as string}/cancel`, 'rider', { reasonCode: 'changed_mind' });
  await vi.waitFor(() => expect(got.map(({ type }) => type)).toEqual(['ride_requested', 'ride_cancelled']), {
    timeout: 20_000,
  });
}, 40_000);
