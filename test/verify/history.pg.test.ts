import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { verifyCommand } from '../../src/commands/verify.ts';
import { newId } from '../../src/leasing/ids.ts';
import { historyCheckIds, type HistoryCheckId } from '../../src/verify/catalog.ts';
import { checkHistory, isTooTame, type HistoryVerification } from '../../src/verify/history/check.ts';
import { parseDemands } from '../../src/verify/history/wildness.ts';
import type { HistoryCommand, HistoryLine } from '../../src/verify/history.ts';
import { formatHistory } from '../../src/verify/report.ts';
import { verify } from '../../src/verify/verify.ts';
import type { TestDatabase } from '../support/database.ts';
import { copyDatabase, dropConstraints, withDatabase } from '../support/records.ts';
import { recordLoad, type RecordedLoad } from '../support/recorded-load.ts';
import { startTestService, type TestService } from '../support/service.ts';

let stack: AsyncDisposableStack;
let service: TestService;
let load: RecordedLoad;
/** A copy of the records that refuses nothing. */
let bare: TestDatabase;
let folder: string;
let files = 0;
beforeAll(async () => {
  stack = new AsyncDisposableStack();
  service = stack.use(await startTestService());
  load = await recordLoad(service);
  // Databases that somebody is connected to can't be copied.
  for (const process of service.services) await process.drain();
  bare = stack.use(await copyDatabase(service.databaseUrl));
  await withDatabase(bare.url, dropConstraints);
  folder = await mkdtemp(join(tmpdir(), 'cabrank-history-'));
  stack.defer(() => rm(folder, { recursive: true }));
});
afterAll(() => stack.disposeAsync());

const textOf = (lines: readonly HistoryLine[]): string => lines.map((line) => `${JSON.stringify(line)}\n`).join('');

async function fileOf(text: string): Promise<string> {
  const path = join(folder, `${++files}.jsonl`);
  await writeFile(path, text);
  return path;
}

const checkText = async (text: string, url = service.databaseUrl): Promise<HistoryVerification> =>
  checkHistory(url, await fileOf(text));
const check = (lines: readonly HistoryLine[], url?: string): Promise<HistoryVerification> =>
  checkText(textOf(lines), url);

const violated = ({ invariants }: HistoryVerification): HistoryCheckId[] =>
  invariants.filter(({ violations }) => violations > 0).map(({ id }) => id);

/** What an edit of the history works with. */
class Edit {
  lines: HistoryLine[];

  constructor(lines: readonly HistoryLine[]) {
    this.lines = [...lines];
  }

  get text(): string {
    return textOf(this.lines);
  }

  /** The nth ask of that kind about that offer or ride. */
  find(command: HistoryCommand['command'], about: string, nth = 0): HistoryCommand {
    const found = this.lines.filter(
      (line): line is HistoryCommand =>
        line.kind === 'command' && line.command === command && (line.offerId === about || line.rideId === about),
    );
    return found[nth]!;
  }

  change(line: HistoryLine, by: Partial<HistoryCommand>): string {
    this.lines = this.lines.map((each) => (each === line ? ({ ...line, ...by } as HistoryLine) : each));
    return this.text;
  }

  remove(...gone: HistoryLine[]): string {
    this.lines = this.lines.filter((line) => !gone.includes(line));
    return this.text;
  }

  /** Before the end. */
  add(...more: HistoryLine[]): string {
    this.lines.splice(-1, 0, ...more);
    return this.text;
  }

  /** Another ask, like one that was there. */
  again(line: HistoryCommand, by: Partial<HistoryCommand>): string {
    return this.add({ ...line, id: 'again', ...by });
  }
}

interface Corruption {
  readonly what: string;
  /** Falsifies the records. */
  readonly plant?: (load: RecordedLoad) => string;
  /** Falsifies the history. */
  readonly edit?: (edit: Edit, load: RecordedLoad) => string;
  /** The check that has to find it, then the others that see it as well; nothing else may. */
  readonly finds: readonly HistoryCheckId[];
}

const REFUSED = { outcome: 'refused', status: 409 } as const;
const STRANGER = newId(1);
/** A term of driver d6 that no client of the history ever heard of, before his first. */
const plantStranger = ({ offers }: RecordedLoad, receivedAt: string): string => `
  insert into offers select region, '${STRANGER}', ride_id, driver_id, 0, 'expired', sha256('stranger'), null, granted_at,
    ${receivedAt}, expires_at, lifetime_ends_at, expires_at, null, null, decision_ttl_ms, pickup_eta_s, search_try, policy_version, version
  from offers where id = '${offers.pushed}'`;

const corruptions: readonly Corruption[] = [
  {
    what: 'the last line is cut off',
    edit: ({ text }) => text.slice(0, -20),
    finds: ['H1a', 'H1b'],
  },
  {
    what: 'a line isn’t JSON',
    edit: ({ text }) => text.replace('\n', '\n---\n'),
    finds: ['H1a'],
  },
  {
    what: 'a line has a field of its own',
    edit: ({ text }) => text.replace('"command":"online"', '"command":"online","mood":"good"'),
    finds: ['H1a'],
  },
  {
    what: 'a yes came at no time',
    edit: (edit) => edit.change(edit.lines[1]!, { answeredAtMs: null }),
    finds: ['H1a'],
  },
  {
    what: 'a no has no reason',
    edit: (edit) => edit.again(edit.lines[1] as HistoryCommand, REFUSED),
    finds: ['H1a'],
  },
  {
    what: 'the end is missing',
    edit: (edit) => edit.remove(edit.lines.at(-1)!),
    finds: ['H1b'],
  },
  {
    what: 'something was asked after the end',
    edit: ({ lines }) => textOf([...lines, { ...(lines[1] as HistoryCommand), id: 'late' }]),
    finds: ['H1b'],
  },
  {
    what: 'there are two runs',
    edit: (edit) => edit.add(edit.lines[0]!),
    finds: ['H1b'],
  },
  {
    what: 'an answer came before its ask',
    edit: (edit) => edit.again(edit.lines[1] as HistoryCommand, { answeredAtMs: 0 }),
    finds: ['H1b'],
  },
  {
    what: 'an id is there twice',
    edit: (edit) => edit.add(edit.lines[1]!),
    finds: ['H1c'],
  },
  {
    what: 'an ask repeats one that isn’t there',
    edit: (edit) => edit.again(edit.lines[1] as HistoryCommand, { repeats: 'nobody' }),
    finds: ['H1c'],
  },
  {
    what: 'an ask repeats another driver’s',
    edit: (edit) => edit.again(edit.lines[1] as HistoryCommand, { repeats: (edit.lines[2] as HistoryCommand).id }),
    finds: ['H1c'],
  },
  {
    what: 'an ask repeats a later one',
    edit: (edit, { offers }) => {
      const [first, second] = [edit.find('confirm', offers.confirmed), edit.find('confirm', offers.confirmed, 1)];
      return edit.change(
        edit.lines.find((line) => line === first)!,
        { repeats: second.id },
      );
    },
    finds: ['H1c'],
  },
  {
    what: 'a bearer token is told',
    edit: (edit) =>
      edit.add({
        kind: 'fault',
        name: 'stop',
        target: 'api',
        atMs: endOf(edit),
        healedAtMs: null,
        detail: 'eyJhbGciOi.eyJzdWIiOi.x',
      }),
    finds: ['H1d'],
  },
  {
    what: 'a lease token is told',
    edit: (edit, { secret }) =>
      edit.add({
        kind: 'fault',
        name: 'stop',
        target: 'api',
        atMs: endOf(edit),
        healedAtMs: null,
        detail: `said ${secret}!`,
      }),
    finds: ['H1d'],
  },
  {
    what: 'an acknowledged confirm is gone',
    plant: ({ offers }) => `delete from assignments where offer_id = '${offers.pushed}';
      update offers set status = 'withdrawn', proof = null where id = '${offers.pushed}'`,
    finds: ['H2a', 'H7a'],
  },
  {
    what: 'an acknowledged confirm has lost its assignment',
    plant: ({ offers }) => `delete from assignments where offer_id = '${offers.givenBack}'`,
    finds: ['H2a'],
  },
  {
    what: 'a driver was told another fence than that of his assignment',
    edit: (edit, { offers }) => edit.change(edit.find('confirm', offers.pushed), { fence: 99 }),
    finds: ['H2a'],
  },
  {
    what: 'a driver was told another time than that of his assignment',
    edit: (edit, { offers }) =>
      edit.change(edit.find('confirm', offers.pushed), { assignedAt: '2026-01-01T00:00:00.000Z' }),
    finds: ['H2a'],
  },
  {
    what: 'a driver was told another ride than that of his assignment',
    edit: (edit, { offers }) => edit.change(edit.find('confirm', offers.pushed), { rideId: newId(1) }),
    finds: ['H2a'],
  },
  {
    what: 'an acknowledged confirm was shown another token than its offer has',
    plant: ({ offers }) =>
      `update offers set token_hash = sha256('x'), proof = sha256('x') where id = '${offers.givenBack}'`,
    finds: ['H2a', 'H2c', 'H5a'],
  },
  {
    what: 'an acknowledged confirm is of no offer',
    edit: (edit, { offers }) => edit.change(edit.find('confirm', offers.pushed), { offerId: newId(1) }),
    finds: ['H2a', 'H5a'],
  },
  {
    what: 'an acknowledged decline is gone',
    plant: ({ offers }) => `update offers set status = 'withdrawn', proof = null where id = '${offers.declined}'`,
    finds: ['H2b'],
  },
  {
    what: 'an acknowledged release is gone',
    plant: ({ offers }) => `update offers set proof = null where id = '${offers.released}'`,
    finds: ['H2b'],
  },
  {
    what: 'an acknowledged receipt is gone',
    plant: ({ offers }) => `update offers set received_at = null where id = '${offers.declined}'`,
    finds: ['H2b'],
  },
  {
    what: 'an acknowledged request has no ride',
    plant: ({ rides }) => `delete from rides where id = '${rides.last}'`,
    finds: ['H2c', 'H2d'],
  },
  {
    what: 'an acknowledged lease is of another driver',
    plant: ({ offers }) => `update offers set driver_id = 'd9' where id = '${offers.released}'`,
    finds: ['H2c'],
  },
  {
    what: 'an acknowledged cancellation didn’t happen',
    plant: ({ rides }) => `delete from ride_events where ride_id = '${rides.last}' and type = 'ride_cancelled'`,
    finds: ['H2d'],
  },
  {
    what: 'an acknowledged giving back was somebody else’s',
    plant: ({ rides }) =>
      `update ride_events set driver_id = null where ride_id = '${rides.givenBack}' and type = 'driver_cancelled'`,
    finds: ['H2d', 'H5b'],
  },
  {
    what: 'an acknowledged step of a trip didn’t happen',
    plant: ({ rides }) => `delete from ride_events where ride_id = '${rides.completed}' and type = 'ride_started'`,
    finds: ['H2d'],
  },
  {
    what: 'a refused confirm was accepted',
    plant: ({ offers }) => `update offers set status = 'accepted', proof = token_hash where id = '${offers.lapsed}'`,
    finds: ['H3a'],
  },
  {
    what: 'a confirm that was told never took effect',
    edit: (edit, { offers }) => edit.change(edit.find('confirm', offers.pushed), { ...REFUSED, code: 'lease_expired' }),
    finds: ['H3a'],
  },
  {
    what: 'a refused cancellation took effect',
    plant: ({ rides }) => `insert into ride_events
      select region, ride_id, 99, 'ride_cancelled', at, driver_id, offer_id, fence, 'rider:late' from ride_events
      where ride_id = '${rides.completed}' and type = 'ride_completed'`,
    finds: ['H3b'],
  },
  {
    what: 'a refused request made a ride',
    plant: ({ rides }) => `insert into idempotency_keys
      select region, subject, route, 'no', request_hash, result_id, created_at from idempotency_keys where result_id = '${rides.last}'`,
    edit: (edit, { rides }) => {
      const { rideId: _, ...asked } = edit.find('request', rides.last);
      return edit.add({
        ...asked,
        id: 'no',
        idempotencyKey: 'no',
        outcome: 'refused',
        code: 'pickup_outside_region',
        status: 422,
      });
    },
    finds: ['H3b'],
  },
  {
    what: 'a confirm was granted, and refused when asked again',
    edit: (edit, { offers }) =>
      edit.change(edit.find('confirm', offers.confirmed, 1), { ...REFUSED, code: 'lease_lost' }),
    finds: ['H4a'],
  },
  {
    what: 'a confirm was refused, and granted when asked again',
    edit: (edit, { offers }) => edit.change(edit.find('confirm', offers.confirmed), { ...REFUSED, code: 'lease_lost' }),
    finds: ['H4a'],
  },
  {
    what: 'a confirm was granted twice, with two fences',
    edit: (edit, { offers }) => edit.change(edit.find('confirm', offers.confirmed, 1), { fence: 99 }),
    finds: ['H4a'],
  },
  {
    what: 'a cancellation was granted, and refused when asked again',
    edit: (edit, { rides }) => edit.again(edit.find('cancel', rides.last), { ...REFUSED, code: 'ride_over' }),
    finds: ['H4a'],
  },
  {
    what: 'a key was answered with two rides',
    edit: (edit, { rides }) => edit.change(edit.find('request', rides.completed, 1), { rideId: rides.last }),
    finds: ['H4b'],
  },
  {
    what: 'a key leads to another ride than was told',
    plant: ({ rides }) => `update idempotency_keys set result_id = '${rides.last}' where result_id = '${rides.pushed}'`,
    finds: ['H4b'],
  },
  {
    what: 'a key made two rides',
    plant: ({ rides }) => `insert into idempotency_keys
      select region, 'rider:r2', route, key, request_hash, result_id, created_at from idempotency_keys where result_id = '${rides.pushed}'`,
    finds: ['H4b'],
  },
  {
    what: 'a receipt was granted after it had been refused for good',
    edit: (edit, { offers }) => {
      const received = edit.find('received', offers.confirmed);
      return edit.again(received, {
        ...REFUSED,
        code: 'lease_expired',
        answeredAtMs: received.askedAtMs,
        askedAtMs: received.askedAtMs,
      });
    },
    finds: ['H4c'],
  },
  {
    what: 'an offer was declined that nobody declined',
    edit: (edit, { offers }) => edit.remove(edit.find('decline', offers.declined)),
    finds: ['H5a'],
  },
  {
    what: 'an offer was accepted for somebody whom it isn’t for',
    edit: (edit, { offers }) =>
      edit.change(edit.find('confirm', offers.pushed), { ...REFUSED, code: 'wrong_driver', status: 403 }),
    finds: ['H5a'],
  },
  {
    what: 'an offer was released that nobody released',
    edit: (edit, { offers }) => edit.remove(edit.find('release', offers.released)),
    finds: ['H5a'],
  },
  {
    what: 'a ride was made that nobody requested',
    plant: ({
      rides,
    }) => `insert into rides select (jsonb_populate_record(r, jsonb_build_object('id', '${STRANGER}'))).* from rides r
      where id = '${rides.completed}'`,
    finds: ['H5b'],
  },
  {
    what: 'a ride was cancelled that nobody cancelled',
    edit: (edit, { rides }) => edit.remove(edit.find('cancel', rides.cancelled)),
    finds: ['H5b'],
  },
  {
    what: 'a ride was completed by its driver, who never said so',
    edit: (edit, { rides }) => edit.remove(edit.find('complete', rides.completed)),
    finds: ['H5b'],
  },
  {
    what: 'a confirm was granted that was asked for after the term’s end',
    plant: ({ offers }) =>
      `update offers set expires_at = expires_at - interval '1 hour' where id = '${offers.pushed}'`,
    finds: ['H6a'],
  },
  {
    what: 'a lapsed term wasn’t freed for a minute',
    plant: ({ offers }) => `update offers set ended_at = ended_at + interval '1 minute' where id = '${offers.lapsed}'`,
    finds: ['H6b'],
  },
  {
    what: 'a device was shown another driver’s offer',
    edit: (edit) =>
      edit.text.replaceAll('"client":"d6","driverId":"d6","event"', '"client":"d1","driverId":"d1","event"'),
    finds: ['H7a'],
  },
  {
    what: 'a device was shown another token',
    edit: (edit, { offers }) => {
      const { tokenSha256 } = edit.find('confirm', offers.confirmed);
      const shown = edit.lines.find((line) => line.kind === 'shown' && line.event === 'offer')!;
      return edit.change(shown, { tokenSha256 });
    },
    finds: ['H7a'],
  },
  {
    what: 'a device was shown an assignment of an offer that nobody accepted',
    edit: (edit, { offers }) => {
      const { driverId, fence } = edit.find('offer', offers.taken);
      return edit.add({
        kind: 'shown',
        client: 'd5',
        driverId: driverId!,
        event: 'assignment',
        atMs: endOf(edit),
        offerId: offers.taken,
        fence,
      });
    },
    finds: ['H7a'],
  },
  {
    what: 'an offer was received, and nobody was shown it',
    plant: (recorded) => plantStranger(recorded, 'received_at'),
    finds: ['H7b'],
  },
  {
    what: 'a device was shown an older offer as a new one',
    plant: (recorded) => plantStranger(recorded, 'null'),
    edit: (edit) =>
      edit.add({
        kind: 'shown',
        client: 'd6',
        driverId: 'd6',
        event: 'offer',
        atMs: endOf(edit),
        offerId: STRANGER,
        fence: 0,
      }),
    finds: ['H7c'],
  },
  {
    what: 'an offer is still pending',
    plant: ({ offers }) =>
      `update offers set status = 'pending', ended_at = null, due_at = expires_at where id = '${offers.lapsed}'`,
    finds: ['H8a'],
  },
  {
    what: 'a ride is searching past its patience',
    plant: ({ rides }) =>
      `update rides set status = 'searching', patience_until = patience_until - interval '1 hour' where id = '${rides.last}'`,
    finds: ['H8b'],
  },
  {
    what: 'a driver is still leased',
    plant: () => `update driver_state set status = 'leased' where driver_id = 'd1'`,
    finds: ['H8c'],
  },
];

const endOf = ({ lines }: Edit): number => {
  const end = lines.at(-1)!;
  return end.kind === 'end' ? end.atMs : 0;
};

describe('a healthy history', () => {
  test('holds together with its records, and every check looked at something', async () => {
    const history = await check(load.lines);
    expect(formatHistory(history)).toMatch(/0 violations$/);
    expect(violated(history)).toEqual([]);
    expect(history.invariants.map(({ id }) => id)).toEqual(historyCheckIds);
    expect(history.invariants.filter(({ checked }) => checked === 0)).toEqual([]);
    expect(history.unjudged).toEqual({});
    expect(await verify(service.databaseUrl)).toMatchObject({ violations: 0, empty: false });
  });

  test('is counted: what came too late, what was lost, who was followed by another', async () => {
    const { wildness } = await check(load.lines);
    expect(wildness).toMatchObject({
      okConfirms: 5,
      refused: 6,
      unknown: 1,
      shown: 2,
      stale: 4,
      lostReplies: 1,
      takeovers: 1,
    });
  });

  test('is judged the same in whatever order the asks were written', async () => {
    const [run, end] = [load.lines[0]!, load.lines.at(-1)!];
    const asks = load.lines.filter((line) => line.kind === 'command').toReversed();
    const shown = load.lines.filter((line) => line.kind === 'shown');
    expect(await check([run, ...asks, ...shown, end])).toEqual(await check(load.lines));
  });

  test('is judged the same in steps of one row', async () => {
    const path = await fileOf(textOf(load.lines));
    const inSteps = await checkHistory(service.databaseUrl, path, { stepRowsMax: 1 });
    expect(inSteps).toEqual(await checkHistory(service.databaseUrl, path));
  });

  test('may end in a line without a line end', async () => {
    expect(violated(await checkText(textOf(load.lines).trimEnd()))).toEqual([]);
  });

  test('leaves open what happened while the clock was set, and only that', async () => {
    const edit = new Edit(load.lines);
    edit.add({
      kind: 'fault',
      name: 'clock-step',
      target: 'postgres',
      atMs: edit.find('confirm', load.offers.pushed).askedAtMs,
      healedAtMs: null,
    });
    const history = await check(edit.lines);
    expect(violated(history)).toEqual([]);
    expect(history.unjudged.H6a).toBeGreaterThan(0);
  });

  test('leaves open whether a confirm was too late that a clock called so which was put back before it was granted', async () => {
    const edit = new Edit(load.lines);
    const granted = edit.find('confirm', load.offers.confirmed);
    const refusal = {
      ...REFUSED,
      code: 'lease_expired',
      askedAtMs: granted.askedAtMs - 2,
      answeredAtMs: granted.askedAtMs - 1,
    };
    edit.again(granted, refusal);
    expect(violated(await check(edit.lines))).toEqual(['H4a']);
    edit.add({
      kind: 'fault',
      name: 'clock-step',
      target: 'postgres',
      atMs: granted.askedAtMs - 3,
      healedAtMs: granted.askedAtMs - 0.5,
    });
    const history = await check(edit.lines);
    expect(violated(history)).toEqual([]);
    expect(history.unjudged.H4a).toBeGreaterThan(0);
  });

  test('may have a step be taken that was refused as too early: a copy of it came later', async () => {
    const edit = new Edit(load.lines);
    edit.change(edit.find('complete', load.rides.completed), { ...REFUSED, code: 'wrong_phase' });
    expect(violated(await check(edit.lines))).toEqual([]);
  });

  test('has a sweep late where a fault explains it', async () => {
    const edit = new Edit(load.lines);
    const atMs = edit.find('offer', load.offers.lapsed).answeredAtMs!;
    edit.add({ kind: 'fault', name: 'kill-sweeper', target: 'sweeper', atMs, healedAtMs: null });
    await using copy = await copyDatabase(service.databaseUrl);
    await withDatabase(copy.url, (sql) =>
      sql.unsafe(`update offers set ended_at = ended_at + interval '20 s' where id = '${load.offers.lapsed}'`),
    );
    const history = await check(edit.lines, copy.url);
    expect(violated(history)).toEqual([]);
    expect(history.wildness).toMatchObject({ faults: 1, kills: 1 });
    expect(violated(await check(load.lines, copy.url))).toEqual(['H6b']);
  });

  test('counts a term that lapsed while its confirm was under way', async () => {
    const edit = new Edit(load.lines);
    const { answeredAtMs } = edit.find('offer', load.offers.lapsed);
    const { code: _, ...confirm } = edit.find('confirm', load.offers.lapsed);
    edit.add({ ...confirm, id: 'lost', askedAtMs: answeredAtMs!, answeredAtMs: null, outcome: 'unknown' });
    const { wildness } = await check(edit.lines);
    expect(wildness.expiriesDuringConfirm).toBe(1);
  });

  test('may have a busy answer before a yes', async () => {
    const edit = new Edit(load.lines);
    edit.change(edit.find('confirm', load.offers.confirmed), { outcome: 'refused', code: 'busy', status: 503 });
    expect(violated(await check(edit.lines))).toEqual([]);
  });
});

describe('a planted corruption is found', () => {
  test.each(corruptions)('$what', async ({ plant, edit, finds }) => {
    const text = edit === undefined ? textOf(load.lines) : edit(new Edit(load.lines), load);
    const history = await (plant === undefined ? checkText(text) : checkPlanted(plant(load), text));
    expect(violated(history)).toEqual(finds.toSorted());
    const found = history.invariants.find(({ id }) => id === finds[0])!;
    expect(found.examples.length).toBeGreaterThan(0);
    expect(formatHistory(history)).toContain(found.examples[0]);
    expect(formatHistory(history)).not.toContain(load.secret);
  });

  async function checkPlanted(statements: string, text: string): Promise<HistoryVerification> {
    await using copy = await copyDatabase(bare.url);
    await withDatabase(copy.url, (sql) => sql.unsafe(statements));
    return await checkText(text, copy.url);
  }

  test('for each check there is one', () => {
    expect(new Set(corruptions.map(({ finds }) => finds[0]))).toEqual(new Set(historyCheckIds));
  });
});

describe('a load that was too tame', () => {
  test('meets its demands or doesn’t', async () => {
    const path = await fileOf(textOf(load.lines));
    const meets = async (demands: string): Promise<boolean> =>
      !isTooTame(await checkHistory(service.databaseUrl, path, { demands: parseDemands(demands) }));
    expect(await meets('')).toBe(true);
    expect(await meets('stale=4,lostReplies=1')).toBe(true);
    expect(await meets('stale=5')).toBe(false);
    expect(await meets('kills=1')).toBe(false);
  });

  test('is one where nobody asked for anything', async () => {
    const history = await check([load.lines[0]!, load.lines.at(-1)!]);
    expect(isTooTame(history)).toBe(true);
  });

  test.each(['stale', 'stale=', 'stale=-1', 'courage=1'])('and a demand of %s can’t be understood', (demand) => {
    expect(() => parseDemands(demand)).toThrow(RangeError);
  });
});

describe('cabrank verify --history', () => {
  async function run(...args: string[]): Promise<{ code: number; said: string }> {
    vi.stubEnv('DATABASE_URL', service.databaseUrl);
    const log = vi.spyOn(console, 'log').mockImplementation(() => {});
    try {
      const code = await verifyCommand(args);
      return { code, said: log.mock.calls.flat().join('\n') };
    } finally {
      log.mockRestore();
      vi.unstubAllEnvs();
    }
  }

  test('exits with 0 when all holds, and reports the records and the history', async () => {
    const { code, said } = await run('--history', await fileOf(textOf(load.lines)));
    expect(said).toContain('I1a');
    expect(said.split('\n').at(-1)).toMatch(/^verify --history: \d+ lines and rows in \d+ checks, 0 violations$/);
    expect(code).toBe(0);
  });

  test('exits with 1 on a violation, and with 2 when it was too tame', async () => {
    const broken = await fileOf(textOf(load.lines.slice(0, -1)));
    expect(await run('--history', broken, '--demand', 'kills=1')).toMatchObject({ code: 1 });
    const whole = await fileOf(textOf(load.lines));
    const tame = await run('--history', whole, '--demand', 'kills=1,stale=2');
    expect(tame.code).toBe(2);
    expect(tame.said).toContain('demanded: kills 0 of 1: TOO TAME');
  });

  test('prints both as JSON', async () => {
    const { said } = await run('--json', '--history', await fileOf(textOf(load.lines)));
    expect(JSON.parse(said)).toMatchObject({ violations: 0, history: { violations: 0, run: { name: 'small' } } });
  });

  test('finds the same over as many connections as it is given', async () => {
    const { said } = await run('--json');
    expect(await run('--json', '--connections', '4')).toEqual({ code: 0, said });
  });

  test('says so when the file isn’t there, the region isn’t, or the demands make no sense', async () => {
    await expect(run('--history', join(folder, 'nowhere'))).rejects.toThrow('there is no history');
    const elsewhere = await fileOf(textOf(load.lines).replaceAll('"regionId":"city"', '"regionId":"atlantis"'));
    await expect(run('--history', elsewhere)).rejects.toThrow('no region atlantis');
    await expect(run('--history', elsewhere, '--demand', 'x=1')).rejects.toThrow('--demand');
    await expect(run('--demand', 'kills=1')).rejects.toThrow('--history');
    await expect(run('--connections', '0')).rejects.toThrow('--connections');
  });
});
