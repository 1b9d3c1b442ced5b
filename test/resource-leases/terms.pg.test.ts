import { randomUUID } from 'node:crypto';
import { afterAll, describe, expect, it } from 'vitest';
import { listTerms } from '../../src/resource-leases/reads.ts';
import { breakLease, guardFence, sweepLeases } from '../../src/resource-leases/transitions.ts';
import { startLeases } from './harness.ts';

const test = await startLeases();
afterAll(() => test[Symbol.asyncDispose]());
const { leases, acquire, granted, letPass } = test;
const { hot, cold } = test.database;
const claim = ({ resource, token }: { resource: string; token: string }) => ({ resource, token });
const name = (): string => `resource ${randomUUID()}`;

describe('acquire', () => {
  it('a free resource is granted, with fence 1 and the whole TTL', async () => {
    const resource = name();
    const lease = await granted({ resource, ttlMs: 5_000 });
    expect(lease).toMatchObject({ resource, holder: 'holder', fence: 1 });
    expect(lease.expiresInMs).toBeGreaterThan(4_000);
    expect(lease.expiresInMs).toBeLessThanOrEqual(5_000);
    expect(lease.token.length).toBeGreaterThanOrEqual(22);
  });

  it('a held resource is refused with who holds it and for how long, whatever name asks', async () => {
    const resource = name();
    await granted({ resource, holder: 'me' });
    const answer = await acquire({ resource, holder: 'me' });
    expect(answer).toMatchObject({ refused: 'held', held: [{ resource, holder: 'me', fence: 1 }] });
    const [held] = answer.refused === null ? [] : answer.held;
    expect(held!.forMs).toBeGreaterThan(50_000);
    expect(held!.forMs).toBeLessThanOrEqual(60_000);
  });

  it('the same key again gets the same term, and lease_expired once it is over', async () => {
    const resource = name();
    const lease = await granted({ resource }, 'the same key');
    expect(await granted({ resource }, 'the same key')).toMatchObject({ token: lease.token, fence: lease.fence });
    await letPass(61_000, resource);
    expect(await acquire({ resource }, 'the same key')).toMatchObject({ refused: 'lease_expired' });
  });

  it.each([
    { holder: 'another' },
    { ttlMs: 77_777 },
    { maxLifetimeMs: 90_000 },
    { lockDelayMs: 1 },
    { graceMs: 1 },
    { softTtlMs: 1_000 },
  ])('the same key for other terms (%o) is refused, and the first request gets its own again', async (other) => {
    const key = randomUUID();
    const terms = { resource: name(), maxLifetimeMs: 80_000, lockDelayMs: 2, graceMs: 3, softTtlMs: 2_000 };
    const first = await granted(terms, key);
    await leases.renew([claim(first)]);
    await expect(acquire({ ...terms, ...other }, key)).rejects.toMatchObject({
      code: 'idempotency_key_reused',
      status: 422,
    });
    const { token, fence } = first;
    expect(await granted({ ...terms, waitMs: 1, priority: 1 }, key)).toMatchObject({ token, fence });
  });

  it('the same key for other resources gets a term with a token of its own', async () => {
    const [a, b] = [name(), name()];
    const key = randomUUID();
    const tokens = [
      await granted({ resource: a }, key),
      await granted({ resource: b }, key),
      await granted({ anyOf: [a, name()] }, key),
    ].map(({ token }) => token);
    expect(new Set(tokens).size).toBe(3);
  });

  it('an expired term is takeable at once, though no sweeper has run', async () => {
    const resource = name();
    await granted({ resource });
    await letPass(60_001, resource);
    expect(await granted({ resource, holder: 'next' })).toMatchObject({ fence: 2, holder: 'next' });
  });

  it('a released one as well, and the fence goes on', async () => {
    const resource = name();
    await leases.release([await granted({ resource })]);
    expect((await granted({ resource })).fence).toBe(2);
  });

  it('50 ask for the same at once: one gets it', async () => {
    const resource = name();
    const answers = await Promise.all(Array.from({ length: 50 }, () => acquire({ resource })));
    expect(answers.filter(({ refused }) => refused === null)).toHaveLength(1);
    expect(answers.filter(({ refused }) => refused === 'held')).toHaveLength(49);
  });

  it('names are anything: spaces, slashes, Unicode, quotes', async () => {
    for (const resource of [' ', 'a b/c\\d', 'Äpfel/über ☂ 🚕', `'";--`, '%2F..%00', 'x'.repeat(256), '漢'.repeat(85)])
      expect(await granted({ resource })).toMatchObject({ resource, fence: 1 });
  });

  it.each([
    [{ resource: '' }, 'resource must be 1 to 256 bytes'],
    [{ resource: 'x'.repeat(10_000) }, 'resource must be 1 to 256 bytes'],
    [{ resource: '漢'.repeat(86) }, 'resource must be 1 to 256 bytes'],
    [{ resource: 'a\0b' }, 'NUL'],
    [{ resource: 'half \ud800' }, 'well-formed'],
    [{ resource: 'r', ttlMs: 0 }, 'ttlMs'],
    [{ resource: 'r', ttlMs: -1 }, 'ttlMs'],
    [{ resource: 'r', ttlMs: 1_000.5 }, 'ttlMs'],
    [{ resource: 'r', ttlMs: Number.NaN }, 'ttlMs'],
    [{ resource: 'r', ttlMs: 1e15 }, 'ttlMs'],
    [{ resource: 'r', ttlMs: 5_000, maxLifetimeMs: 4_000 }, 'maxLifetimeMs'],
    [{ resource: 'r', ttlMs: 5_000, softTtlMs: 5_000 }, 'softTtlMs'],
    [{ resource: 'r', waitMs: 60_001 }, 'waitMs'],
    [{ resource: 'r', priority: 101 }, 'priority'],
    [{ resource: 'r', holder: '' }, 'holder'],
    [{ anyOf: [] }, 'anyOf must hold 1 to 100'],
    [{ allOf: Array.from({ length: 101 }, (_, i) => `r${i}`) }, 'allOf must hold 1 to 100'],
    [{ allOf: ['a', 'a'] }, 'once'],
    [{ resource: 'r', anyOf: ['a'] }, 'exactly one'],
    [{}, 'exactly one'],
  ])('%j is refused before anything is asked: %s', async (request, said) => {
    await expect(acquire(request)).rejects.toThrow(said);
  });
});

describe('sets', () => {
  it('any of several: the first free one in the order given', async () => {
    const [a, b, c] = [name(), name(), name()];
    await granted({ resource: b });
    expect(await granted({ anyOf: [b, c, a] })).toMatchObject({ resource: c });
    expect(await granted({ anyOf: [b, c, a] })).toMatchObject({ resource: a });
    expect(await acquire({ anyOf: [b, c, a] })).toMatchObject({ refused: 'held' });
  });

  it('all of several: all of them, or none', async () => {
    const [a, b, c] = [name(), name(), name()];
    const held = await granted({ resource: b });
    expect(await acquire({ allOf: [a, b, c] })).toMatchObject({ refused: 'held' });
    expect(await granted({ resource: a })).toMatchObject({ fence: 1 });
    await leases.release([held]);
    const answer = await acquire({ allOf: [c, b] });
    expect(answer.refused === null && answer.leases.map(({ resource, fence }) => [resource, fence])).toEqual([
      [c, 1],
      [b, 2],
    ]);
  });

  it('sets that overlap crosswise neither deadlock nor share', async () => {
    const rounds = 20;
    const [a, b, c] = [name(), name(), name()];
    for (let round = 0; round < rounds; round++) {
      const answers = await Promise.all([
        acquire({ allOf: [a, b] }),
        test.another().acquire({ allOf: [b, a], holder: 'h', ttlMs: 60_000 }, randomUUID()),
        acquire({ allOf: [c, b] }),
        acquire({ anyOf: [b, c] }),
      ]);
      const held = answers.flatMap((answer) => (answer.refused === null ? answer.leases : []));
      expect(new Set(held.map(({ resource }) => resource)).size).toBe(held.length);
      expect(held.length).toBeGreaterThan(0);
      await leases.release(held);
    }
  });
});

describe('renew', () => {
  it('puts the end one TTL off, and advises the next between a quarter and a third of it', async () => {
    const resource = name();
    const lease = await granted({ resource, ttlMs: 60_000 });
    await letPass(50_000, resource);
    const [renewed] = await leases.renew([claim(lease)]);
    expect(renewed).toMatchObject({ refused: null, fence: 1 });
    const { expiresInMs, renewAfterMs } = renewed as { expiresInMs: number; renewAfterMs: number };
    expect(expiresInMs).toBeGreaterThan(59_000);
    expect(renewAfterMs).toBeGreaterThan(14_000);
    expect(renewAfterMs).toBeLessThan(20_001);
  });

  it('never revives a term that is over, though nobody has taken another', async () => {
    const resource = name();
    const lease = await granted({ resource });
    await letPass(60_000, resource);
    expect(await leases.renew([claim(lease)])).toEqual([{ refused: 'lease_expired' }]);
    await sweepLeases(hot, 1_000);
    expect(await leases.renew([claim(lease)])).toEqual([{ refused: 'lease_expired' }]);
    await granted({ resource });
    expect(await leases.renew([claim(lease)])).toEqual([{ refused: 'lease_lost' }]);
  });

  it('a holder of the same name can’t renew or release its successor’s term', async () => {
    const resource = name();
    const stale = await granted({ resource, holder: 'worker' });
    await letPass(60_000, resource);
    const fresh = await granted({ resource, holder: 'worker' });
    expect(await leases.renew([claim(stale)])).toEqual([{ refused: 'lease_lost' }]);
    expect(await leases.release([claim(stale)])).toEqual([{ refused: 'lease_lost' }]);
    expect(await leases.renew([claim(fresh)])).toMatchObject([{ refused: null }]);
  });

  it('answers a set one by one, in one commit', async () => {
    const [a, b] = [await granted({ resource: name() }), await granted({ resource: name() })];
    await letPass(60_000, b.resource);
    const answers = await leases.renew([claim(a), claim(b), { resource: a.resource, token: 'nonsense' }, claim(a)]);
    expect(answers.map(({ refused }) => refused)).toEqual([null, 'lease_expired', 'lease_lost', null]);
  });

  it('never goes past the lifetime', async () => {
    const resource = name();
    const lease = await granted({ resource, ttlMs: 60_000, maxLifetimeMs: 90_000 });
    await letPass(50_000, resource);
    const [renewed] = await leases.renew([claim(lease)]);
    expect((renewed as { expiresInMs: number }).expiresInMs).toBeLessThanOrEqual(40_000);
    await letPass(40_000, resource);
    expect(await leases.renew([claim(lease)])).toEqual([{ refused: 'lease_expired' }]);
  });

  it('a clock that steps back gives nothing away and shortens nothing', async () => {
    const resource = name();
    const lease = await granted({ resource });
    // What is recorded lies an hour ahead, as if the clock had been set back.
    await letPass(-3_600_000, resource);
    expect(await acquire({ resource })).toMatchObject({ refused: 'held' });
    expect(await leases.renew([claim(lease)])).toMatchObject([{ refused: null }]);
    await leases.release([claim(lease)]);
    const next = await granted({ resource });
    const terms = await listTerms(cold, resource, { before: null, limit: 10 });
    expect(terms!.items[0]!.grantedAt >= terms!.items[1]!.endedAt!).toBe(true);
    expect(next.fence).toBe(2);
  });

  it('a renewal held behind a lock until after the end is refused', async () => {
    const resource = name();
    const lease = await granted({ resource, ttlMs: 300 });
    const locked = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    const holding = cold.begin(async (tx) => {
      await tx`select from resource_leases where resource = ${resource} for update`;
      locked.resolve();
      await over.promise;
      await tx`select pg_sleep(0.4)`;
    });
    await locked.promise;
    const renewing = leases.renew([claim(lease)]);
    over.resolve();
    expect(await renewing).toEqual([{ refused: 'lease_expired' }]);
    await holding;
  });
});

describe('release', () => {
  it('repeated, it is answered as the first time, also when others hold it or have held it, and ends nothing of theirs', async () => {
    const resource = name();
    const lease = await granted({ resource });
    expect(await leases.release([claim(lease)])).toEqual([{ refused: null }]);
    expect(await leases.release([claim(lease)])).toEqual([{ refused: null }]);
    const next = await granted({ resource });
    expect(await leases.release([claim(lease)])).toEqual([{ refused: null }]);
    expect(await leases.renew([claim(lease), claim(next)])).toMatchObject([
      { refused: 'lease_lost' },
      { refused: null, fence: 2 },
    ]);
    await leases.release([claim(next)]);
    expect(await leases.release([claim(lease)])).toEqual([{ refused: null }]);
  });

  it('of a term that ended otherwise is lost once others hold it', async () => {
    const [expired, broken] = [await granted({ resource: name() }), await granted({ resource: name() })];
    await letPass(60_000, expired.resource);
    await breakLease(hot, broken, 'olga');
    for (const lease of [expired, broken]) {
      await granted({ resource: lease.resource });
      expect(await leases.release([claim(lease)])).toEqual([{ refused: 'lease_lost' }]);
    }
  });

  it('what nobody ever leased is lost', async () => {
    expect(await leases.release([{ resource: name(), token: 'x' }])).toEqual([{ refused: 'lease_lost' }]);
  });
});

describe('confirm', () => {
  it('makes the term permanent; repeated, it hears the first answer', async () => {
    const resource = name();
    const lease = await granted({ resource });
    const first = await leases.confirm(claim(lease), { seat: '12A' });
    expect(first).toMatchObject({ refused: null, fence: 1, data: { seat: '12A' } });
    expect(await leases.confirm(claim(lease), { seat: 'other' })).toEqual(first);
    await letPass(86_400_000, resource);
    expect(await acquire({ resource })).toMatchObject({ refused: 'held', held: [{ forMs: null }] });
    expect(await leases.renew([claim(lease)])).toMatchObject([{ refused: null, expiresInMs: null }]);
    expect(await leases.release([claim(lease)])).toEqual([{ refused: null }]);
    expect((await granted({ resource })).fence).toBe(2);
  });

  it('of a term that is over is refused', async () => {
    const lease = await granted({ resource: name() });
    await letPass(60_000, lease.resource);
    expect(await leases.confirm(claim(lease))).toEqual({ refused: 'lease_expired' });
    await granted({ resource: lease.resource });
    expect(await leases.confirm(claim(lease))).toEqual({ refused: 'lease_lost' });
  });
});

describe('lock delay, grace, recovery, break', () => {
  it('after an unclean end others wait for the lock delay; after a release they don’t', async () => {
    const resource = name();
    const first = await granted({ resource, lockDelayMs: 30_000 });
    await letPass(60_000, resource);
    expect(await acquire({ resource })).toMatchObject({ refused: 'held' });
    await letPass(30_000, resource);
    const second = await granted({ resource, lockDelayMs: 30_000 });
    expect(second.fence).toBe(first.fence + 1);
    await leases.release([claim(second)]);
    expect((await granted({ resource })).fence).toBe(3);
  });

  it('within the grace only the former token may take the next term', async () => {
    const resource = name();
    const former = await granted({ resource, graceMs: 30_000 });
    await letPass(61_000, resource);
    expect(await acquire({ resource })).toMatchObject({ refused: 'held' });
    expect(await acquire({ resource, formerToken: 'guessed' })).toMatchObject({ refused: 'held' });
    const again = await granted({ resource, formerToken: former.token, graceMs: 30_000 });
    expect(again).toMatchObject({ fence: 2 });
    expect(again.token).not.toBe(former.token);
    await letPass(91_000, resource);
    expect(await granted({ resource })).toMatchObject({ fence: 3 });
  });

  it('past its soft TTL others may ask for recovery, which ends the term unless it is renewed within the grace', async () => {
    const resource = name();
    const lease = await granted({ resource, softTtlMs: 10_000, graceMs: 5_000 });
    await acquire({ resource });
    await letPass(9_000, resource);
    expect(await acquire({ resource })).toMatchObject({ refused: 'held' });
    await letPass(2_000, resource);
    const asked = await acquire({ resource });
    expect(asked.refused === 'held' && asked.held[0]!.forMs!).toBeLessThanOrEqual(5_000);
    expect(await leases.renew([claim(lease)])).toMatchObject([{ refused: null }]);
    await letPass(11_000, resource);
    await acquire({ resource });
    await letPass(5_000, resource);
    expect(await leases.renew([claim(lease)])).toEqual([{ refused: 'lease_lost' }]);
    expect(await acquire({ resource, formerToken: lease.token })).toMatchObject({ refused: null });
    const terms = await listTerms(cold, resource, { before: null, limit: 10 });
    expect(terms!.items[1]).toMatchObject({ fence: 1, endedAs: 'recovered' });
  });

  it('an operator’s break ends a term now, and the history keeps who did it', async () => {
    const resource = name();
    const lease = await granted({ resource, lockDelayMs: 60_000 });
    expect(await breakLease(hot, { resource }, 'olga')).toMatchObject({ refused: null, holder: 'holder', fence: 1 });
    expect(await leases.renew([claim(lease)])).toEqual([{ refused: 'lease_lost' }]);
    expect((await granted({ resource })).fence).toBe(2);
    const terms = await listTerms(cold, resource, { before: null, limit: 10 });
    expect(terms!.items).toMatchObject([
      { fence: 2, endedAs: null },
      { fence: 1, endedAs: 'broken', endedBy: 'olga' },
    ]);
  });

  it('or after a delay that no renewal outlasts; later ones put it off no more', async () => {
    const resource = name();
    const lease = await granted({ resource });
    expect((await breakLease(hot, { resource, afterMs: 20_000 }, 'olga'))!.ends_in_ms).toBeGreaterThan(19_000);
    await breakLease(hot, { resource, afterMs: 50_000 }, 'otto');
    const [renewed] = await leases.renew([claim(lease)]);
    expect((renewed as { expiresInMs: number }).expiresInMs).toBeLessThanOrEqual(20_000);
    await letPass(20_000, resource);
    expect(await leases.renew([claim(lease)])).toEqual([{ refused: 'lease_lost' }]);
  });

  it('ends a confirmed one too; what is free can’t be broken', async () => {
    const resource = name();
    await leases.confirm(claim(await granted({ resource })));
    expect(await breakLease(hot, { resource }, 'olga')).toMatchObject({ refused: null });
    expect(await breakLease(hot, { resource }, 'olga')).toMatchObject({ refused: 'not_held' });
    expect(await breakLease(hot, { resource: name() }, 'olga')).toBeUndefined();
    expect((await granted({ resource })).fence).toBe(2);
  });

  it('with a fence ends that term only, not the one after it', async () => {
    const resource = name();
    const first = await granted({ resource });
    await leases.release([claim(first)]);
    const second = await granted({ resource });
    expect(await breakLease(hot, { resource, fence: first.fence }, 'olga')).toMatchObject({ refused: 'not_held' });
    expect(await leases.renew([claim(second)])).toMatchObject([{ refused: null }]);
    expect(await breakLease(hot, { resource, fence: second.fence }, 'olga')).toMatchObject({ refused: null });
    expect(await leases.renew([claim(second)])).toEqual([{ refused: 'lease_lost' }]);
  });
});

describe('the history', () => {
  it('has every term once, with the end it had; terms never overlap and fences rise by one', async () => {
    const resource = name();
    for (let round = 0; round < 12; round++) {
      const lease = await granted({ resource });
      if (round % 3 === 0) await leases.release([claim(lease)]);
      else await letPass(60_000 + round, resource);
      if (round % 3 === 1) await sweepLeases(hot, 1_000);
    }
    const { items } = (await listTerms(cold, resource, { before: null, limit: 100 }))!;
    expect(items.map(({ fence }) => fence)).toEqual([12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    for (const { grantedAt, endedAt } of items) expect(endedAt! >= grantedAt).toBe(true);
    expect(items.filter(({ endedAs }) => endedAs === 'released')).toHaveLength(4);
  });

  it('the sweeper writes ends down in bounded batches, and frees nothing before its time', async () => {
    const [over, live, delayed] = [name(), name(), name()];
    await granted({ resource: over });
    const kept = await granted({ resource: live });
    await granted({ resource: delayed, lockDelayMs: 10_000 });
    await letPass(60_000, over, delayed);
    const swept = (await sweepLeases(hot, 1_000)).map(({ resource }) => resource);
    expect(swept).toContain(over);
    expect(swept).not.toContain(live);
    expect(swept).not.toContain(delayed);
    expect(await leases.renew([claim(kept)])).toMatchObject([{ refused: null }]);
    expect(await acquire({ resource: delayed })).toMatchObject({ refused: 'held' });
  });
});

describe('the fence', () => {
  it('guards a write: a stale holder’s is refused when a newer term exists', async () => {
    const resource = name();
    const stale = await granted({ resource });
    expect(await guardFence(hot, resource, stale.fence)).toBe(true);
    await letPass(60_000, resource);
    // Over, and nobody's since: the write can do no harm.
    expect(await guardFence(hot, resource, stale.fence)).toBe(true);
    const fresh = await granted({ resource });
    expect(await guardFence(hot, resource, stale.fence)).toBe(false);
    expect(await guardFence(hot, resource, fresh.fence)).toBe(true);
  });

  it('holds until the guarded transaction has ended: no newer term begins before', async () => {
    const resource = name();
    const { fence } = await granted({ resource });
    await letPass(60_000, resource);
    const guarded = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    const order: string[] = [];
    const writing = cold.begin(async (tx) => {
      expect(await guardFence(tx as never, resource, fence)).toBe(true);
      guarded.resolve();
      await goOn.promise;
      order.push('written');
    });
    await guarded.promise;
    const next = granted({ resource }).then((lease) => (order.push('granted'), lease));
    // It waits for the lock by now, or will.
    await hot`select 1`;
    goOn.resolve();
    await writing;
    expect((await next).fence).toBe(2);
    expect(order).toEqual(['written', 'granted']);
  });
});
