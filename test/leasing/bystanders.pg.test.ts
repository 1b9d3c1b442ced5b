/** What a transition leaves alone: the other items of its set, the other rides of its drivers, the other region. */
import { afterAll, describe, expect, test } from 'vitest';
import { cellOf } from '../../domain/geo.ts';
import type { Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as t from '../../src/leasing/transitions.ts';
import { addRegion, addRides, CENTER, lease, leaseTerms, moveExpiry, openCity, type Term } from '../support/city.ts';

const city = await openCity(0);
afterAll(() => city[Symbol.asyncDispose]());
const { sql } = city;

/** A region of its own with drivers of its own. */
async function openRegion(name: string, drivers = 2): Promise<{ region: number; driverIds: string[] }> {
  const region = await addRegion(sql, name);
  const driverIds = Array.from({ length: drivers }, (_, i) => `${name}-d${i + 1}`);
  await sql`insert into drivers (id, region, vehicle_class) select id, ${region}, 'economy' from unnest(${driverIds}::text[]) id`;
  await sql`insert into driver_state (region, driver_id, status, vehicle_class, updated_at)
    select ${region}, id, 'available', 'economy', clock_timestamp() from unnest(${driverIds}::text[]) id`;
  const position = { ...CENTER, cell: cellOf(CENTER) };
  await t.recordPositions(
    sql,
    region,
    driverIds.map((driverId) => ({ driverId, position })),
  );
  return { region, driverIds };
}

async function assignOne(region: number, driverId: string): Promise<Term> {
  const [rideId] = await addRides(sql, region, 1);
  const term = await lease(sql, region, rideId!, driverId);
  expect(await t.confirmOffers(sql, region, [term], true)).toMatchObject([{ applied: true }]);
  return term;
}

const step = ({ rideId, driverId }: Term, status: 'driver_arrived' | 'in_progress' | 'completed') => ({
  rideId,
  driverId,
  status,
});
const riderCancels = (rideId: string, riderId: string | null = null) => ({
  rideId,
  riderId,
  source: 'rider' as const,
  reason: 'test',
});
const givesBack = ({ rideId, driverId }: Term) => ({ rideId, driverId, reason: 'test' });

/** By the system: an operator may give a ride away at any time before the trip. */
const givenTo = (region: number, { rideId, driverId }: Term, toDriverId: string) =>
  t.reassignRide(
    sql,
    region,
    {
      rideId,
      fromDriverId: driverId,
      driverId: toDriverId,
      source: 'system',
      reason: 'replaced',
      offerId: newId(region),
      leaseToken: newLeaseToken(),
      pickupEtaS: 1,
    },
    leaseTerms,
  );

const TABLES = ['rides', 'offers', 'assignments', 'ride_events', 'driver_state', 'driver_presence'] as const;
const rowsOf = (region: number) =>
  Promise.all(TABLES.map((table) => sql`select * from ${sql(table)} where region = ${region} order by 1, 2, 3`));

/** The same rows in another region, ids and all. */
async function twinOf(region: number, name: string): Promise<number> {
  const twin = await addRegion(sql, name);
  for (const table of TABLES)
    await sql`insert into ${sql(table)} select (jsonb_populate_record(null::${sql(table)},
      to_jsonb(x) || jsonb_build_object('region', ${twin}::int))).* from ${sql(table)} x where region = ${region}`;
  return twin;
}

/** What `act` answers, in a transaction that is taken back: each that follows finds the rows in the same places. */
async function undone<T>(act: (tx: Sql) => Promise<T>): Promise<T> {
  const done: T[] = [];
  const undo = new Error('undo');
  await sql
    .begin(async (tx) => {
      done.push(await act(tx as unknown as Sql));
      throw undo;
    })
    .catch((error: unknown) => {
      if (error !== undo) throw error;
    });
  return done[0]!;
}

describe('a region with the same ids is left alone by', () => {
  const offered = async (region: number, driverId: string): Promise<Term> => {
    const [rideId] = await addRides(sql, region, 1);
    return lease(sql, region, rideId!, driverId);
  };
  test.each<
    [
      string,
      (region: number, driverId: string) => Promise<Term>,
      (region: number, term: Term) => Promise<readonly object[]>,
      object,
    ]
  >([
    [
      'a cancel',
      offered,
      (region, { rideId }) => t.cancelRides(sql, region, [riderCancels(rideId)], true),
      { withdrawn_driver_ids: [expect.anything()] },
    ],
    [
      'a cancel of an assigned ride',
      assignOne,
      (region, { rideId }) => t.cancelRides(sql, region, [riderCancels(rideId)], true),
      { applied: true },
    ],
    [
      'a driver’s cancel',
      assignOne,
      (region, term) => t.unassignRides(sql, region, [givesBack(term)], true),
      { applied: true },
    ],
    [
      'a step',
      assignOne,
      (region, term) => t.advanceRides(sql, region, [step(term, 'driver_arrived')], true),
      { applied: true },
    ],
    [
      'a ride given to another',
      assignOne,
      async (region, term) => [await givenTo(region, term, term.driverId.replace(/d1$/, 'd2'))],
      { refused: null, applied: true },
    ],
    [
      'a hold',
      offered,
      async (region, { rideId }) => [await t.holdRide(sql, region, rideId, 'test')],
      { applied: true, withdrawn_offer_ids: [expect.anything()] },
    ],
    [
      'the release of a hold',
      async (region, driverId) => {
        const term = await offered(region, driverId);
        await t.holdRide(sql, region, term.rideId, 'test');
        return term;
      },
      async (region, { rideId }) => [await t.releaseHold(sql, region, rideId, 'test')],
      { applied: true },
    ],
    [
      'the end of a shift',
      async (_, driverId) => ({ driverId }) as Term,
      (region, { driverId }) => t.takeOffline(sql, region, [driverId], 'test', true),
      { applied: true },
    ],
    [
      'the end of a shift with an offer out',
      offered,
      (region, { driverId }) => t.takeOffline(sql, region, [driverId], 'test', true),
      { applied: true, ended_offer_id: expect.anything() },
    ],
    [
      'a sweep that looks early',
      async (region, driverId) => {
        const term = await offered(region, driverId);
        await sql`update offers set due_at = clock_timestamp() - interval '1 second' where region = ${region}`;
        return term;
      },
      (region) => t.expireLeases(sql, region, t.FROM_THE_FIRST, 10),
      { ended_as: null },
    ],
    [
      'a sweep',
      async (region, driverId) => {
        const term = await offered(region, driverId);
        await moveExpiry(sql, region, [driverId], -60_000);
        return term;
      },
      (region) => t.expireLeases(sql, region, t.FROM_THE_FIRST, 10),
      { ended_as: 'undeliverable' },
    ],
    [
      'a look for leases of a clock that was ahead',
      async (region, driverId) => {
        const term = await offered(region, driverId);
        await sql`update offers set granted_at = granted_at + interval '1 hour', expires_at = expires_at + interval '1 hour',
          lifetime_ends_at = lifetime_ends_at + interval '1 hour' where region = ${region}`;
        return term;
      },
      (region) => t.termsAhead(sql, region, 10),
      { lifetime_ms: leaseTerms.maxLifetimeMs },
    ],
    [
      'the end of a lease of a clock that was ahead',
      offered,
      (region, { offerId }) => t.endTermsAhead(sql, region, [offerId]),
      { ended_as: 'undeliverable' },
    ],
    [
      'a ride’s wait for a clock that was ahead',
      async (region, driverId) => {
        await addRides(sql, region, 1);
        await sql`update rides set queue_at = queue_at + interval '1 hour' where region = ${region}`;
        return { driverId } as Term;
      },
      async (region) => [{ moved: await t.bringRidesForward(sql, region, 1_000, 10) }],
      { moved: 1 },
    ],
  ])('%s', async (what, prepare, act, answer) => {
    const name = what.replaceAll(/[^a-z]/g, '');
    const { region, driverIds } = await openRegion(name);
    const term = await prepare(region, driverIds[0]!);
    // Both orders: whichever of the two is found first.
    const twin = await twinOf(region, `${name}-twin`);
    for (const [here, there] of [
      [region, twin],
      [twin, region],
    ] as const) {
      const before = await rowsOf(there);
      const answers = await act(here, term);
      expect(answers).toMatchObject([answer]);
      expect(await rowsOf(there)).toEqual(before);
    }
  });

  test('a step that ends a ride', async () => {
    const { region, driverIds } = await openRegion('last-step');
    const term = await assignOne(region, driverIds[0]!);
    for (const status of ['driver_arrived', 'in_progress'] as const)
      await t.advanceRides(sql, region, [step(term, status)], true);
    const twin = await twinOf(region, 'last-step-twin');
    const before = await rowsOf(twin);
    expect(await t.advanceRides(sql, region, [step(term, 'completed')], true)).toMatchObject([{ applied: true }]);
    expect(await rowsOf(twin)).toEqual(before);
  });

  test('a driver’s cancel that isn’t his: whoever gave the ride back elsewhere is a stranger here', async () => {
    const { region, driverIds } = await openRegion('gaveback');
    const [d1, d2] = driverIds as [string, string];
    const term = await assignOne(region, d1);
    const twin = await twinOf(region, 'gaveback-twin');
    await t.unassignRides(sql, region, [givesBack(term)], true);
    expect(await t.unassignRides(sql, twin, [{ ...givesBack(term), driverId: d2 }], true)).toMatchObject([
      { refused: 'wrong_driver' },
    ]);
    await t.unassignRides(sql, twin, [givesBack(term)], true);
    await sql`delete from ride_events where region = ${twin} and type = 'driver_cancelled'`;
    expect(await t.unassignRides(sql, twin, [givesBack(term)], true)).toMatchObject([{ refused: 'wrong_driver' }]);
  });
});

describe('what a region with the same ids has is nothing to', () => {
  test('a ride given to another: that its driver has arrived there', async () => {
    const { region, driverIds } = await openRegion('arrived');
    const term = await assignOne(region, driverIds[0]!);
    const twin = await twinOf(region, 'arrived-twin');
    await t.advanceRides(sql, twin, [step(term, 'driver_arrived')], true);
    expect(await givenTo(twin, term, driverIds[1]!)).toMatchObject({ refused: 'wrong_phase' });
    expect(await givenTo(region, term, driverIds[1]!)).toMatchObject({ refused: null, applied: true });
  });

  test('a hold: it withdraws what the ride has out here, and not what was declined here and is out there', async () => {
    const { region, driverIds } = await openRegion('holds');
    const [d1, d2] = driverIds as [string, string];
    const [rideId] = await addRides(sql, region, 1);
    const declined = await lease(sql, region, rideId!, d1);
    await twinOf(region, 'holds-twin');
    await t.returnOffers(sql, region, [{ ...declined, reason: 'test' }], 'declined', true);
    const out = await lease(sql, region, rideId!, d2);
    expect(await t.holdRide(sql, region, rideId!, 'test')).toMatchObject({
      applied: true,
      withdrawn_offer_ids: [out.offerId],
      withdrawn_driver_ids: [d2],
    });
    expect((await eventsOf(region, rideId!)).slice(-3)).toEqual(['offer_made', 'offer_withdrawn', 'ride_held']);
  });

  test('a hold and its release: each is dated by its own ride', async () => {
    const { region } = await openRegion('dated');
    const [rideId] = await addRides(sql, region, 1);
    const regions = [region, await twinOf(region, 'dated-twin')];
    // Recorded by clocks that were ahead, an hour and two.
    await sql`update rides set updated_at = clock_timestamp() + case region when ${region} then 1 else 2 end * interval '1 hour'
      where id = ${rideId!}`;
    const datedAt = async (tx: Sql, here: number) =>
      (await tx`select updated_at from rides where region = ${here} and id = ${rideId!}`)[0];
    const acts = [
      (tx: Sql, here: number) => t.holdRide(tx, here, rideId!, 'test'),
      (tx: Sql, here: number) => t.releaseHold(tx, here, rideId!, 'test'),
    ];
    for (const act of acts) {
      for (const here of regions) {
        const before = await datedAt(sql, here);
        const after = await undone(async (tx) => {
          expect(await act(tx, here)).toMatchObject({ applied: true });
          return datedAt(tx, here);
        });
        expect(after).toEqual(before);
      }
      for (const here of regions) await act(sql, here);
    }
  });

  test('a sweep that looks early: it looks again at the end of its own region’s term', async () => {
    const { region, driverIds } = await openRegion('ends-later');
    const [rideId] = await addRides(sql, region, 1);
    const { offerId } = await lease(sql, region, rideId!, driverIds[0]!);
    const regions = [region, await twinOf(region, 'ends-later-twin')];
    await sql`update driver_state set lease_expires_at = lease_expires_at + case region when ${region} then 1 else 2 end * interval '1 hour'
      where offer_id = ${offerId}`;
    await sql`update offers set due_at = granted_at where id = ${offerId}`;
    for (const here of regions) {
      const rows = await undone(async (tx) => {
        expect(await t.expireLeases(tx, here, t.FROM_THE_FIRST, 10)).toMatchObject([{ ended_as: null }]);
        return tx`select o.due_at = d.lease_expires_at as same from offers o
          join driver_state d on d.region = o.region and d.offer_id = o.id where o.region = ${here} and o.id = ${offerId}`;
      });
      expect(rows).toEqual([{ same: true }]);
    }
  });
});

describe('in a set, each has its own:', () => {
  test('steps', async () => {
    const { region, driverIds } = await openRegion('steps');
    const terms = await Promise.all(driverIds.map((driverId) => assignOne(region, driverId)));
    const answers = await t.advanceRides(
      sql,
      region,
      terms.map((term) => step(term, 'driver_arrived')),
      true,
    );
    expect(answers).toMatchObject([{ applied: true }, { applied: true }]);
    for (const { rideId } of terms)
      expect((await eventsOf(region, rideId)).filter((type) => type === 'driver_arrived')).toHaveLength(1);
  });

  test('driver cancels', async () => {
    const { region, driverIds } = await openRegion('givebacks');
    const terms = await Promise.all(driverIds.map((driverId) => assignOne(region, driverId)));
    expect(await t.unassignRides(sql, region, terms.map(givesBack), true)).toMatchObject([
      { applied: true },
      { applied: true },
    ]);
    for (const { rideId } of terms)
      expect((await eventsOf(region, rideId)).filter((type) => type === 'driver_cancelled')).toHaveLength(1);
  });

  test('shifts that end', async () => {
    const { region, driverIds } = await openRegion('ends', 3);
    const [d1, d2, d3] = driverIds as [string, string, string];
    const [first, second] = await addRides(sql, region, 2);
    const terms = [await lease(sql, region, first!, d1), await lease(sql, region, second!, d2)];
    const answers = await t.takeOffline(sql, region, [d1, d2], 'test', true);
    expect(answers.map(({ ended_offer_id }) => ended_offer_id)).toEqual(terms.map(({ offerId }) => offerId));
    expect(await sql`select driver_id from driver_presence where region = ${region}`).toMatchObject([
      { driver_id: d3 },
    ]);
  });

  test('shifts that begin', async () => {
    const { region, driverIds } = await openRegion('shifts');
    await t.takeOffline(sql, region, [driverIds[0]!], 'test', true);
    const answers = await t.bringOnline(sql, region, driverIds, true);
    expect(answers).toMatchObject([{ applied: true }, { applied: false }]);
  });

  test('cancels: a stranger’s leaves the ride’s offer out, and whoever asks second withdraws nothing', async () => {
    const { region, driverIds } = await openRegion('cancels');
    const [mine, other] = await addRides(sql, region, 2);
    await lease(sql, region, mine!, driverIds[0]!);
    const kept = await lease(sql, region, other!, driverIds[1]!);
    const asks = [riderCancels(mine!), riderCancels(other!, 'a stranger'), riderCancels(mine!, 'rider-1')];
    const answers = await t.cancelRides(sql, region, asks, true);
    expect(answers.map(({ refused }) => refused)).toEqual([null, 'wrong_rider', null]);
    expect(answers.map(({ withdrawn_offer_ids }) => withdrawn_offer_ids?.length ?? 0)).toEqual([1, 0, 0]);
    const [offer] = await sql`select status from offers where region = ${region} and id = ${kept.offerId}`;
    expect(offer).toMatchObject({ status: 'pending' });
  });
});

describe('of a driver’s rides only the one that is meant changes:', () => {
  test('a step leaves the rides before alone, and the rides of others', async () => {
    const { region, driverIds } = await openRegion('before');
    const [d1, d2] = driverIds as [string, string];
    const first = await assignOne(region, d1);
    for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
      await t.advanceRides(sql, region, [step(first, status)], true);
    const second = await assignOne(region, d1);
    const others = await assignOne(region, d2);
    const rideRows = (rideId: string) => sql`select r.*, a.ended_as from rides r
      join assignments a on a.region = r.region and a.ride_id = r.id where r.region = ${region} and r.id = ${rideId}`;
    const before = await Promise.all([first, others].map(({ rideId }) => rideRows(rideId)));
    for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
      await t.advanceRides(sql, region, [step(second, status)], true);
    expect(await Promise.all([first, others].map(({ rideId }) => rideRows(rideId)))).toEqual(before);
  });

  test('a driver’s cancel of another’s ride is his own mistake, also when he once gave a ride back; one that is over is over', async () => {
    const { region, driverIds } = await openRegion('mistakes');
    const [d1, d2] = driverIds as [string, string];
    await t.unassignRides(sql, region, [givesBack(await assignOne(region, d1))], true);
    const others = await assignOne(region, d2);
    expect(await t.unassignRides(sql, region, [{ ...givesBack(others), driverId: d1 }], true)).toMatchObject([
      { refused: 'wrong_driver' },
    ]);
    for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
      await t.advanceRides(sql, region, [step(others, status)], true);
    expect(await t.unassignRides(sql, region, [givesBack(others)], true)).toMatchObject([{ refused: 'ride_over' }]);
  });
});

test('a cancel that is asked not to wait is busy at once while somebody else holds its ride', async () => {
  const { region } = await openRegion('held');
  const [rideId] = await addRides(sql, region, 1);
  const answers = await city.database.cold.begin(async (tx) => {
    await tx`select from rides where region = ${region} and id = ${rideId!} for no key update`;
    return t.cancelRides(sql, region, [riderCancels(rideId!)], false);
  });
  expect(answers).toMatchObject([{ refused: 'busy', applied: false }]);
});

const eventsOf = async (region: number, rideId: string): Promise<string[]> =>
  (await sql`select type from ride_events where region = ${region} and ride_id = ${rideId} order by seq`).map(
    ({ type }) => type as string,
  );
