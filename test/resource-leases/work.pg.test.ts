import { randomUUID } from 'node:crypto';
import { afterAll, expect, it } from 'vitest';
import type { ClaimedWork, NewWork } from '../../src/client/leases/work.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { DatabaseWork } from '../../src/resource-leases/work.ts';
import { createTestDatabase } from '../support/database.ts';

const stack = new AsyncDisposableStack();
const { url } = stack.use(await createTestDatabase());
const { hot: sql } = stack.use(connectDatabase(url, { hotConnections: 12 }));
const lost: string[] = [];
const work = new DatabaseWork(sql, { lost: (queue) => lost.push(queue) });
afterAll(() => stack.disposeAsync());

const TTL_MS = 60_000;
const next = (queue: string, max = 10) => work.next(queue, { max, ttlMs: TTL_MS });
const keysOf = (claims: readonly { key: string }[]) => claims.map(({ key }) => key);
/** As if so much time had passed. */
const letPass = (queue: string, ms: number) =>
  sql`update work_items set ready_at = ready_at - ${`${ms} milliseconds`}::interval where queue = ${queue} and ready_at is not null`;
async function addAll(queue: string, all: readonly NewWork[]): Promise<void> {
  for (let from = 0; from < all.length; from += 100) {
    const some = all.slice(from, from + 100);
    if ((await work.add(queue, some)) !== some.length) throw new Error('some were known');
  }
}
const items = (count: number, group?: string) =>
  Array.from({ length: count }, (_, i) => ({ key: `k${i}`, payload: { i }, ...(group !== undefined && { group }) }));

it('ten workers at once do every item once', async () => {
  const queue = randomUUID();
  await addAll(queue, items(200));
  const done: string[] = [];
  const worker = async (): Promise<void> => {
    for (let tries = 0; tries < 100; tries++) {
      const claims = await next(queue, 5);
      if (claims.length === 0) return;
      for (const { refused } of await work.complete(claims)) expect(refused).toBeNull();
      done.push(...keysOf(claims));
    }
  };
  await Promise.all(Array.from({ length: 10 }, worker));
  // Whoever found all that is ready locked by others went home early; nothing is left for the last.
  await worker();
  expect(done.toSorted()).toEqual(keysOf(items(200)).toSorted());
});

it('workers at once do every group in its order, and none of it waits for a claim to run out', async () => {
  const queue = randomUUID();
  const groups = 30;
  await addAll(
    queue,
    items(300).map((item, i) => ({ ...item, group: `g${i % groups}` })),
  );
  const done = Array.from({ length: groups }, (): number[] => []);
  const isDone = () => done.flat().length === 300;
  const worker = async (): Promise<void> => {
    for (let tries = 0; tries < 2_000 && !isDone(); tries++) {
      const claims = await next(queue, 5);
      for (const { payload } of claims) {
        const { i } = payload as { i: number };
        done[i % groups]!.push(i);
      }
      if (claims.length > 0) for (const { refused } of await work.complete(claims)) expect(refused).toBeNull();
    }
  };
  await Promise.all(Array.from({ length: 6 }, worker));
  expect(done).toEqual(done.map((_, g) => Array.from({ length: 10 }, (__, nth) => g + nth * groups)));
});

it('a key that is known adds nothing, also when it is done', async () => {
  const queue = randomUUID();
  expect(await work.add(queue, [{ key: 'a', payload: 1 }])).toBe(1);
  expect(
    await work.add(queue, [
      { key: 'a', payload: 2 },
      { key: 'b', payload: 3 },
    ]),
  ).toBe(1);
  const claims = await next(queue);
  expect(claims.map(({ payload }) => payload)).toEqual([1, 3]);
  await work.complete(claims);
  expect(await work.add(queue, [{ key: 'a', payload: 4 }])).toBe(0);
});

it('a group goes one at a time, in its order, and holds up no other', async () => {
  const queue = randomUUID();
  await work.add(queue, [
    ...items(3, 'g'),
    { key: 'other', payload: null, group: 'h' },
    { key: 'free', payload: null },
  ]);
  const first = await next(queue);
  expect(keysOf(first)).toEqual(['k0', 'other', 'free']);
  expect(await next(queue)).toEqual([]);
  await work.complete(first.slice(0, 1));
  const second = await next(queue);
  expect(keysOf(second)).toEqual(['k1']);
  await work.fail(second[0]!, { error: 'no', retryInMs: 10_000, attemptsMax: 5 });
  expect(await next(queue)).toEqual([]);
  await letPass(queue, 10_000);
  const again = await next(queue);
  expect(again).toMatchObject([{ key: 'k1', attempt: 2 }]);
  await work.complete(again);
  expect(keysOf(await next(queue))).toEqual(['k2']);
});

it('a claim that is over is taken by the next, and whoever lost it is refused and counted', async () => {
  const queue = randomUUID();
  await work.add(queue, items(1));
  const [stale] = await next(queue);
  await letPass(queue, TTL_MS);
  const [fresh] = await next(queue);
  expect(fresh).toMatchObject({ key: 'k0', attempt: 2 });
  lost.length = 0;
  expect(await work.complete([stale!])).toEqual([{ refused: 'claim_lost' }]);
  expect(await work.heartbeat([stale!], TTL_MS)).toEqual([{ refused: 'claim_lost' }]);
  expect(await work.fail(stale!, { error: 'late', retryInMs: 0, attemptsMax: 9 })).toMatchObject({
    refused: 'claim_lost',
  });
  expect(lost).toEqual([queue, queue, queue]);
  expect(await work.complete([fresh!])).toEqual([{ refused: null }]);
  expect(await work.complete([fresh!])).toEqual([{ refused: null }]);
});

it('an over claim can’t be completed, though nobody has taken the item', async () => {
  const queue = randomUUID();
  await work.add(queue, items(1));
  const claims = await next(queue);
  await letPass(queue, TTL_MS);
  expect(await work.complete(claims)).toEqual([{ refused: 'claim_lost' }]);
});

it('a heartbeat keeps the claim', async () => {
  const queue = randomUUID();
  await work.add(queue, items(1));
  const claims = await next(queue);
  await letPass(queue, TTL_MS - 1_000);
  expect(await work.heartbeat(claims, TTL_MS)).toEqual([{ refused: null }]);
  await letPass(queue, TTL_MS - 1_000);
  expect(await next(queue)).toEqual([]);
  expect(await work.complete(claims)).toEqual([{ refused: null }]);
});

it('attempts are bounded: then it is dead, its group goes on, and it can be revived', async () => {
  const queue = randomUUID();
  await work.add(queue, items(2, 'g'));
  for (let attempt = 1; attempt <= 3; attempt++) {
    const [claim] = await next(queue);
    expect(claim).toMatchObject({ key: 'k0', attempt });
    const outcome = await work.fail(claim!, { error: `no ${attempt}`, retryInMs: 0, attemptsMax: 3 });
    expect(outcome).toEqual({ refused: null, dead: attempt === 3 });
  }
  expect(keysOf(await next(queue))).toEqual(['k1']);
  const [revived] = await sql<{ n: number }[]>`select revive_work(${queue}, null, 10) as n`;
  expect(revived!.n).toBe(1);
  expect(await next(queue)).toMatchObject([{ key: 'k0', attempt: 1 }]);
});

it('what is put back costs no attempt', async () => {
  const queue = randomUUID();
  await work.add(queue, items(1));
  expect(await work.putBack(await next(queue))).toEqual([{ refused: null }]);
  expect(await next(queue)).toMatchObject([{ attempt: 1 }]);
});

it('what is delayed isn’t ready before', async () => {
  const queue = randomUUID();
  await work.add(queue, [{ key: 'later', payload: 1, delayMs: 5_000 }]);
  expect(await next(queue)).toEqual([]);
  await letPass(queue, 5_000);
  expect(keysOf(await next(queue))).toEqual(['later']);
});

it('a stuck group of thousands isn’t walked again and again', async () => {
  const queue = randomUUID();
  await addAll(queue, items(1_000, 'stuck'));
  const [head] = await next(queue, 1);
  await work.fail(head!, { error: 'no', retryInMs: 600_000, attemptsMax: 9 });
  await work.add(queue, [{ key: 'free', payload: 1 }]);
  const found: string[] = [];
  for (let tries = 0; tries < 60 && found.length === 0; tries++) found.push(...keysOf(await next(queue, 10)));
  expect(found).toEqual(['free']);
  const [row] = await sql<{ n: number }[]>`
    select count(*)::int as n from work_items where queue = ${queue} and ready_at <= clock_timestamp()`;
  expect(row!.n).toBe(0);
});

const endings = {
  'is put back': (claim: ClaimedWork) => work.putBack([claim]),
  fails: (claim: ClaimedWork) => work.fail(claim, { error: 'no', retryInMs: 1_000, attemptsMax: 9 }),
  'is never heard of again': () => Promise.resolve(),
};

it.each(Object.entries(endings))(
  'the first of a group that %s is next when nobody asked meanwhile, however many wait for it, and holds up no other',
  async (_, end) => {
    const queue = randomUUID();
    await addAll(queue, items(1_000, 'g'));
    const [head] = await next(queue, 10);
    await end(head!);
    // The first is ready again, later than all the others, whom nobody has put off behind it yet.
    await letPass(queue, TTL_MS);
    await work.add(queue, [{ key: 'free', payload: 1 }]);
    const again = await next(queue, 10);
    expect(keysOf(again)).toEqual(['k0']);
    const found: string[] = [];
    for (let tries = 0; tries < 60 && found.length === 0; tries++) found.push(...keysOf(await next(queue, 10)));
    expect(found).toEqual(['free']);
  },
);

it('the next of a group is called by an end that somebody who looks at it meanwhile doesn’t see yet', async () => {
  const queue = randomUUID();
  const [head, other] = items(2, 'g');
  await work.add(queue, [head!]);
  const first = await next(queue);
  await work.add(queue, [other!]);
  await sql.begin(async (tx) => {
    const { key, token } = first[0]!;
    await tx`select from complete_work(${[queue]}::text[], ${[key]}::text[], ${[token]}::text[])`;
    expect(await next(queue)).toEqual([]);
  });
  expect(keysOf(await next(queue))).toEqual(['k1']);
});

it('a failure is told whatever its error says', async () => {
  const queue = randomUUID();
  await work.add(queue, [{ key: 'a', payload: 1 }]);
  const [claim] = await next(queue);
  const failure = { error: 'a\0b \ud800', retryInMs: 0, attemptsMax: 1 };
  expect(await work.fail(claim!, failure)).toEqual({ refused: null, dead: true });
  const [row] = await sql`select last_error from work_items where queue = ${queue}`;
  expect(row!['last_error']).toBe('a\u{FFFD}b \u{FFFD}');
});

/** How many entries of the indexes of work are read. */
async function entriesRead(one: Sql, act: () => Promise<unknown>): Promise<number> {
  const count = async (): Promise<number> => {
    await one`select pg_stat_force_next_flush()`;
    const [row] = await one<{ read: number }[]>`
      select sum(idx_tup_read)::int as read from pg_stat_user_indexes where relname = 'work_items'`;
    return row!.read;
  };
  const before = await count();
  await act();
  return (await count()) - before;
}

it('of thousands of items that are put off, or done since yesterday, none is read', async () => {
  const queue = randomUUID();
  await using one = connectDatabase(url, { hotConnections: 1 });
  const far = items(2_000).map((item) => ({ ...item, delayMs: 3_600_000 }));
  await addAll(queue, [...far, { key: 'now', payload: null }]);
  const taking = new DatabaseWork(one.hot, { lost: () => {} });
  let keys: string[] = [];
  const read = await entriesRead(one.hot, async () => {
    keys = keysOf(await taking.next(queue, { max: 10, ttlMs: TTL_MS }));
  });
  expect(keys).toEqual(['now']);
  expect(read).toBeLessThan(100);

  await sql`update work_items set ready_at = null, done_at = clock_timestamp() where queue = ${queue}`;
  expect(await entriesRead(one.hot, () => one.hot`select drop_done_work(1000)`)).toBeLessThan(100);
});

it('a rush after an analysis in a quiet hour doesn’t walk along all that is ready', async () => {
  await using server = await createTestDatabase();
  await using one = connectDatabase(server.url, { hotConnections: 1 });
  const rushed = new DatabaseWork(one.hot, { lost: () => {} });
  const grouped = (from: number) =>
    Array.from({ length: 100 }, (_, i) => ({ key: `k${from + i}`, payload: null, group: `g${from + i}` }));
  for (let from = 0; from < 5_000; from += 100) await rushed.add('q', grouped(from));
  await one.hot`update work_items set ready_at = null, done_at = clock_timestamp()`;
  await one.cold`vacuum analyze work_items`;
  for (let from = 5_000; from < 8_000; from += 100) await rushed.add('q', grouped(from));
  const read = await entriesRead(one.hot, async () => {
    const claims = await rushed.next('q', { max: 10, ttlMs: TTL_MS });
    await rushed.heartbeat(claims, TTL_MS);
    for (const { refused } of await rushed.complete(claims)) expect(refused).toBeNull();
  });
  expect(read).toBeLessThan(1_000);
});
