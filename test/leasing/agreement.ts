/**
 * Whether the database does what the specification says: for one command after the other, for sets, and for commands that
 * are asked at the same time. Each check throws at the first difference, with the commands that led to it.
 */
import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import type { LeaseStore } from '../../domain/lease-store.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { addRegion } from '../support/city.ts';
import { command, DRIVERS, set, transition, type Command } from './commands.ts';
import { difference, openRegion, perform, readRows, type Row } from './recorded.ts';
import { Cast, explanations, specify, Specified, TERMS, type Asked, type Request } from './requests.ts';

const NOW_MS = 0;

/** Two regions with things of the same names, and connections to ask them by: one, and others that ask at the same time. */
export interface Lane extends AsyncDisposable {
  readonly sql: Sql;
  readonly region: number;
  readonly twin: number;
  readonly askers: readonly Sql[];
  readonly gates: readonly Sql[];
}

export async function openLane(url: string, name: string): Promise<Lane> {
  await using stack = new AsyncDisposableStack();
  const connect = (): Sql => stack.use(connectDatabase(url, { hotConnections: 1, coldConnections: 1 })).hot;
  const sql = connect();
  // First, so that its rows are the first that are found.
  const twin = await addRegion(sql, `twin-of-${name}`, TERMS);
  const region = await addRegion(sql, name, TERMS);
  await sql`insert into presence_epochs (region, since)
    select number, now() - interval '1 day' from unnest(${[region, twin]}::smallint[]) number`;
  const askers = Array.from({ length: MOST_AT_ONCE }, connect);
  const gates = Array.from({ length: MOST_GATES }, connect);
  const all = stack.move();
  return { sql, region, twin, askers, gates, [Symbol.asyncDispose]: () => all.disposeAsync() };
}

interface Play {
  readonly numRuns: number;
  /** The same commands each time. */
  readonly seed?: number;
  /** Leaves the commands as they failed, instead of looking for fewer that do. */
  readonly endOnFailure?: boolean;
}

/** One command after the other; some are sets. In the meantime nothing happens in the twin, which began in the same way. */
export function checkSequences({ sql, region, twin }: Lane, play: Play): Promise<void> {
  const step = fc.oneof({ weight: 6, arbitrary: command.map((each) => [each]) }, { weight: 1, arbitrary: set });
  const sequence = fc.asyncProperty(
    fc.array(step, { minLength: 5, maxLength: 40 }),
    fc.nat(12),
    async (steps, shared) => {
      const cast = new Cast(region);
      const [here, there] = [new Line(sql, region, cast), new Line(sql, twin, cast)];
      await Promise.all([here.open(), there.open()]);
      for (const each of steps.slice(0, shared)) await there.run(each);
      for (const each of steps) await here.run(each);
      await Promise.all([here.compare(), there.compare()]);
      await here.run([{ kind: 'sweep' }]);
      await here.compare();
    },
  );
  return fc.assert(sequence, play);
}

/**
 * A region that is asked one thing after the other. What the answers have to be is known ahead, so that none is waited for:
 * on one connection they come in order.
 */
class Line {
  readonly #sql: Sql;
  readonly #region: number;
  readonly #owed: Promise<void>[] = [];
  readonly state: Specified;

  constructor(sql: Sql, region: number, cast: Cast) {
    this.#sql = sql;
    this.#region = region;
    this.state = new Specified(cast);
  }

  async open(): Promise<void> {
    await tidy(this.#sql, this.#region);
    await openRegion(this.#sql, this.#region, this.state);
  }

  async run(asked: readonly Command[]): Promise<void> {
    const requests = distinct(asked.flatMap((each) => this.state.resolve(each) ?? []));
    const [request, ...others] = requests;
    if (request === undefined) return;
    if (others.length > 0) {
      await this.answered();
      return runSet(this.#sql, this.#region, this.state, requests);
    }
    const specified = specify(this.state.store, request, NOW_MS);
    const owed = perform(this.#sql, this.#region, requests, true).then(([outcome]) =>
      assert.deepEqual(outcome, specified, JSON.stringify(request)),
    );
    // It is told by `answered`.
    owed.catch(() => {});
    this.#owed.push(owed);
    // The statement is on its way before the next.
    await nextTurn();
  }

  async answered(): Promise<void> {
    await Promise.all(this.#owed);
    this.#owed.length = 0;
  }

  async compare(): Promise<void> {
    await this.answered();
    assert.equal(difference(await readRows(this.#sql, this.#region, this.state), this.state.store), null);
  }
}

/** What an earlier sequence left behind is over before the next: sweeps look at the whole region. */
async function tidy(sql: Sql, region: number): Promise<void> {
  await perform(sql, region, [{ kind: 'sweep' }], true);
  await perform(sql, region, [{ kind: 'cancelNoShows' }], true);
}

/** A set: its items are answered as if one came after the other, whichever first. */
async function runSet(sql: Sql, region: number, state: Specified, requests: readonly Request[]): Promise<void> {
  const outcomes = await perform(sql, region, requests, true);
  const asked = requests.map((request, n) => ({ request, outcome: outcomes[n]!, sentAt: 0, answeredAt: 1 }));
  await explain(
    sql,
    region,
    state,
    asked.filter((each) => !isTurnedAway(each, requests)),
    true,
  );
}

/** Drivers are named once in a set of theirs: the group commit sees to it. */
function distinct(requests: readonly Request[]): Request[] {
  const isShift = ({ kind }: Request): boolean => kind === 'online' || kind === 'offline';
  return requests.filter(
    (each, n) =>
      !isShift(each) ||
      requests.findIndex((other) => 'driverId' in other && 'driverId' in each && other.driverId === each.driverId) ===
        n,
  );
}

/**
 * A set is judged as things are before it: a driver goes to the first pair that names him, also if that ride has no room,
 * and a ride that the set assigns has no room for the next.
 */
function isTurnedAway({ request, outcome }: Asked, requests: readonly Request[]): boolean {
  if (request.kind !== 'lease' && request.kind !== 'assign') return false;
  const isFirst = (of: 'rideId' | 'driverId'): boolean =>
    requests.find((each) => of in each && (each as typeof request)[of] === request[of]) === request;
  if (outcome.refused === 'driver_unavailable') return !isFirst('driverId');
  return request.kind === 'assign' && outcome.refused === 'ride_fully_offered' && !isFirst('rideId');
}

/** Goes on with the first order of the requests that explains the answers and the rows. */
async function explain(
  sql: Sql,
  region: number,
  state: Specified,
  asked: readonly Asked[],
  hasSets: boolean,
): Promise<void> {
  const rows = await readRows(sql, region, state);
  let nearest = 'no order of the requests has these answers';
  for (const end of explanations(state.store, asked, NOW_MS)) {
    if (hasSets) countOnce(rows.rides, state.store, end);
    const differs = difference(rows, end);
    if (differs === null) {
      state.store = end;
      return;
    }
    nearest = differs;
  }
  const story = asked.map(({ request, outcome, sentAt, answeredAt }) =>
    [sentAt, answeredAt, JSON.stringify(request), JSON.stringify(outcome)].join(' '),
  );
  assert.fail([nearest, ...story].join('\n'));
}

/** What a set does to a ride is one change of it: its version may have risen by less than specified, but has risen. */
function countOnce(recorded: readonly Row[], before: LeaseStore, end: LeaseStore): void {
  for (const row of recorded) {
    const [id, version] = [row['id'] as string, row['version'] as number];
    const [was, is] = [before.rides.get(id), end.rides.get(id)];
    if (was !== undefined && is !== undefined && was.version < version && version <= is.version)
      end.rides.set(id, { ...is, version });
  }
}

/** Of these rides, so that they meet. */
const RIDES_AT_ONCE = 2;
const near = (asked: Command): Command => ('ride' in asked ? { ...asked, ride: asked.ride % RIDES_AT_ONCE } : asked);
const mayWait = fc.constantFrom(true, true, false);
const together = fc.record({ asked: transition.map((each) => [near(each)]), wait: mayWait });
const togetherInSets = fc.record({ asked: set.map((each) => each.map(near)), wait: mayWait });
const gate = fc.oneof(
  fc.record({ of: fc.constant('ride' as const), number: fc.nat(RIDES_AT_ONCE - 1) }),
  fc.record({ of: fc.constant('driver' as const), number: fc.nat(DRIVERS - 1) }),
);
const MOST_AT_ONCE = 5;
const MOST_GATES = 2;
/** Far more looks than any wait takes: the connections' deadlines come first. */
const LOOKS_MAX = 20_000;

/** How much of what makes orders differ was met. */
export interface Met {
  sequences: number;
  /** Sequences in which a command waited for another or for a gate. */
  waited: number;
  busy: number;
  answered: number;
}

/**
 * Commands that are asked at the same time, each on a connection of its own. Gates are rows that somebody else holds: whoever
 * needs them stands at the lock step until they open. Which command is sent when, and when a gate opens, is the scheduler's;
 * the next step comes when everything under way is answered or waits.
 */
export async function checkConcurrency(lane: Lane, play: Play): Promise<Met> {
  const { sql, region, gates } = lane;
  const pids = await Promise.all(
    lane.askers.map(async (each) => (await each<{ pid: number }[]>`select pg_backend_pid() as pid`)[0]!.pid),
  );
  const met: Met = { sequences: 0, waited: 0, busy: 0, answered: 0 };
  const sequence = fc.asyncProperty(
    fc.array(command.map(near), { minLength: 2, maxLength: 16 }),
    fc.array(fc.oneof({ weight: 5, arbitrary: together }, { weight: 1, arbitrary: togetherInSets }), {
      minLength: 2,
      maxLength: MOST_AT_ONCE,
    }),
    fc.uniqueArray(gate, { minLength: 1, maxLength: MOST_GATES, selector: ({ of, number }) => `${of} ${number}` }),
    fc.scheduler(),
    async (before, atOnce, closed, scheduler) => {
      const line = new Line(sql, region, new Cast(region));
      const { state } = line;
      await line.open();
      for (const each of before) await line.run([each]);
      await line.answered();
      const under = new UnderWay(lane, pids);
      for (const [n, { asked, wait }] of atOnce.entries()) {
        const requests = distinct(asked.flatMap((each) => state.resolve(each) ?? [])).slice(0, 2);
        if (requests.length === 0) continue;
        void scheduler.schedule(Promise.resolve(), `ask ${n}`).then(() => under.send(n, requests, wait));
      }
      for (const [n, each] of closed.entries()) {
        const open = await shut(gates[n]!, region, state, each);
        void scheduler.schedule(Promise.resolve(), `open ${each.of} ${each.number}`).then(() => under.let(open()));
      }
      await scheduler.waitIdle(async (release) => {
        await release();
        await under.settle();
      });
      await under.finish();
      met.sequences += 1;
      met.waited += under.hasWaited ? 1 : 0;
      met.busy += under.asked.filter(({ outcome }) => outcome.refused === 'busy').length;
      met.answered += under.asked.length;
      const turnedAway = under.sets.flatMap((items) =>
        items.filter((each) =>
          isTurnedAway(
            each,
            items.map(({ request }) => request),
          ),
        ),
      );
      await explain(
        sql,
        region,
        state,
        under.asked.filter((each) => !turnedAway.includes(each)),
        under.sets.some(({ length }) => length > 1),
      );
    },
  );
  await fc.assert(sequence, play);
  return met;
}

/** Holds a row until it is told to open. */
async function shut(
  sql: Sql,
  region: number,
  { cast }: Specified,
  { of, number }: { of: 'ride' | 'driver'; number: number },
): Promise<() => Promise<unknown>> {
  const opened = Promise.withResolvers<void>();
  const held = Promise.withResolvers<void>();
  const holding = sql.begin(async (tx) => {
    if (of === 'ride')
      await tx`select from rides where region = ${region} and id = ${cast.rides[number]!} for no key update`;
    else
      await tx`select from driver_state where region = ${region} and driver_id = ${cast.drivers[number]!} for no key update`;
    held.resolve();
    await opened.promise;
  });
  await Promise.race([held.promise, holding]);
  return () => {
    opened.resolve();
    return holding;
  };
}

/** Commands on their way, each on its connection. */
class UnderWay {
  readonly #lane: Lane;
  readonly #pids: readonly number[];
  readonly #open = new Map<number, Promise<void>>();
  readonly #gates: Promise<unknown>[] = [];
  readonly #failures: unknown[] = [];
  #step = 0;
  hasWaited = false;
  readonly sets: Asked[][] = [];

  constructor(lane: Lane, pids: readonly number[]) {
    this.#lane = lane;
    this.#pids = pids;
  }

  get asked(): readonly Asked[] {
    return this.sets.flat();
  }

  send(number: number, requests: readonly Request[], wait: boolean): void {
    const sentAt = ++this.#step;
    const answered = perform(this.#lane.askers[number]!, this.#lane.region, requests, wait).then((outcomes) => {
      const answeredAt = ++this.#step;
      this.sets.push(requests.map((request, n) => ({ request, outcome: outcomes[n]!, sentAt, answeredAt })));
    });
    const told = answered.catch((error: unknown) => {
      this.#failures.push(error);
    });
    this.#open.set(
      number,
      told.finally(() => this.#open.delete(number)),
    );
  }

  let(opening: Promise<unknown>): void {
    this.#gates.push(opening);
  }

  /** Until everything under way is answered or waits for a lock. */
  async settle(): Promise<void> {
    for (let look = 0; look < LOOKS_MAX; look += 1) {
      const open = [...this.#open.keys()];
      if (open.length === 0) return;
      const pids = open.map((number) => this.#pids[number]!);
      const [row] = await this.#lane.sql<{ waiting: number }[]>`
        select count(distinct pid)::int as waiting from pg_locks where not granted and pid = any(${pids}::int[])`;
      if (row!.waiting > 0) this.hasWaited = true;
      if (row!.waiting === open.length) return;
    }
    throw new Error('neither answered nor waiting');
  }

  /** Rejects with the first failure of a command, when all are answered: no rejection is left to nobody. */
  async finish(): Promise<void> {
    await Promise.all(this.#gates);
    await Promise.all(this.#open.values());
    if (this.#failures.length > 0) throw this.#failures[0];
  }
}
