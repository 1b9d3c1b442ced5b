import { randomUUID } from 'node:crypto';
import { afterAll, expect, it, vi } from 'vitest';
import type { Sql } from '../../src/database/connection.ts';
import { NoPlaceError } from '../../src/resource-leases/queue.ts';
import { DatabaseLeases } from '../../src/resource-leases/database-leases.ts';
import { breakLease } from '../../src/resource-leases/transitions.ts';
import { startLeases } from './harness.ts';

const test = await startLeases();
afterAll(() => test[Symbol.asyncDispose]());
const { leases, granted, acquire } = test;
const { cold } = test.database;
const name = (): string => `resource ${randomUUID()}`;

/** Resolves once so many queue for the resource. */
const queued = (resource: string, count: number): Promise<void> =>
  vi.waitFor(async () => {
    const [row] = await cold<{ n: number }[]>`
      select count(*)::int as n from resource_lease_tickets where resource = ${resource}`;
    expect(row!.n).toBe(count);
  });

function waitFor(of: DatabaseLeases, resource: string, holder: string, priority = 0, signal?: AbortSignal) {
  return of.acquire({ resource, holder, ttlMs: 60_000, waitMs: 30_000, priority }, randomUUID(), signal);
}

it('whoever waits is served on release, first come first served, across processes', async () => {
  const resource = name();
  const other = test.another();
  let current = await granted({ resource });
  const served: string[] = [];
  const waits: Promise<unknown>[] = [];
  for (let i = 0; i < 10; i++) {
    const waiting = waitFor(i % 2 === 0 ? leases : other, resource, `waiter ${i}`).then((answer) => {
      if (answer.refused !== null) throw new Error(answer.refused);
      current = answer.leases[0]!;
      served.push(current.holder);
    });
    waits.push(waiting);
    await queued(resource, i + 1);
  }
  for (const waiting of waits) {
    await leases.release([current]);
    await waiting;
  }
  expect(served).toEqual(Array.from({ length: 10 }, (_, i) => `waiter ${i}`));
});

it('a higher priority goes first, and a newcomer doesn’t overtake those who wait', async () => {
  const resource = name();
  const held = await granted({ resource });
  const low = waitFor(leases, resource, 'low', -1);
  await queued(resource, 1);
  const high = waitFor(leases, resource, 'high', 1);
  await queued(resource, 2);
  await leases.release([held]);
  const first = await high;
  expect(first).toMatchObject({ refused: null, leases: [{ holder: 'high' }] });
  if (first.refused === null) await leases.release(first.leases);
  // Between the release and the next grant somebody without a place asks: not before those who wait.
  const newcomer = acquire({ resource, holder: 'newcomer', priority: -1 });
  expect(await low).toMatchObject({ refused: null, leases: [{ holder: 'low' }] });
  expect(await newcomer).toMatchObject({ refused: 'held' });
});

it('waiting ends with who holds it when time is up, and the place is given up', async () => {
  const resource = name();
  await granted({ resource, holder: 'me' });
  const answer = await acquire({ resource, waitMs: 50 });
  expect(answer).toMatchObject({ refused: 'held', held: [{ holder: 'me' }] });
  await queued(resource, 0);
});

it('whoever hangs up leaves the queue, and is granted nothing', async () => {
  const resource = name();
  const held = await granted({ resource });
  const gone = new AbortController();
  const first = waitFor(leases, resource, 'gone', 0, gone.signal);
  await queued(resource, 1);
  const second = waitFor(leases, resource, 'next');
  await queued(resource, 2);
  gone.abort(new Error('hung up'));
  await expect(first).rejects.toThrow('hung up');
  await leases.release([held]);
  expect(await second).toMatchObject({ refused: null, leases: [{ holder: 'next', fence: 2 }] });
});

it('an end that nobody declares is noticed when it comes', async () => {
  const resource = name();
  await granted({ resource, ttlMs: 400 });
  expect(await acquire({ resource, waitMs: 20_000 })).toMatchObject({ refused: null, leases: [{ fence: 2 }] });
});

it('a break calls those who wait', async () => {
  const resource = name();
  await granted({ resource });
  const waiting = waitFor(leases, resource, 'next');
  await queued(resource, 1);
  await breakLease(test.database.hot, { resource }, 'olga');
  expect(await waiting).toMatchObject({ refused: null });
});

it('the ticket of a process that is gone holds nobody up for longer than its patience', async () => {
  const resource = name();
  const held = await granted({ resource });
  await cold`insert into resource_lease_tickets (resource, ticket, priority, seen_at)
    values (${resource}, 0, 100, clock_timestamp())`;
  const waiting = waitFor(leases, resource, 'next');
  await queued(resource, 2);
  await leases.release([held]);
  await cold`update resource_lease_tickets set seen_at = seen_at - interval '3 seconds' where ticket = 0`;
  expect(await waiting).toMatchObject({ refused: null, leases: [{ holder: 'next' }] });
});

it('all of several waits until the last of them is free', async () => {
  const [a, b] = [name(), name()];
  const [heldA, heldB] = [await granted({ resource: a }), await granted({ resource: b })];
  const waiting = acquire({ allOf: [a, b], waitMs: 30_000 });
  await queued(b, 1);
  await leases.release([heldA]);
  await leases.release([heldB]);
  expect(await waiting).toMatchObject({ refused: null, leases: [{ resource: a }, { resource: b }] });
});

it('any of several takes the first that is released', async () => {
  const [a, b] = [name(), name()];
  await granted({ resource: a });
  const heldB = await granted({ resource: b });
  const waiting = acquire({ anyOf: [a, b], waitMs: 30_000 });
  await queued(b, 1);
  await leases.release([heldB]);
  expect(await waiting).toMatchObject({ refused: null, leases: [{ resource: b }] });
  await queued(a, 0);
});

it('closing sends those who wait elsewhere: their time isn’t up, so nobody says that others have it', async () => {
  const closing = test.another();
  const resource = name();
  const held = await granted({ resource, holder: 'me' });
  const waiting = waitFor(closing, resource, 'waiter');
  const sent = waiting.catch((error: unknown) => error);
  await queued(resource, 1);
  await closing.close();
  expect(await sent).toBeInstanceOf(NoPlaceError);
  await queued(resource, 0);
  const elsewhere = waitFor(leases, resource, 'waiter');
  await queued(resource, 1);
  await leases.release([held]);
  expect(await elsewhere).toMatchObject({ refused: null, leases: [{ holder: 'waiter' }] });
});

it('waiters cost two statements a second and no more, however many they are', async () => {
  let statements = 0;
  const counting = (sql: Sql): Sql =>
    new Proxy(sql, {
      apply(target, self, args) {
        // Fragments inside of a statement are calls too: none is used here.
        statements++;
        return Reflect.apply(target as never, self, args) as never;
      },
    });
  const { hot, cold: others } = test.database;
  const database = { ...test.database, hot: counting(hot), cold: counting(others) };
  const watched = new DatabaseLeases({ database, secret: 'a secret of the tests' });
  const resource = name();
  await granted({ resource });
  const gone = new AbortController();
  const waits = Array.from({ length: 50 }, () => waitFor(watched, resource, 'waiter', 0, gone.signal).catch(() => {}));
  await queued(resource, 50);
  // The first of them looks once more, with its ticket.
  await vi.waitFor(() => expect(statements).toBeGreaterThan(50));
  await cold`select pg_sleep(0.2)`;
  const before = statements;
  await cold`select pg_sleep(2)`;
  expect(statements - before).toBeGreaterThanOrEqual(2);
  expect(statements - before).toBeLessThanOrEqual(5);
  gone.abort(new Error('enough'));
  await Promise.all(waits);
  await watched.close();
});
