import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { startTestApi } from './harness.ts';

const api = await startTestApi();
afterAll(() => api[Symbol.asyncDispose]());

interface Granted {
  readonly resource: string;
  readonly token: string;
  readonly fence: number;
}

const acquire = (body: object, headers: Record<string, string> = {}) =>
  api.call('POST', '/v1/leases', { as: 'service:worker', body: { holder: 'h', ttlMs: 60_000, ...body }, headers });
const granted = async (body: object): Promise<Granted> => (await acquire(body)).body as Granted;
const post = (path: string, body: object, as: `service:${string}` | `ops:${string}` = 'service:worker') =>
  api.call('POST', `/v1/leases/${path}`, { as, body });

describe('acquiring', () => {
  it('answers 201 with the term', async () => {
    const answer = await acquire({ resource: 'a' });
    expect(answer.status).toBe(201);
    expect(answer.body).toEqual({
      resource: 'a',
      holder: 'h',
      token: expect.any(String),
      fence: 1,
      expiresInMs: expect.any(Number),
      renewAfterMs: expect.any(Number),
    });
  });

  it('a held one is 409 with who holds it and for how long', async () => {
    await acquire({ resource: 'held one', holder: 'me' });
    const answer = await acquire({ resource: 'held one' });
    expect(answer.status).toBe(409);
    expect(answer.body).toMatchObject({
      code: 'held',
      held: [{ resource: 'held one', holder: 'me', fence: 1, forMs: expect.any(Number) }],
    });
  });

  it('an idempotency key makes it repeatable, for its own caller alone', async () => {
    const headers = { 'idempotency-key': 'the-key' };
    const first = (await acquire({ resource: 'b' }, headers)).body as Granted;
    expect((await acquire({ resource: 'b' }, headers)).body).toMatchObject({ token: first.token, fence: 1 });
    const stranger = await api.call('POST', '/v1/leases', {
      as: 'service:stranger',
      body: { resource: 'b', holder: 'h', ttlMs: 60_000 },
      headers,
    });
    expect(stranger.body).toMatchObject({ code: 'held' });
  });

  it('an idempotency key that was used for another request is refused, and told nothing of what that one got', async () => {
    const headers = { 'idempotency-key': 'one-for-two' };
    await acquire({ resource: 'reused', holder: 'h1', ttlMs: 5_000 }, headers);
    const again = await acquire({ resource: 'reused', holder: 'h3', ttlMs: 77_777 }, headers);
    expect(again).toMatchObject({ status: 422, body: { code: 'idempotency_key_reused' } });
    expect(Object.keys(again.body as object).toSorted()).toEqual(['code', 'status', 'title', 'type']);
  });

  it('sets answer with all that was granted', async () => {
    await acquire({ resource: 'p' });
    expect((await acquire({ anyOf: ['p', 'q'] })).body).toMatchObject({ leases: [{ resource: 'q' }] });
    expect((await acquire({ allOf: ['p', 'r'] })).body).toMatchObject({ code: 'held' });
    expect((await acquire({ allOf: ['r', 's'] })).body).toMatchObject({
      leases: [{ resource: 'r' }, { resource: 's' }],
    });
  });

  it.each([
    [{ resource: 'x', ttlMs: 0 }, 'body.ttlMs'],
    [{ resource: 'x', ttlMs: -5 }, 'body.ttlMs'],
    [{ resource: 'x', ttlMs: 1.5 }, 'body.ttlMs'],
    [{ resource: 'x', ttlMs: 1e12 }, 'body.ttlMs'],
    [{ resource: 'x', ttlMs: '5000' }, 'body.ttlMs'],
    [{ resource: 'x', ttlMs: null }, 'body.ttlMs'],
    [{ resource: '' }, 'body.resource'],
    [{ resource: 'x'.repeat(10_000) }, 'body.resource'],
    [{ resource: 'a\0b' }, 'body.resource'],
    [{ resource: 'x', waitMs: 60_001 }, 'body.waitMs'],
    [{ resource: 'x', maxLifetimeMs: 1_000 }, 'body.maxLifetimeMs'],
    [{ resource: 'x', softTtlMs: 60_000 }, 'body.softTtlMs'],
    [{ resource: 'x', unknown: 1 }, 'body.unknown'],
    [{ anyOf: ['x', 'x'] }, 'body.anyOf'],
    [{ allOf: [] }, 'body.allOf'],
    [{}, 'body'],
    [{ resource: 'x', allOf: ['x'] }, 'body'],
  ])('%j is refused by its place: %s', async (body, path) => {
    const answer = await acquire(body);
    expect(answer.status).toBe(400);
    expect(answer.body).toMatchObject({ code: 'invalid_request', errors: [{ path }] });
    expect((await api.call('GET', '/v1/leases/x', { as: 'ops:olga' })).status).toBe(404);
  });
});

describe('claims', () => {
  it('one or a set is renewed and released, with a result each', async () => {
    const [a, b] = [await granted({ resource: 'c1' }), await granted({ resource: 'c2' })];
    const wrong = { resource: 'c1', token: 'wrong' };
    expect((await post('renew', { resource: a.resource, token: a.token })).body).toMatchObject({
      results: [{ resource: 'c1', refused: null, fence: 1, expiresInMs: expect.any(Number) }],
    });
    const leases = [a, b].map(({ resource, token }) => ({ resource, token }));
    expect((await post('renew', { leases: [...leases, wrong] })).body).toMatchObject({
      results: [{ refused: null }, { refused: null }, { resource: 'c1', refused: 'lease_lost' }],
    });
    expect((await post('release', { leases: [wrong, ...leases] })).body).toEqual({
      results: [
        { resource: 'c1', refused: 'lease_lost' },
        { resource: 'c1', refused: null },
        { resource: 'c2', refused: null },
      ],
    });
  });

  it('a confirmed one is permanent until it is released', async () => {
    const { resource, token } = await granted({ resource: 'seat 12A' });
    const first = await post('confirm', { resource, token, data: { passenger: 7 } });
    expect(first.body).toMatchObject({ resource, fence: 1, data: { passenger: 7 } });
    expect((await post('confirm', { resource, token })).body).toEqual(first.body);
    expect((await post('confirm', { resource, token: 'wrong' })).body).toMatchObject({ code: 'lease_lost' });
    expect(
      (await api.call('GET', `/v1/leases/${encodeURIComponent(resource)}`, { as: 'ops:olga' })).body,
    ).toMatchObject({
      state: 'confirmed',
      endsAt: null,
      data: { passenger: 7 },
    });
    expect((await post('release', { resource, token })).body).toMatchObject({ results: [{ refused: null }] });
  });

  it.each([
    ['of more than 8 KiB', 'x'.repeat(8 * 1_024)],
    ['that is nested too deep', JSON.parse('['.repeat(65) + ']'.repeat(65)) as unknown],
  ])('data %s is refused by its place', async (_what, data) => {
    const { resource, token } = await granted({ resource: `data ${randomUUID()}` });
    const answer = await post('confirm', { resource, token, data });
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request', errors: [{ path: 'body.data' }] } });
    expect(answer.body).not.toHaveProperty('detail');
  });

  it('an operator breaks a term, and nobody else may', async () => {
    const { resource, token } = await granted({ resource: 'stuck' });
    expect((await post('break', { resource })).body).toMatchObject({ code: 'forbidden' });
    expect((await post('break', { resource }, 'ops:olga')).body).toMatchObject({ resource, holder: 'h', fence: 1 });
    expect((await post('break', { resource }, 'ops:olga')).body).toMatchObject({ code: 'not_held' });
    expect((await post('break', { resource: 'never' }, 'ops:olga')).body).toMatchObject({ code: 'lease_not_found' });
    expect((await post('renew', { resource, token })).body).toMatchObject({ results: [{ refused: 'lease_lost' }] });
    expect((await api.call('GET', '/v1/leases/stuck/terms', { as: 'ops:olga' })).body).toMatchObject({
      items: [{ fence: 1, endedAs: 'broken', endedBy: 'olga' }],
    });
  });
});

describe('reading', () => {
  it('names of any kind are found, with slashes and Unicode', async () => {
    const resource = 'Äpfel/über all 漢 100%';
    await acquire({ resource });
    const found = await api.call('GET', `/v1/leases/${encodeURIComponent(resource)}`, { as: 'service:worker' });
    expect(found.body).toMatchObject({ resource, state: 'active', fence: 1, renewals: 0 });
    expect(JSON.stringify(found.body)).not.toContain('token');
  });

  it('lists by state, page by page, each once', async () => {
    for (let i = 0; i < 7; i++) await acquire({ resource: `list/${i}` });
    const { token } = await granted({ resource: 'list/renewed' });
    await post('renew', { resource: 'list/renewed', token });
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const query = new URLSearchParams({ state: 'active', limit: '3', ...(cursor !== null && { cursor }) });
      const { body } = await api.call('GET', `/v1/leases?${query.toString()}`, { as: 'ops:olga' });
      const page = body as { items: { resource: string }[]; nextCursor: string | null };
      expect(page.items.length).toBeLessThanOrEqual(3);
      seen.push(...page.items.map(({ resource }) => resource));
      cursor = page.nextCursor;
    } while (cursor !== null);
    expect(seen.filter((name) => name.startsWith('list/'))).toHaveLength(8);
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen).toEqual(seen.toSorted((a, b) => (Buffer.from(a) < Buffer.from(b) ? -1 : 1)));
    const { body } = await api.call('GET', '/v1/leases?state=renewed', { as: 'ops:olga' });
    expect((body as { items: object[] }).items).toMatchObject([
      { resource: 'list/renewed', state: 'renewed', renewals: 1 },
    ]);
  });

  it('goes on behind the longest of names, and refuses a cursor that it never gave', async () => {
    const [first, last] = ['漢'.repeat(85), `${'漢'.repeat(85)}x`];
    for (const resource of [first, last]) await acquire({ resource });
    const cursor = Buffer.from(first).toString('base64url');
    const { body } = await api.call('GET', `/v1/leases?cursor=${cursor}`, { as: 'ops:olga' });
    expect(body).toMatchObject({ items: [{ resource: last }] });
    expect(await api.call('GET', '/v1/leases?cursor=zzz', { as: 'ops:olga' })).toMatchObject({
      status: 400,
      body: { code: 'invalid_request', errors: [{ path: 'query.cursor' }] },
    });
  });

  it('pages a resource’s terms, the newest first', async () => {
    for (let i = 0; i < 5; i++)
      await post('release', await granted({ resource: 'paged' }).then(({ resource, token }) => ({ resource, token })));
    const first = await api.call('GET', '/v1/leases/paged/terms?limit=3', { as: 'ops:olga' });
    const { items, nextCursor } = first.body as { items: { fence: number }[]; nextCursor: string };
    expect(items.map(({ fence }) => fence)).toEqual([5, 4, 3]);
    const rest = await api.call('GET', `/v1/leases/paged/terms?limit=3&cursor=${nextCursor}`, { as: 'ops:olga' });
    expect(rest.body).toMatchObject({ items: [{ fence: 2 }, { fence: 1 }], nextCursor: null });
  });

  it('the service’s own jobs are nobody else’s to hold up', async () => {
    for (const body of [
      { resource: 'cabrank/sweeper' },
      { anyOf: ['free', 'cabrank/sweeper'] },
      { allOf: ['cabrank/outbox/city', 'free'] },
    ])
      expect(await acquire(body)).toMatchObject({ status: 403, body: { code: 'forbidden' } });
    const queue = encodeURIComponent('cabrank/webhook/hook');
    const asked = { as: 'service:me', body: { max: 1, ttlMs: 1_000 } } as const;
    expect((await api.call('POST', `/v1/queues/${queue}/next`, asked)).status).toBe(403);
    const added = { as: 'service:me', body: { items: [{ key: 'k', payload: 1 }] } } as const;
    expect((await api.call('POST', `/v1/queues/${queue}/items`, added)).status).toBe(403);
    expect((await acquire({ resource: 'free' })).body).toMatchObject({ fence: 1 });
  });

  it('what nobody ever leased isn’t found', async () => {
    expect((await api.call('GET', '/v1/leases/nothing', { as: 'ops:olga' })).body).toMatchObject({
      code: 'lease_not_found',
    });
    expect((await api.call('GET', '/v1/leases/nothing/terms', { as: 'ops:olga' })).status).toBe(404);
  });
});
