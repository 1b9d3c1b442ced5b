/** What must hold when many ask at once: on real connections, with no lock in the process to help. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createRandom } from '../../domain/random.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import { createLeasing, type Leasing } from '../../src/leasing/leasing.ts';
import * as t from '../../src/leasing/transitions.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { verify } from '../../src/verify/verify.ts';
import { addRides, CENTER, lease, leaseTerms, openCity, type Term } from '../support/city.ts';

const effects = { tell: () => {}, wake: () => {}, regionId: String };

test('200 clients confirming the same offer at once: one assignment, and all get that same answer', async () => {
  await using city = await openCity(1);
  const [rideId] = await addRides(city.sql, city.region, 1);
  const term = await lease(city.sql, city.region, rideId!, 'd1');
  await using many = connectDatabase(city.url, { hotConnections: 50 });
  // 100 through two processes' group commit, 100 each on its own.
  const [one, two] = [
    createLeasing(city.database, createMetrics(), effects),
    createLeasing(many, createMetrics(), effects),
  ];
  const asks = Array.from({ length: 200 }, async (_, i) => {
    if (i % 4 === 0) return one.confirm(city.region, term);
    if (i % 4 === 1) return two.confirm(city.region, term);
    return (await t.confirmOffers(many.hot, city.region, [term], true))[0]!;
  });
  const answers = await Promise.all(asks);
  expect(new Set(answers.map(({ refused }) => refused))).toEqual(new Set([null]));
  expect(
    new Set(answers.map((a) => `${a.ride_id} ${a.driver_id} ${a.fence} ${a.assigned_at.toISOString()}`)).size,
  ).toBe(1);
  expect(await city.sql`select from assignments`).toHaveLength(1);
  expect(await city.events(rideId!)).toEqual(['ride_requested', 'offer_made', 'offer_accepted']);
});

/** The later judgement of a call, by which its answers are read, waits while somebody holds advisory lock 1. */
const judgeLate = `
  create sequence public.judgements;
  alter function leasing.judge_terms rename to judge_terms_at_once;
  create function leasing.judge_terms(
    p_region smallint, p_offer_ids uuid[], p_tokens text[], p_driver_ids text[],
    p_rides uuid[], p_drivers text[], p_ended_as text, p_now timestamptz)
  returns table (ord int, offer_id uuid, ride_id uuid, driver_id text, verdict text, at timestamptz,
    lease_expires_at timestamptz, received boolean)
  language plpgsql as $$ begin
    if current_setting('application_name') = 'late hot' and nextval('public.judgements') = 2 then
      perform pg_advisory_xact_lock(1);
    end if;
    return query select * from leasing.judge_terms_at_once(
      p_region, p_offer_ids, p_tokens, p_driver_ids, p_rides, p_drivers, p_ended_as, p_now);
  end $$`;

test('a confirm that another process commits while the answer is being read is busy, and never half an answer', async () => {
  await using city = await openCity(1);
  const [rideId] = await addRides(city.sql, city.region, 1);
  const term = await lease(city.sql, city.region, rideId!, 'd1');
  await city.sql.unsafe(judgeLate);
  await using late = connectDatabase(city.url, { hotConnections: 1, applicationName: 'late' });
  const gate = await city.sql.reserve();
  await gate`select pg_advisory_lock(1)`;
  let asked: Promise<t.ConfirmAnswer[]> | undefined;
  await city.sql.begin(async (transaction) => {
    expect(await t.confirmOffers(transaction as never, city.region, [term], true)).toMatchObject([{ refused: null }]);
    asked = t.confirmOffers(late.hot, city.region, [term], false);
    await waitsForLock(city.sql, 'late hot');
  });
  await gate`select pg_advisory_unlock(1)`;
  gate.release();
  expect(await asked!).toMatchObject([{ refused: 'busy' }]);
  expect(await t.confirmOffers(late.hot, city.region, [term], true)).toMatchObject([
    { refused: null, applied: false, fence: term.fence, assigned_at: expect.any(Date) as Date },
  ]);
});

async function waitsForLock(sql: Sql, applicationName: string): Promise<void> {
  for (;;) {
    const waiting = await sql`select from pg_stat_activity where application_name = ${applicationName}
      and wait_event_type = 'Lock' and wait_event = 'advisory'`;
    if (waiting.length > 0) return;
    await nextTurn();
  }
}

test('50 matchers leasing the same 20 drivers at once: 20 leases, no error, no deadlock', async () => {
  await using city = await openCity(20);
  const rideIds = await addRides(city.sql, city.region, 50);
  await using many = connectDatabase(city.url, { hotConnections: 50 });
  const random = createRandom('fifty matchers');
  const matchers = Array.from({ length: 50 }, async (_, m) => {
    let granted = 0;
    // Each wants all twenty, in an order of its own, for whichever rides; and comes back while some are held.
    for (let attempt = 0; attempt < 20; attempt += 1) {
      const order = [...city.driverIds].sort(() => random.next() - 0.5);
      const asks = order.map((driverId, i) => ({
        rideId: rideIds[(m + i) % rideIds.length]!,
        driverId,
        offerId: newId(city.region),
        leaseToken: newLeaseToken(),
        pickupEtaS: 1,
      }));
      const answers = await t.leaseDrivers(many.hot, city.region, asks, leaseTerms, false);
      granted += answers.filter(({ refused }) => refused === null).length;
      if (!answers.some(({ refused }) => refused === 'busy')) break;
    }
    return granted;
  });
  const granted = (await Promise.all(matchers)).reduce((a, b) => a + b, 0);
  expect(granted).toBe(20);
  expect(await city.sql`select from offers where status = 'pending'`).toHaveLength(20);
  expect(await city.sql`select from driver_state where status = 'leased' and fence = 1`).toHaveLength(20);
});

/** The whole minute on CI; long enough to meet every pair of transitions elsewhere. */
const MIX_SECONDS = process.env['CI'] === undefined ? 12 : 60;

test(
  'lease, receive, confirm, cancel, decline, expire, arrive … in sets of 50 over the same rows: no deadlock, no half-applied item, no violation',
  async () => {
    const policy = {
      parallelOffers: 3,
      deliveryTtlMs: 800,
      decisionTtlMs: 1_200,
      maxLifetimeMs: 2_500,
      offersMax: 100,
    };
    await using city = await openCity(60, policy);
    await using many = connectDatabase(city.url, { hotConnections: 24 });
    const sql = many.hot;
    const { region } = city;
    // As two processes would: each gathers its own sets.
    const leasings = [createLeasing(many, createMetrics(), effects), createLeasing(many, createMetrics(), effects)];
    const terms: Term[] = [];
    let rideIds = await addRides(city.sql, region, 80, 600_000);
    const done = new Map<string, number>();
    const endsAt = performance.now() + MIX_SECONDS * 1_000;
    const latestEndsAt = endsAt + 30_000;
    const random = createRandom('mixed minute');

    const some = <T>(from: readonly T[], most = 50): T[] =>
      Array.from({ length: Math.min(most, from.length) }, () => random.pick(from));
    /** Asks for all at once, so that they are gathered into sets; those that meet held rows then wait alone. */
    const all = async <T>(
      what: string,
      items: readonly T[],
      ask: (leasing: Leasing, item: T) => Promise<{ refused: string | null; applied: boolean }>,
    ): Promise<void> => {
      const leasing = random.pick(leasings);
      for (const { refused, applied } of await Promise.all(items.map((item) => ask(leasing, item)))) {
        const outcome = `${what} ${refused ?? (applied ? 'applied' : 'repeated')}`;
        done.set(outcome, (done.get(outcome) ?? 0) + 1);
      }
    };
    const work: Record<string, () => Promise<void>> = {
      lease: async () => {
        const asks = some(rideIds).map((rideId) => ({
          rideId,
          driverId: random.pick(city.driverIds),
          offerId: newId(region),
          leaseToken: newLeaseToken(),
          pickupEtaS: 1,
        }));
        const answers = await t.leaseDrivers(sql, region, asks, { ...leaseTerms, ...policy }, false);
        asks.forEach((ask, i) => {
          const { refused, fence } = answers[i]!;
          // Some holders crash right away: their leases have to lapse.
          if (refused === null && random.chance(0.7)) terms.push({ ...ask, fence });
          done.set(`lease ${refused ?? 'applied'}`, (done.get(`lease ${refused ?? 'applied'}`) ?? 0) + 1);
        });
        terms.splice(0, Math.max(0, terms.length - 120));
      },
      receive: () => all('receive', some(terms), (leasing, term) => leasing.received(region, term)),
      confirm: () => all('confirm', some(terms), (leasing, term) => leasing.confirm(region, term)),
      decline: () => all('decline', some(terms, 8), (leasing, term) => leasing.decline(region, term, 'mix')),
      release: () => all('release', some(terms, 8), (leasing, term) => leasing.release(region, term, 'mix')),
      expire: async () => {
        const ended = await random.pick(leasings).expire(region);
        done.set('expire applied', (done.get('expire applied') ?? 0) + ended);
      },
      cancel: async () => {
        await all('cancel', some(rideIds, 1), (leasing, rideId) =>
          leasing.cancel(region, { rideId, riderId: null, source: 'operator', reason: 'mix' }),
        );
        rideIds = [...rideIds.slice(1), ...(await addRides(sql, region, 1, 600_000))];
      },
      advance: () =>
        all('advance', some(terms), (leasing, { rideId, driverId }) =>
          leasing.advance(region, {
            rideId,
            driverId,
            status: random.pick(['driver_arrived', 'in_progress', 'completed'] as const),
          }),
        ),
      leave: () =>
        all('leave', some(terms, 5), (leasing, { rideId, driverId }) =>
          leasing.unassign(region, { rideId, driverId, reason: 'mix' }),
        ),
      assign: async () => {
        const asks = some(rideIds, 5).map((rideId) => ({
          rideId,
          driverId: random.pick(city.driverIds),
          offerId: newId(region),
          leaseToken: newLeaseToken(),
          pickupEtaS: 1,
        }));
        const answers = await t.assignDrivers(sql, region, asks, { ...leaseTerms, ...policy }, false);
        asks.forEach((ask, i) => {
          const { refused, fence } = answers[i]!;
          if (refused === null) terms.push({ ...ask, fence });
          done.set(`assign ${refused ?? 'applied'}`, (done.get(`assign ${refused ?? 'applied'}`) ?? 0) + 1);
        });
      },
      reassign: () =>
        all('reassign', some(terms, 5), async (leasing, { rideId, driverId: fromDriverId }) => {
          const to = random.pick(city.driverIds.filter((driverId) => driverId !== fromDriverId));
          const ask = { rideId, driverId: to, fromDriverId, source: 'operator' as const, reason: 'mix' };
          const place = { pickup: CENTER, dropoff: CENTER, pickupEtaS: 1 };
          return leasing.reassign(region, { ...ask, ...place }, { ...leaseTerms, ...policy });
        }),
      better: () =>
        all('better', some(terms, 5), async (leasing, { rideId, driverId: fromDriverId }) => {
          const to = random.pick(city.driverIds.filter((driverId) => driverId !== fromDriverId));
          const ask = { rideId, driverId: to, fromDriverId, source: 'system' as const, reason: 'replaced' };
          const place = { pickup: CENTER, dropoff: CENTER, pickupEtaS: 1 };
          return leasing.reassign(region, { ...ask, ...place }, { ...leaseTerms, ...policy });
        }),
      hold: () => all('hold', some(rideIds, 2), (leasing, rideId) => leasing.hold(region, rideId, 'mix')),
      releaseHold: () =>
        all('releaseHold', some(rideIds, 10), (leasing, rideId) => leasing.releaseHold(region, rideId, 'mix')),
      stall: async () => {
        const pickups = some(terms).map(({ rideId, offerId }) => ({ rideId, offerId, stalledMs: 60_000 }));
        const flagged = await t.flagPickups(sql, region, pickups);
        done.set('stall applied', (done.get('stall applied') ?? 0) + flagged.length);
      },
      replaceStalled: async () => {
        const replaced = await random.pick(leasings).replaceStalled(region, some(terms));
        done.set('replaceStalled applied', (done.get('replaceStalled applied') ?? 0) + replaced);
      },
      noShow: async () => {
        await sql`update rides set no_show_at = updated_at where id in (
          select id from rides where status = 'driver_arrived' order by random() limit 1 for update skip locked)`;
        const cancelled = await random.pick(leasings).cancelNoShows(region);
        done.set('noShow applied', (done.get('noShow applied') ?? 0) + cancelled);
        if (cancelled > 0)
          rideIds = [...rideIds.slice(cancelled), ...(await addRides(sql, region, cancelled, 600_000))];
      },
      offline: () =>
        all('offline', some(city.driverIds, 1), (leasing, driverId) =>
          leasing.offline(region, { driverId, overSocket: false }),
        ),
      online: () =>
        all('online', some(city.driverIds), (leasing, driverId) =>
          leasing.online(region, { driverId, overSocket: false }),
        ),
    };
    // A mix that was too tame would prove nothing; on a busy machine it takes longer.
    const isTame = (): boolean => Object.keys(work).some((what) => (done.get(`${what} applied`) ?? 0) <= 10);
    await Promise.all(
      Object.values(work).flatMap((run) =>
        [1, 2].map(async () => {
          while (performance.now() < (isTame() ? latestEndsAt : endsAt)) {
            await run();
            // With nothing to ask for, the others still need their turn.
            await nextTurn();
          }
        }),
      ),
    );

    for (const what of Object.keys(work)) expect(done.get(`${what} applied`), what).toBeGreaterThan(10);
    const verification = await verify(city.url);
    expect(verification.invariants.filter(({ violations }) => violations > 0)).toEqual([]);
    expect(verification.checked).toBeGreaterThan(1_000);
  },
  (MIX_SECONDS + 60) * 1_000,
);
