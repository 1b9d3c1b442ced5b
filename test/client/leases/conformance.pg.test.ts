import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { LeaseClient, LeaseNotAcquired } from '../../../src/client/leases/client.ts';
import { LeaseLost } from '../../../src/client/leases/lease.ts';
import { singleton } from '../../../src/client/leases/singleton.ts';
import { httpLeases, type LeaseSource } from '../../../src/client/leases/source.ts';
import { databaseLeases } from '../../../src/resource-leases/database-leases.ts';
import { startTestService } from '../../support/service.ts';

const stack = new AsyncDisposableStack();
const service = stack.use(await startTestService());
const token = await service.token('service', 'tests');
afterAll(() => stack.disposeAsync());

const sources: Record<string, LeaseSource> = {
  'over HTTP': httpLeases({ url: service.urlOf('api'), token }),
  'on the database': databaseLeases(service.databaseUrl, 'a secret of the tests'),
};
const claimOfNothing = { queue: 'q', key: 'k', token: 't' };
const name = (): string => `resource ${randomUUID()}`;

describe.each(Object.entries(sources))('a lease client %s', (_where, source) => {
  const us = stack.use(new LeaseClient(source, { holder: 'us' }));
  const them = stack.use(new LeaseClient(source, { holder: 'them' }));

  it('gets what is free, and gives it back at the end of its scope', async () => {
    const resource = name();
    {
      await using lease = await us.acquire(resource, { ttlMs: 10_000 });
      expect(lease).toMatchObject({ resource, fence: 1 });
      lease.assertHeld();
      expect(lease.trustedForMs).toBeGreaterThan(8_000);
      expect(lease.trustedForMs).toBeLessThan(10_000);
    }
    await using next = await them.acquire(resource, { ttlMs: 10_000 });
    expect(next.fence).toBe(2);
  });

  it('hears who holds it, and for how long', async () => {
    const resource = name();
    await using lease = await us.acquire(resource, { ttlMs: 10_000 });
    const refused = await them.acquire(resource, { ttlMs: 10_000 }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(LeaseNotAcquired);
    expect((refused as LeaseNotAcquired).held).toMatchObject([{ resource, holder: 'us', fence: 1 }]);
    expect((refused as LeaseNotAcquired).held[0]!.forMs).toBeGreaterThan(5_000);
    lease.assertHeld();
  });

  it('waits for it, and gets it when it is released', async () => {
    const resource = name();
    const held = await us.acquire(resource, { ttlMs: 10_000 });
    const waiting = them.acquire(resource, { ttlMs: 10_000, waitMs: 20_000 });
    await held.release();
    await using lease = await waiting;
    expect(lease.fence).toBe(2);
  });

  it('gives up waiting when told so', async () => {
    const resource = name();
    await using lease = await us.acquire(resource, { ttlMs: 10_000 });
    const giveUp = new AbortController();
    const waiting = them.acquire(resource, { ttlMs: 10_000, waitMs: 60_000, signal: giveUp.signal });
    giveUp.abort(new Error('no more'));
    await expect(waiting).rejects.toThrow('no more');
    lease.assertHeld();
  });

  it('told to give up while the grant is on its way, it gives the grant back', async () => {
    const resource = name();
    const giveUp = new AbortController();
    const slow: LeaseSource = {
      ...source,
      open: () => {
        const opened = source.open();
        const acquire: typeof opened.acquire = async (request, key) => {
          const answer = await opened.acquire(request, key);
          giveUp.abort(new Error('no more'));
          return answer;
        };
        return {
          acquire,
          renew: (claims) => opened.renew(claims),
          release: (claims) => opened.release(claims),
          confirm: (claim) => opened.confirm(claim),
          work: opened.work,
          close: () => opened.close(),
        };
      },
    };
    await using client = new LeaseClient(slow);
    await expect(client.acquire(resource, { ttlMs: 60_000, signal: giveUp.signal })).rejects.toThrow('no more');
    await using next = await them.acquire(resource, { ttlMs: 60_000 });
    expect(next.fence).toBe(2);
  });

  it('keeps it beyond its term', async () => {
    const lease = await us.acquire(name(), { ttlMs: 3_000 });
    await vi.waitFor(() => expect(lease.trustedForMs).toBeLessThan(2_500), { timeout: 5_000 });
    await vi.waitFor(() => expect(lease.trustedForMs).toBeGreaterThan(2_600), { timeout: 5_000, interval: 5 });
    lease.assertHeld();
    expect(lease.signal.aborted).toBe(false);
    await lease.release();
  });

  it('without autoRenew only its own renew does', async () => {
    const lease = await us.acquire(name(), { ttlMs: 2_000, autoRenew: false });
    await vi.waitFor(() => expect(lease.trustedForMs).toBeLessThan(1_700), { interval: 5 });
    const before = lease.trustedForMs;
    await lease.renew();
    expect(lease.trustedForMs).toBeGreaterThan(before);
    await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), { timeout: 5_000 });
    expect(lease.atRisk.aborted).toBe(true);
    await expect(lease.renew()).rejects.toThrow(LeaseLost);
  });

  it('any of several, all of several', async () => {
    const [a, b] = [name(), name()];
    await using one = await us.acquire({ anyOf: [a, b] }, { ttlMs: 10_000 });
    expect(one.resource).toBe(a);
    await using other = await them.acquire({ anyOf: [a, b] }, { ttlMs: 10_000 });
    expect(other.resource).toBe(b);
    await expect(them.acquire({ allOf: [a, b] }, { ttlMs: 10_000 })).rejects.toThrow(LeaseNotAcquired);
    await one.release();
    await other.release();
    await using both = await them.acquire({ allOf: [a, b] }, { ttlMs: 10_000 });
    expect(both.resources).toEqual([a, b]);
  });

  it('confirmed, it stays until it is released', async () => {
    const resource = name();
    const lease = await us.acquire(resource, { ttlMs: 1_000 });
    const first = await lease.confirm({ seat: 7 });
    expect(first).toMatchObject({ fence: 1, data: { seat: 7 } });
    expect(await lease.confirm({ seat: 8 })).toEqual(first);
    const refused = await them.acquire(resource, { ttlMs: 1_000 }).catch((error: unknown) => error);
    expect((refused as LeaseNotAcquired).held).toMatchObject([{ holder: 'us', forMs: null }]);
    await lease.release();
    await using next = await them.acquire(resource, { ttlMs: 1_000 });
    expect(next.fence).toBe(2);
  });

  it('confirmed, it outlives its scope and its client', async () => {
    const [scoped, closed] = [name(), name()];
    {
      await using client = new LeaseClient(source);
      await using lease = await client.acquire(scoped, { ttlMs: 10_000 });
      await lease.confirm();
      await (await client.acquire(closed, { ttlMs: 10_000 })).confirm();
    }
    for (const resource of [scoped, closed])
      await expect(them.acquire(resource, { ttlMs: 10_000 })).rejects.toMatchObject({ held: [{ forMs: null }] });
  });

  it('work is added once by its key, claimed, kept by heartbeats, and completed by whoever has the claim', async () => {
    const queue = `queue ${name()}`;
    const items = [
      { key: 'a/1', group: 'a', payload: { n: 1 } },
      { key: 'a/2', group: 'a', payload: null },
      { key: 'later', payload: 'x', delayMs: 60_000 },
    ];
    expect(await us.work.add(queue, items)).toBe(3);
    expect(await them.work.add(queue, items)).toBe(0);
    const [first, ...none] = await us.work.next(queue, { max: 10, ttlMs: 30_000 });
    expect(none).toEqual([]);
    expect(first).toMatchObject({ queue, key: 'a/1', group: 'a', payload: { n: 1 }, attempt: 1, expiresInMs: 30_000 });
    expect(await them.work.next(queue, { max: 10, ttlMs: 30_000 })).toEqual([]);
    expect(await us.work.heartbeat([first!], 40_000)).toEqual([{ refused: null }]);
    expect(await us.work.complete([first!])).toEqual([{ refused: null }]);
    expect(await us.work.complete([first!, { ...first!, token: 'another' }])).toEqual([
      { refused: null },
      { refused: 'claim_lost' },
    ]);
    const [second] = await them.work.next(queue, { max: 10, ttlMs: 30_000 });
    expect(second).toMatchObject({ key: 'a/2', payload: null });
    expect(await them.work.putBack([second!])).toEqual([{ refused: null }]);
    const [again] = await us.work.next(queue, { max: 1, ttlMs: 30_000 });
    expect(again).toMatchObject({ key: 'a/2', attempt: 1 });
    const failure = { error: 'no', retryInMs: 0, attemptsMax: 2 };
    expect(await us.work.fail(again!, failure)).toEqual({ refused: null, dead: false });
    const [last] = await us.work.next(queue, { max: 1, ttlMs: 30_000 });
    expect(last!.attempt).toBe(2);
    expect(await us.work.fail(last!, failure)).toEqual({ refused: null, dead: true });
    expect(await us.work.fail(last!, failure)).toEqual({ refused: 'claim_lost', dead: false });
    expect(await us.work.next(queue, { max: 10, ttlMs: 30_000 })).toEqual([]);
  });

  it.each<[string, (work: LeaseClient['work']) => Promise<unknown>]>([
    ['no item', (work) => work.add('q', [])],
    [
      'too many items',
      (work) =>
        work.add(
          'q',
          Array.from({ length: 101 }, (_, i) => ({ key: `${i}`, payload: i })),
        ),
    ],
    ['a queue named NUL', (work) => work.add('\0', [{ key: 'k', payload: 1 }])],
    ['a key of 10 kB', (work) => work.add('q', [{ key: 'k'.repeat(10_240), payload: 1 }])],
    ['a payload of 20 kB', (work) => work.add('q', [{ key: 'k', payload: 'p'.repeat(20_000) }])],
    ['no payload', (work) => work.add('q', [{ key: 'k', payload: undefined }])],
    ['a delay of half a millisecond', (work) => work.add('q', [{ key: 'k', payload: 1, delayMs: 0.5 }])],
    ['a claim of none', (work) => work.next('q', { max: 0, ttlMs: 1_000 })],
    ['a claim for no time', (work) => work.next('q', { max: 1, ttlMs: 0 })],
    ['a heartbeat for ever', (work) => work.heartbeat([claimOfNothing], 1e12)],
    ['no attempts', (work) => work.fail(claimOfNothing, { error: '', retryInMs: 0, attemptsMax: 0 })],
  ])('work with %s is refused', async (_what, ask) => {
    await expect(ask(us.work)).rejects.toMatchObject({ code: 'invalid_request' });
  });

  it('withLease ends with its work; work that outlives the lease is told', async () => {
    const resource = name();
    expect(await us.withLease(resource, { ttlMs: 10_000 }, async ({ fence }) => fence)).toBe(1);
    const outlived = us.withLease(resource, { ttlMs: 400, autoRenew: false }, async (lease) => {
      await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
    });
    await expect(outlived).rejects.toMatchObject({ name: 'LeaseLost' });
    await using next = await them.acquire(resource, { ttlMs: 10_000, waitMs: 5_000 });
    expect(next.fence).toBe(3);
  });

  it.each([0, -1, 1.5, Number.NaN, 1e15])('a TTL of %d is refused', async (ttlMs) => {
    await expect(us.acquire(name(), { ttlMs })).rejects.toMatchObject({ code: 'invalid_request' });
  });

  it.each(['', 'x'.repeat(10_000), 'a\0b'])('a name such as %j is refused', async (resource) => {
    await expect(us.acquire(resource, { ttlMs: 1_000 })).rejects.toMatchObject({ code: 'invalid_request' });
  });

  it.each([' ', 'a b/c', 'Äpfel ☂ 漢/%2F'])('a name such as %j is as good as any', async (resource) => {
    await using lease = await us.acquire(`${resource} ${randomUUID()}`, { ttlMs: 1_000 });
    expect(lease.fence).toBe(1);
  });

  it('a singleton has one at work, hands over when told to stop, and stands again after an error', async () => {
    const job = name();
    const stops = [new AbortController(), new AbortController()];
    const elected: number[] = [];
    let working = 0;
    const runs = stops.map((stop, i) =>
      singleton(
        i === 0 ? us : them,
        job,
        async (lease) => {
          expect(++working).toBe(1);
          elected.push(i);
          await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
          working--;
        },
        { ttlMs: 10_000, signal: stop.signal },
      ),
    );
    await vi.waitFor(() => expect(elected).toHaveLength(1), { timeout: 10_000 });
    const [first] = elected;
    stops[first!]!.abort();
    await runs[first!];
    await vi.waitFor(() => expect(elected).toEqual([first, 1 - first!]), { timeout: 10_000 });
    stops[1 - first!]!.abort();
    await Promise.all(runs);
    expect(working).toBe(0);
  });
});
