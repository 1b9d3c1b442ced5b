/**
 * What a transition does that meets rows which another one holds: it stands at its lock step, and then judges by what the
 * other left behind; or, asked not to wait, it says `busy` at once and has done nothing.
 */
import { afterAll, describe, expect, test } from 'vitest';
import type { Sql } from '../../src/database/connection.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as t from '../../src/leasing/transitions.ts';
import {
  addRegion,
  addRides,
  assign,
  lease,
  leaseTerms,
  moveExpiry,
  openCity,
  type City,
  type Term,
} from '../support/city.ts';

const city = await openCity(16, { parallelOffers: 2 });
const twin = await addRegion(city.sql, 'twin');
afterAll(() => city[Symbol.asyncDispose]());
const { region } = city;
const TERMS: t.LeaseTerms = { ...leaseTerms, parallelOffers: 2 };

interface Answer {
  readonly refused: string | null;
  readonly applied?: boolean;
}
/** A transition of the scene, on a connection, waiting or not. */
type Step = (sql: Sql, scene: Scene, wait: boolean) => Promise<readonly Answer[]>;

/** d1 and d2 have a ride's offers, d3 another ride; `free` searches, and d4 is available. */
interface Scene {
  readonly one: Term;
  readonly two: Term;
  readonly driving: Term;
  readonly free: string;
  /** Nobody's business: it has offers out, to d6 and d7. */
  readonly elsewhere: string;
}

const ask = (rideId: string, driverId: string): t.LeaseAsk => ({
  rideId,
  driverId,
  offerId: newId(region),
  leaseToken: newLeaseToken(),
  pickupEtaS: 1,
});
const leaseFor =
  (pair: (scene: Scene) => readonly [string, string], terms = TERMS): Step =>
  (sql, scene, wait) =>
    t.leaseDrivers(sql, region, [ask(...pair(scene))], terms, wait);
const assignFor =
  (pair: (scene: Scene) => readonly [string, string]): Step =>
  (sql, scene, wait) =>
    t.assignDrivers(sql, region, [ask(...pair(scene))], TERMS, wait);
const confirm =
  (which: 'one' | 'two'): Step =>
  (sql, scene, wait) =>
    t.confirmOffers(sql, region, [scene[which]], wait);
const receive: Step = (sql, { one }, wait) => t.receiveOffers(sql, region, [one], wait);
const give =
  (status: 'declined' | 'withdrawn'): Step =>
  (sql, { one }, wait) =>
    t.returnOffers(sql, region, [{ ...one, reason: 'test' }], status, wait);
const cancel =
  (which: 'one' | 'driving'): Step =>
  (sql, scene, wait) =>
    t.cancelRides(sql, region, [{ rideId: scene[which].rideId, riderId: null, source: 'rider', reason: 'test' }], wait);
const advance =
  (...steps: t.RideStep[]): Step =>
  async (sql, { driving: { rideId, driverId } }, wait) => {
    const answers = [];
    for (const status of steps)
      answers.push(...(await t.advanceRides(sql, region, [{ rideId, driverId, status }], wait)));
    return answers.slice(-1);
  };
const unassign: Step = (sql, { driving: { rideId, driverId } }, wait) =>
  t.unassignRides(sql, region, [{ rideId, driverId, reason: 'test' }], wait);
const reassign =
  (source: 'operator' | 'system' = 'operator'): Step =>
  async (sql, { driving: { rideId, driverId } }) => {
    const to = { ...ask(rideId, 'd4'), fromDriverId: driverId, source, reason: 'test' };
    return [await t.reassignRide(sql, region, to, TERMS)];
  };
const hold: Step = async (sql, { free }) => [await t.holdRide(sql, region, free, 'test')];
const holdOffered: Step = async (sql, { one }) => [await t.holdRide(sql, region, one.rideId, 'test')];
const releaseHold: Step = async (sql, { free }) => [await t.releaseHold(sql, region, free, 'test')];
const offline =
  (driverId: string): Step =>
  (sql, _, wait) =>
    t.takeOffline(sql, region, [driverId], 'test', wait);
const online =
  (driverId: string): Step =>
  (sql, _, wait) =>
    t.bringOnline(sql, region, [driverId], wait);
const cancelFree: Step = (sql, { free }, wait) =>
  t.cancelRides(sql, region, [{ rideId: free, riderId: null, source: 'rider', reason: 'test' }], wait);

/** A second time, outside of the transaction that is looked at. */
const cancelOver: Step = async (sql, scene, wait) => {
  await cancel('driving')(city.sql, scene, true);
  return cancel('driving')(sql, scene, wait);
};

async function setScene({ sql }: City): Promise<Scene> {
  await sql`truncate rides, offers, assignments, ride_events`;
  await sql`update driver_state set status = 'available', leased_to_ride_id = null, offer_id = null, lease_token = null,
    lease_granted_at = null, lease_received_at = null, lease_expires_at = null`;
  await sql`delete from driver_state where region = ${twin}`;
  const [offered, free, elsewhere] = (await addRides(sql, region, 3)) as [string, string, string];
  const terms = { parallelOffers: 2, deliveryTtlMs: 60_000, maxLifetimeMs: 60_000 };
  // d5 was asked for everything before, and has nothing to do with it any more.
  for (const rideId of [offered, free]) await decline(await lease(sql, region, rideId, 'd5'));
  const one = await lease(sql, region, offered, 'd1', terms);
  const two = await lease(sql, region, offered, 'd2', terms);
  const driving = await assign(city, 'd3');
  for (const driverId of ['d6', 'd7']) await lease(sql, region, elsewhere, driverId, terms);
  return { one, two, driving, free, elsewhere };
}

const decline = (term: Term): Promise<unknown> =>
  t.returnOffers(city.sql, region, [{ ...term, reason: 'test' }], 'declined', true);

const BYSTANDERS = ['d5', 'd6', 'd7', 'd8', 'd9', 'd10', 'd11', 'd12', 'd13', 'd14', 'd15', 'd16'];

/**
 * Another region in which the same ids stand for something else: the offers are another ride's and other drivers', and the
 * rides have been offered to others. Whoever forgets the region meets this one's bystanders.
 */
async function confuse({ elsewhere }: Scene): Promise<void> {
  const copy = (from: string, changes: string): string => `insert into ${from}
    select (jsonb_populate_record(x, jsonb_build_object('region', ${twin}) || ${changes})).* from ${from} x where region = ${region}`;
  // Those that are out first: a driver has one of them.
  const bystander = (after: number): string =>
    `(array['${BYSTANDERS.join(`', '`)}'])[${after} + (row_number() over (order by due_at is null) - 1) % 6]`;
  await city.sql.unsafe(
    [
      copy('rides', `case when assigned_driver_id is null then '{}' else '{"assigned_driver_id": "d6"}'::jsonb end`),
      copy('offers', `jsonb_build_object('ride_id', '${elsewhere}', 'driver_id', ${bystander(1)})`),
      copy('offers', `jsonb_build_object('id', gen_random_uuid(), 'driver_id', ${bystander(7)})`),
      copy(
        'driver_state',
        `case when offer_id is null then '{}' else '{"leased_to_ride_id": "${elsewhere}"}'::jsonb end`,
      ),
      `update offers set due_at = granted_at where region = ${twin} and due_at is not null`,
    ].join(';\n'),
  );
}

/** Until that many connections wait for a lock; looks far more often than any wait takes. */
async function untilWaiting(sql: Sql, count: number): Promise<void> {
  for (let look = 0; look < 20_000; look += 1) {
    const [row] = await sql<{ waiting: number }[]>`select count(distinct l.pid)::int as waiting from pg_locks l
      join pg_stat_activity a on a.pid = l.pid where not l.granted and a.datname = current_database()`;
    if (row!.waiting === count) return;
  }
  throw new Error('nobody waits');
}

/** Runs `first` in a transaction that is kept open, and `second` meanwhile. */
async function meet<T>(scene: Scene, first: Step, second: (letGo: () => void) => Promise<T>): Promise<T> {
  const letGo = Promise.withResolvers<void>();
  const isHeld = Promise.withResolvers<void>();
  const holding = city.database.cold.begin(async (tx) => {
    const [answer] = await first(tx as unknown as Sql, scene, true);
    expect(answer!.refused).toBeNull();
    isHeld.resolve();
    await letGo.promise;
  });
  await Promise.race([isHeld.promise, holding]);
  try {
    return await second(() => letGo.resolve());
  } finally {
    letGo.resolve();
    await holding;
  }
}

const TO_ONE = ({ one }: Scene) => [one.rideId, 'd4'] as const;
const TO_FREE = ({ free }: Scene) => [free, 'd4'] as const;
const ONE_PLACE = { ...TERMS, parallelOffers: 1 };

/** Which comes second, which first, and what the second hears: a refusal, or that it was `applied` or `repeated`. */
const MEETINGS: readonly (readonly [string, Step, Step, string])[] = [
  ['a lease of a ride that is being cancelled', leaseFor(TO_FREE), cancelFree, 'ride_not_searching'],
  [
    'a lease of a ride that is being offered',
    leaseFor(TO_FREE, ONE_PLACE),
    leaseFor(({ free }) => [free, 'd4']),
    'driver_unavailable',
  ],
  ['a lease of a driver who is being leased', leaseFor(TO_ONE), leaseFor(TO_FREE), 'driver_unavailable'],
  ['a lease of a ride that is being taken', leaseFor(TO_ONE), confirm('one'), 'ride_not_searching'],
  [
    'an assignment of a driver who is being leased',
    assignFor(TO_FREE),
    leaseFor(TO_ONE, { ...TERMS, parallelOffers: 3 }),
    'driver_unavailable',
  ],
  ['an assignment of a ride that is being cancelled', assignFor(TO_FREE), cancelFree, 'ride_not_searching'],
  ['a confirm of an offer whose ride is being cancelled', confirm('one'), cancel('one'), 'ride_cancelled'],
  ['a confirm of an offer that is being declined', confirm('one'), give('declined'), 'lease_lost'],
  ['a confirm of a ride that is being taken', confirm('one'), confirm('two'), 'ride_taken'],
  ['a confirm by a driver who is leaving', confirm('one'), offline('d1'), 'lease_lost'],
  ['a confirm that is repeated before its first answer', confirm('one'), confirm('one'), 'repeated'],
  ['a receipt of an offer that is being declined', receive, give('declined'), 'lease_lost'],
  ['a receipt that is repeated before its first answer', receive, receive, 'repeated'],
  ['a decline of an offer that is being confirmed', give('declined'), confirm('one'), 'lease_lost'],
  ['a release of an offer whose ride is being taken', give('withdrawn'), confirm('two'), 'ride_taken'],
  [
    'a cancel of a ride whose trip begins',
    cancel('driving'),
    advance('driver_arrived', 'in_progress'),
    'ride_in_progress',
  ],
  ['a cancel that is repeated before its first answer', cancel('one'), cancel('one'), 'repeated'],
  ['a step of a ride that is being given back', advance('driver_arrived'), unassign, 'wrong_driver'],
  ['a step of a ride that is being cancelled', advance('driver_arrived'), cancel('driving'), 'ride_cancelled'],
  ['a ride given back whose trip begins', unassign, advance('driver_arrived', 'in_progress'), 'ride_in_progress'],
  ['a ride given back twice', unassign, unassign, 'repeated'],
  [
    'a ride given to another whose trip begins',
    reassign(),
    advance('driver_arrived', 'in_progress'),
    'ride_in_progress',
  ],
  ['a ride given to another who is being leased', reassign(), leaseFor(TO_FREE), 'driver_unavailable'],
  ['a better driver for a ride whose own arrives', reassign('system'), advance('driver_arrived'), 'wrong_phase'],
  ['a hold of a ride that is being cancelled', hold, cancelFree, 'ride_not_searching'],
  ['a hold that is repeated before its first answer', hold, hold, 'repeated'],
  ['a hold released of a ride that is being cancelled', releaseHold, cancelFree, 'ride_not_searching'],
  ['a shift’s end of a driver who is being assigned', offline('d4'), assignFor(TO_FREE), 'driver_assigned'],
  ['a shift’s end of a driver who is being leased', offline('d4'), leaseFor(TO_FREE), 'busy'],
  ['a shift’s beginning of a driver who leaves', online('d4'), offline('d4'), 'applied'],
];

describe('waits, and then goes by what it finds', () => {
  test.each(MEETINGS)('%s', async (_, second, first, heard) => {
    const scene = await setScene(city);
    await confuse(scene);
    const answers = await meet(scene, first, async (letGo) => {
      const waiting = second(city.sql, scene, true);
      await Promise.race([untilWaiting(city.sql, 1), waiting]);
      letGo();
      return waiting;
    });
    const said = ({ refused, applied }: Answer): string => refused ?? (applied === true ? 'applied' : 'repeated');
    expect(answers.map(said)).toEqual([heard]);
  });
});

test('two rides that change their drivers with each other’s: one after the other, and no deadlock', async () => {
  await setScene(city);
  const swap = async (sql: Sql, from: string, to: string) => {
    const [row] = await city.sql<{ id: string }[]>`
      select id from rides where region = ${region} and assigned_driver_id = ${from}`;
    const there = { ...ask(row!.id, to), fromDriverId: from, source: 'operator' as const, reason: 'test' };
    return t.reassignRide(sql, region, there, TERMS);
  };
  await assign(city, 'd4');
  const answers = await city.database.cold.begin(async (tx) => {
    // d4 is held until both wait: the first for d4, the second for whatever it needs first.
    await tx`select from driver_state where region = ${region} and driver_id = 'd4' for no key update`;
    const first = swap(city.sql, 'd4', 'd3');
    await untilWaiting(city.database.cold, 1);
    const second = swap(city.sql, 'd3', 'd4');
    await untilWaiting(city.database.cold, 2);
    return { both: Promise.all([first, second]) };
  });
  expect((await answers.both).map(({ refused }) => refused)).toEqual(['driver_unavailable', 'driver_unavailable']);
});

type Held = 'ride' | 'driver';
const whose: Record<Held, (scene: Scene) => Record<'one' | 'driving' | 'free', string>> = {
  ride: ({ one, driving, free }) => ({ one: one.rideId, driving: driving.rideId, free }),
  driver: ({ one, driving }) => ({ one: one.driverId, driving: driving.driverId, free: 'd4' }),
};

/** Holds one row while `work` runs. */
async function whileHeld<T>(held: Held, id: string, work: () => Promise<T>): Promise<T> {
  return city.database.cold.begin(async (tx) => {
    if (held === 'ride') await tx`select from rides where region = ${region} and id = ${id} for no key update`;
    else await tx`select from driver_state where region = ${region} and driver_id = ${id} for no key update`;
    return work();
  }) as Promise<T>;
}

describe.each<Held>(['ride', 'driver'])(
  'asked not to wait, while somebody else holds the %s, is busy at once:',
  (held) => {
    test.each<[string, Step, 'one' | 'driving' | 'free']>([
      ['lease', leaseFor(TO_FREE), 'free'],
      ['assign', assignFor(TO_FREE), 'free'],
      ['received', receive, 'one'],
      ['confirm', confirm('one'), 'one'],
      ['decline', give('declined'), 'one'],
      ['release', give('withdrawn'), 'one'],
      ['cancel', cancel('one'), 'one'],
      ['cancel of an assigned ride', cancel('driving'), 'driving'],
      ['driver cancel', unassign, 'driving'],
      ['a step', advance('driver_arrived'), 'driving'],
      ['a shift’s end', offline('d1'), 'one'],
    ])('%s', async (_, step, of) => {
      const scene = await setScene(city);
      const before = await city.everything();
      const answers = await whileHeld(held, whose[held](scene)[of], () => step(city.sql, scene, false));
      expect(answers.map(({ refused }) => refused)).toEqual(['busy']);
      expect(await city.everything()).toEqual(before);
      expect(await step(city.sql, scene, false)).toMatchObject([{ refused: null }]);
    });
  },
);

test('a shift’s beginning, asked not to wait while somebody else holds the driver, is busy at once', async () => {
  const scene = await setScene(city);
  await t.takeOffline(city.sql, region, ['d4'], 'test', true);
  const asked = () => online('d4')(city.sql, scene, false);
  expect(await whileHeld('driver', 'd4', asked)).toMatchObject([{ refused: 'busy', applied: false }]);
  expect(await city.driver('d4')).toMatchObject({ status: 'offline' });
  expect(await asked()).toMatchObject([{ refused: null, applied: true }]);
});

describe('locks nothing that is nobody else’s business:', () => {
  /** Of the bystanders, those whose rows somebody else could have now. */
  const bystanders = ({ elsewhere }: Scene) => city.sql`
    select id::text from rides where region = ${region} and id = ${elsewhere} for no key update skip locked`;
  const otherDrivers = (ids: string[]) => city.sql`select driver_id from driver_state
    where region = ${region} and driver_id = any(${ids}) for no key update skip locked`;

  test.each<[string, Step, string[]]>([
    ['a lease', leaseFor(TO_FREE), ['d1', 'd3']],
    ['an assignment', assignFor(TO_FREE), ['d1', 'd3']],
    ['a receipt', receive, ['d2', 'd3', 'd4']],
    ['a confirm', confirm('one'), ['d3', 'd4']],
    ['a decline', give('declined'), ['d2', 'd3', 'd4']],
    ['a cancel', cancel('one'), ['d3', 'd4']],
    ['a cancel of an assigned ride', cancel('driving'), ['d1', 'd4']],
    ['a cancel of a ride that is over', cancelOver, ['d1', 'd3', 'd4']],
    ['a driver’s cancel', unassign, ['d1', 'd4']],
    ['a step', advance('driver_arrived'), ['d1', 'd4']],
    ['a ride given to another', reassign(), ['d1', 'd2']],
    ['a hold', hold, ['d1', 'd3', 'd4']],
    ['a hold of a ride that is offered', holdOffered, ['d3', 'd4']],
    ['a shift’s end', offline('d1'), ['d2', 'd3', 'd4']],
    ['a shift’s end of somebody who is free', offline('d4'), ['d1', 'd2', 'd3']],
  ])('%s', async (_, step, others) => {
    const scene = await setScene(city);
    await confuse(scene);
    const free = [...BYSTANDERS, ...others];
    const seen = await meet(scene, step, async () => [await bystanders(scene), await otherDrivers(free)]);
    expect(seen[0]).toHaveLength(1);
    expect(seen[1]!.map((row) => row['driver_id'] as string).toSorted()).toEqual(free.toSorted());
  });

  test('a shift’s end of a driver who is on the way: not even his ride', async () => {
    const scene = await setScene(city);
    const refused: Step = async (sql) => {
      expect(await offline('d3')(sql, scene, true)).toMatchObject([{ refused: 'driver_assigned' }]);
      return [{ refused: null }];
    };
    const { rideId } = scene.driving;
    const rides = await meet(
      scene,
      refused,
      () => city.sql`select id from rides where id = ${rideId} for no key update skip locked`,
    );
    expect(rides).toHaveLength(1);
  });

  test('a sweep', async () => {
    const scene = await setScene(city);
    await confuse(scene);
    await moveExpiry(city.sql, region, ['d1'], -120_000);
    const sweep: Step = async (sql) => {
      const ended = await t.expireLeases(sql, region, t.FROM_THE_FIRST, 10);
      expect(ended.map(({ driver_id: driver }) => driver)).toEqual(['d1']);
      return [{ refused: null }];
    };
    const free = ['d2', 'd3', 'd4', ...BYSTANDERS];
    const seen = await meet(scene, sweep, async () => [await bystanders(scene), await otherDrivers(free)]);
    expect(seen.map((rows) => rows.length)).toEqual([1, free.length]);
  });
});

describe('the end of an absent driver’s shift', () => {
  const retire = (sql: Sql) => t.retireAbsent(sql, region, 'd3', 100, 30_000);
  /** d4, d5, d8 and d9 haven’t been seen for a minute, somebody else has just been. */
  async function setAbsence(): Promise<Scene> {
    const scene = await setScene(city);
    const ago = city.sql`clock_timestamp() - interval '1 minute'`;
    await city.sql`update driver_state set updated_at = ${ago} where status = 'available'`;
    await city.sql`delete from driver_presence`;
    await city.sql`insert into driver_presence (region, driver_id, seen_at) values (${region}, 'd1', clock_timestamp())`;
    return scene;
  }

  test('never waits for one whom somebody else holds, and passes him by', async () => {
    await setAbsence();
    const retired = await whileHeld('driver', 'd4', () =>
      city.sql.begin(async (tx) => {
        await tx`set local lock_timeout = '1s'`;
        return (await retire(tx as unknown as Sql)).retired;
      }),
    );
    expect(retired.toSorted()).toEqual(['d5', 'd8', 'd9']);
    expect(await city.driver('d4')).toMatchObject({ status: 'available' });
  });

  test('passes by whoever is leased or seen between the look and the lock', async () => {
    const { free } = await setAbsence();
    const meanwhile = await city.database.cold.begin(async (tx) => {
      // Reads go on, a lock of any row waits: it has looked, and hasn’t locked.
      await tx`lock table driver_state in exclusive mode`;
      const retiring = retire(city.sql);
      await untilWaiting(city.database.cold, 1);
      await lease(tx as unknown as Sql, region, free, 'd4');
      await tx`insert into driver_presence (region, driver_id, seen_at) values (${region}, 'd5', clock_timestamp())`;
      return { retiring };
    });
    expect((await meanwhile.retiring).retired.toSorted()).toEqual(['d8', 'd9']);
    expect(await city.driver('d4')).toMatchObject({ status: 'leased', leased_to_ride_id: free });
    expect(await city.driver('d5')).toMatchObject({ status: 'available' });
  });
});

describe('a sweep', () => {
  const sweep = () => t.expireLeases(city.sql, region, t.FROM_THE_FIRST, 10);
  const endOf = async () => (await sweep()).map(({ driver_id: driver, ended_as: end }) => [driver, end]);

  test.each<Held>(['ride', 'driver'])(
    'doesn’t wait for a %s that somebody else holds, and ends the others',
    async (held) => {
      const scene = await setScene(city);
      const other = await lease(city.sql, region, scene.free, 'd4');
      await moveExpiry(city.sql, region, ['d1', 'd4'], -120_000);
      expect((await whileHeld(held, whose[held](scene).one, endOf)).toSorted()).toEqual([
        ['d1', null],
        ['d4', 'undeliverable'],
      ]);
      expect(await city.offer(scene.one.offerId)).toMatchObject({ status: 'pending' });
      expect(await city.offer(other.offerId)).toMatchObject({ status: 'undeliverable' });
      expect(await endOf()).toEqual([['d1', 'undeliverable']]);
    },
  );

  test('ends what is over among what isn’t, each as it was received, and looks at the others again at their ends', async () => {
    const scene = await setScene(city);
    const { sql } = city;
    await t.receiveOffers(sql, region, [scene.two], true);
    const late = await lease(sql, region, scene.free, 'd4');
    // d1, d2 and d7 are over, d6 is looked at too early and before them, d4 isn't looked at.
    await moveExpiry(sql, region, ['d1', 'd2', 'd7'], -120_000);
    await sql`update offers set due_at = granted_at - interval '1 hour' where due_at is not null and driver_id = 'd6'`;
    const before = {
      ride: await city.ride(scene.free),
      d4: await city.driver('d4'),
      late: await city.offer(late.offerId),
    };
    const looked = await sweep();
    expect(looked.map(({ driver_id: id, ended_as: end }) => [id, end]).toSorted()).toEqual([
      ['d1', 'undeliverable'],
      ['d2', 'expired'],
      ['d6', null],
      ['d7', 'undeliverable'],
    ]);
    for (const [rideId, ends] of [
      [scene.one.rideId, ['offer_expired', 'offer_undeliverable']],
      [scene.elsewhere, ['offer_undeliverable']],
    ] as const)
      // In the order of their ids, and two of the same millisecond have no other.
      expect((await city.events(rideId)).slice(-ends.length).toSorted()).toEqual(ends);
    for (const { driver_id: id, late_ms: lateMs, held_ms: heldMs } of looked.filter((each) => each.ended_as !== null)) {
      expect(lateMs, id).toBeGreaterThan(0);
      expect(heldMs, id).toBeGreaterThan(lateMs);
    }
    expect(await city.offer(scene.one.offerId)).toMatchObject({ status: 'undeliverable', due_at: null });
    expect(await city.offer(scene.two.offerId)).toMatchObject({ status: 'expired', due_at: null });
    const after = {
      ride: await city.ride(scene.free),
      d4: await city.driver('d4'),
      late: await city.offer(late.offerId),
    };
    expect(after).toEqual(before);
    for (const id of ['d4', 'd6']) {
      const [row] = await sql`select o.due_at = d.lease_expires_at as same from driver_state d
        join offers o on o.region = d.region and o.id = d.offer_id where d.region = ${region} and d.driver_id = ${id}`;
      expect(row, id).toEqual({ same: true });
    }
    expect(await sweep()).toEqual([]);
    // Nothing is given back to a cursor that is past it.
    await moveExpiry(sql, region, ['d4', 'd6'], -120_000);
    const [first] = await t.expireLeases(sql, region, t.FROM_THE_FIRST, 1);
    const [left] = await sql<{ id: string }[]>`update offers set due_at = ${first!.due_at}::text::timestamptz
      where due_at is not null and driver_id in ('d4', 'd6') returning id`;
    expect(await t.expireLeases(sql, region, { due_at: first!.due_at, offer_id: left!.id }, 10)).toEqual([]);
    // What ends at the same time, and comes later, isn't passed over.
    const place = { due_at: first!.due_at, offer_id: '00000000-0000-0000-0000-000000000000' };
    expect(await t.expireLeases(sql, region, place, 10)).toMatchObject([
      { offer_id: left!.id, ended_as: 'undeliverable' },
    ]);
  });

  test('renews no look at what others hold', async () => {
    const scene = await setScene(city);
    await city.sql`update offers set due_at = granted_at where due_at is not null and driver_id = 'd1'`;
    for (const held of ['ride', 'driver'] as const) {
      const looked = () => whileHeld(held, whose[held](scene).one, sweep);
      expect(await looked()).toMatchObject([{ driver_id: 'd1', ended_as: null }]);
      // As it was: it is looked at again.
      expect(await looked()).toMatchObject([{ driver_id: 'd1', ended_as: null }]);
    }
    expect(await sweep()).toHaveLength(1);
    expect(await sweep()).toEqual([]);
  });

  test('leaves alone what is renewed, declined or taken under it', async () => {
    const looks: Record<string, Step> = { renewed: receive, declined: give('declined'), taken: confirm('two') };
    for (const [what, step] of Object.entries(looks)) {
      const scene = await setScene(city);
      await city.sql`update offers set due_at = granted_at where due_at is not null and driver_id = 'd1'`;
      expect(await meet(scene, step, endOf), what).toEqual([['d1', null]]);
      expect((await city.offer(scene.one.offerId))['status'], what).not.toBe('undeliverable');
    }
  });
});
