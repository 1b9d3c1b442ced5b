import { afterAll, beforeAll, expect, test } from 'vitest';
import { addPast } from '../../bench/past.ts';
import { createRandom } from '../../domain/random.ts';
import type { Sql } from '../../src/database/connection.ts';
import * as t from '../../src/leasing/transitions.ts';
import postgres from '../../src/database/postgres.ts';
import { checkIds, type CheckId } from '../../src/verify/catalog.ts';
import { Tally } from '../../src/verify/checks.ts';
import { Durations } from '../../src/verify/durations.ts';
import { cutIntoSlices, KeySums, type Slices } from '../../src/verify/key-sums.ts';
import { checkPlainRides } from '../../src/verify/plain-rides.ts';
import { wholeOf, type Reader } from '../../src/verify/reader.ts';
import { checkRides } from '../../src/verify/rides.ts';
import { readSignsOfLife, type SignsOfLife } from '../../src/verify/signs-of-life.ts';
import type { Sums } from '../../src/verify/sums.ts';
import { Chains } from '../../src/verify/terms.ts';
import { verify } from '../../src/verify/verify.ts';
import { addDrivers, addRegion, addRides, lease } from '../support/city.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { dropConstraints, withDatabase } from '../support/records.ts';

let database: TestDatabase;
let region: number;
let sql: Sql;
/** Two plain rides: of the second no event says that its offer was received. */
let rideIds: readonly string[];
beforeAll(async () => {
  database = await createTestDatabase();
  await withDatabase(database.url, async (service) => {
    region = await addRegion(service);
    const [driverId] = await addDrivers(service, region, 1);
    const received = await complete(service, region, driverId!, true);
    rideIds = [received, await complete(service, region, driverId!, false)];
    await dropConstraints(service);
  });
  sql = postgres(database.url, { max: 1, onnotice: () => {} });
});
afterAll(async () => {
  await sql.end();
  await database[Symbol.asyncDispose]();
});

/** A plain ride from its request to its end. */
async function complete(service: Sql, of: number, driverId: string, isReceived: boolean): Promise<string> {
  const [rideId] = (await addRides(service, of, 1)) as [string];
  const term = await lease(service, of, rideId, driverId);
  if (isReceived) await t.receiveOffers(service, of, [term], true);
  await t.confirmOffers(service, of, [term], true);
  for (const status of ['driver_arrived', 'in_progress', 'completed'] as const)
    await t.advanceRides(service, of, [{ rideId, driverId, status }], true);
  return rideId;
}

/** Sets of changes; 4,000 of them found nothing. */
const SEVERAL = 50;

const TABLES = ['rides', 'ride_events', 'offers', 'assignments'] as const;

/** By type, what a value may become; `$` stands for it. */
const otherwise: Readonly<Record<string, readonly string[]>> = {
  text: [`coalesce($, '') || 'x'`],
  uuid: ['gen_random_uuid()'],
  smallint: ['$ + 1', '$ - 1'],
  // Two events of the same number are in no order.
  integer: ['$ + 100', '$ - 100'],
  bigint: ['$ + 1', '$ - 1'],
  real: ['$ + 1'],
  'double precision': ['$ + 1'],
  boolean: ['not $'],
  xid8: [`'3'::xid8`],
  bytea: [`sha256('another')`],
  ARRAY: ['array_append($, null)'],
  'timestamp with time zone': [
    `coalesce($, clock_timestamp()) + interval '1 microsecond'`,
    `$ - interval '1 microsecond'`,
    `$ - interval '1 hour'`,
  ],
};

interface Change {
  readonly what: string;
  readonly statement: string;
}

/** Every change of one value of the rides' rows, each row left out, and each there twice. */
async function findChanges(): Promise<readonly Change[]> {
  const columns = await sql<{ table: string; name: string; type: string; mayBeNull: boolean }[]>`
    select table_name as "table", column_name as name, data_type as type, is_nullable = 'YES' as "mayBeNull" from information_schema.columns
    where table_schema = 'public' and table_name in ${sql(TABLES)} and column_name <> 'region' order by 1, ordinal_position`;
  const changes: Change[] = [];
  for (const table of TABLES) {
    const key = table === 'rides' ? 'id' : 'ride_id';
    const rows = await sql.unsafe<{ at: string }[]>(
      `select ctid::text as at from ${table} where ${key} = any($1::uuid[]) order by ctid`,
      [rideIds] as never[],
    );
    for (const { at } of rows) {
      const [here, row] = [`ctid = '${at}'`, `${table} ${at}`];
      changes.push({ what: `${row} is gone`, statement: `delete from ${table} where ${here}` });
      changes.push({
        what: `${row} is there twice`,
        statement: `insert into ${table} select * from ${table} where ${here}`,
      });
      for (const { name, type, mayBeNull } of columns.filter((column) => column.table === table)) {
        for (const value of [...otherwise[type]!, ...(mayBeNull ? ['null'] : [])].map((each) =>
          each.replaceAll('$', name),
        ))
          changes.push({
            what: `${row}: ${name} = ${value}`,
            statement: `update ${table} set ${name} = ${value} where ${here}`,
          });
      }
    }
  }
  return changes;
}

interface Judged {
  /** Rides that were judged in detail. */
  readonly others: number;
  readonly checks: readonly { readonly id: CheckId; readonly checked: number; readonly violations: number }[];
  readonly facts: Readonly<Record<string, number>>;
  readonly breaks: readonly unknown[];
  readonly holdMs: readonly (number | null)[];
  readonly reached: KeySums;
}

const readerOf = (service: Sql): Reader => ({
  ask: async <Row extends object>(statement: string, params: readonly unknown[]) => [
    ...(await service.unsafe<Row[]>(statement, params as never[])),
  ],
  [Symbol.asyncDispose]: async () => {},
});

/** Judges all rides: the plain ones by a look at them, or all in detail. */
async function judge(look: 'plain first' | 'in detail', slices: Slices, signs: SignsOfLife): Promise<Judged> {
  const tally = new Tally(checkIds);
  const durations = { hold: new Durations(), sweeperLag: new Durations() };
  const sums: Sums = { chains: new Chains(), durations, reached: new KeySums(), slices };
  const reader = readerOf(sql);
  const others = look === 'in detail' ? await allRides() : await checkPlainRides(reader, tally, sums, wholeOf(region));
  await checkRides(reader, tally, sums, others, signs);
  return {
    others: others.length,
    checks: [...tally.checks].map(([id, { checked, violations }]) => ({ id, checked, violations })),
    facts: Object.fromEntries([...tally.facts].filter(([, count]) => count > 0)),
    breaks: sums.chains.driverIds.toSorted().map((id) => [id, sums.chains.terms(id), sums.chains.breaks(id, 1)]),
    holdMs: [0.1, 0.5, 0.9].map((share) => durations.hold.percentileMs(share)),
    reached: sums.reached,
  };
}

async function allRides(): Promise<string[]> {
  const rows = await sql.unsafe<{ id: string }[]>(
    `select id::text from rides where region = $1::int2 and id is not null
    union select ride_id::text from ride_events where region = $1::int2 and ride_id is not null`,
    [region],
  );
  return rows.map(({ id }) => id);
}

/** What judging after some changes comes to, which are then taken back. */
async function judgeChanged(changes: readonly Change[]): Promise<{ isPlain: boolean; isBroken: boolean }> {
  await sql.unsafe('begin');
  try {
    for (const { statement } of changes) await sql.unsafe(statement);
    const [slices, signs] = [await cutIntoSlices(readerOf(sql), region), await readSignsOfLife(readerOf(sql), region)];
    const plain = await judge('plain first', slices, signs);
    const detail = await judge('in detail', slices, signs);
    const what = changes.map((change) => change.what).join('; ');
    expect({ ...plain, others: null, reached: null }, what).toEqual({ ...detail, others: null, reached: null });
    expect(plain.reached.differing(detail.reached), what).toEqual([]);
    return {
      isPlain: detail.others - plain.others === rideIds.length,
      isBroken: detail.checks.some(({ violations }) => violations > 0),
    };
  } finally {
    await sql.unsafe('rollback');
  }
}

test('plain rides are told from others', async () => {
  expect(await judgeChanged([])).toEqual({ isPlain: true, isBroken: false });
});

test('whatever value of a plain ride is changed, whichever row is left out or there twice: it is judged as in detail', async () => {
  const results = [];
  for (const change of await findChanges()) results.push(await judgeChanged([change]));
  expect(results.filter(({ isPlain }) => isPlain).length).toBeGreaterThan(50);
  expect(results.filter(({ isBroken }) => isBroken).length).toBeGreaterThan(200);
});

test('so it is when several are changed at once', async () => {
  const changes = await findChanges();
  const random = createRandom(1);
  for (let i = 0; i < SEVERAL; i++)
    await judgeChanged(Array.from({ length: random.int(2, 4) }, () => random.pick(changes)));
});

test('a driver’s terms are one chain though plain rides are read before the others, and an epoch began between them', async () => {
  await using other = await createTestDatabase();
  await withDatabase(other.url, async (service) => {
    const of = await addRegion(service);
    const [driverId] = (await addDrivers(service, of, 1)) as [string];
    await complete(service, of, driverId, true);
    const [rideId] = (await addRides(service, of, 1)) as [string];
    const declined = await lease(service, of, rideId, driverId);
    await t.returnOffers(service, of, [{ ...declined, reason: 'too_far' }], 'declined', true);
    await service`select leasing.fence_floor()`;
    await service`select leasing.open_epoch(left(pg_walfile_name(pg_current_wal_insert_lsn()), 8), true)`;
  });
  await withDatabase(other.url, async (service) => {
    const [{ region: of }] = (await service`select region from driver_state`) as unknown as [{ region: number }];
    await complete(service, of, 'd1', true);
  });
  const { invariants, violations } = await verify(other.url);
  expect(invariants.flatMap(({ examples }) => examples)).toEqual([]);
  expect(violations).toBe(0);
});

test('an offer that is there twice is seen as far from its ride as offers are looked for', async () => {
  await using other = await createTestDatabase();
  // From the ride on, two offers for each ride and a thousand more.
  await addPast(other.url, 1_100);
  await withDatabase(other.url, async (service) => {
    await dropConstraints(service);
    const [first] = await service<{ region: number; ride: string; offer: string; last: string }[]>`
      select region, id as ride, assigned_offer_id as offer,
        (select id from offers order by id offset 1001 limit 1) as last from rides order by id limit 1`;
    const { region: of, ride, offer, last } = first!;
    // Right after the thousandth of the others.
    const [{ moved }] =
      (await service`select overlay(${last}::text placing 'ffff' from 33)::uuid as moved`) as unknown as [
        { moved: string },
      ];
    for (const [table, column] of [
      ['offers', 'id'],
      ['assignments', 'offer_id'],
      ['ride_events', 'offer_id'],
      ['rides', 'assigned_offer_id'],
    ] as const)
      await service.unsafe(`update ${table} set ${column} = '${moved}' where ${column} = '${offer}'`);
    const place = await service`select count(*)::int as before from offers where id < ${moved}`;
    expect(place).toEqual([{ before: 1001 }]);
    const look = async (): Promise<readonly string[]> => {
      const slices = await cutIntoSlices(readerOf(service), of);
      const durations = { hold: new Durations(), sweeperLag: new Durations() };
      const sums: Sums = { chains: new Chains(), durations, reached: new KeySums(), slices };
      return checkPlainRides(readerOf(service), new Tally(checkIds), sums, { region: of, after: null, upTo: ride });
    };
    expect(await look()).toEqual([]);
    await service`insert into offers select * from offers where id = ${moved}`;
    expect(await look()).toEqual([ride]);
  });
});
