/** One run: an arena under load, faults one after another, everything healed, and then the question whether all held. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { defaultPolicy } from '../domain/policy.ts';
import { createRandom, type Random } from '../domain/random.ts';
import { OperatorClient } from '../src/client/operator-client.ts';
import { Connections } from '../src/client/rest.ts';
import { signedTokens } from '../src/client/token.ts';
import type { HistoryCommand } from '../src/verify/history.ts';
import { Arena, type ArenaNeeds } from './arena.ts';
import type { Fault, Injected } from './faults/fault.ts';
import { History, nowMs } from './history.ts';
import { Asker } from './load/ask.ts';
import { CONNECT_TIMEOUT_MS, Device } from './load/device.ts';
import { POLICY, REGION } from './load/plan.ts';
import { Rider } from './load/rider.ts';
import type { World } from './load/world.ts';
import { type Verified, verifyRecords } from './verified.ts';

export interface RunOptions {
  readonly name: string;
  /** In turn, over and over; each turn's faults at the same time. */
  readonly turns: readonly (readonly Fault[])[];
  /** Of load with faults; whichever is given ends it. */
  readonly seconds: number | null;
  readonly operations: number | null;
  readonly seed: string;
  readonly historyFile: string | null;
  readonly demand: Demand;
  /** A service that isn't back in time fails the run: not on a machine that others use as well. */
  readonly areTimesJudged: boolean;
  /** Processes of each role that there can be several of. */
  readonly ofEach: number;
  readonly drivers: number;
  readonly riders: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

/** Less than this, and nothing was tried. */
export interface Demand {
  readonly operations: number;
  readonly kills: number;
  readonly stale: number;
  readonly lostReplies: number;
}

export interface FaultFigures {
  readonly name: string;
  readonly injected: number;
  /** From being healed to the first request served, the longest: over REST, and over a socket. */
  readonly backMs: { readonly rest: number; readonly socket: number };
  /** Commands answered while it lasted and until the service was back, by outcome and code. */
  readonly answers: Readonly<Record<string, number>>;
}

/** From the last healing. */
export interface Calm {
  /** Until no ride was open. */
  readonly ridesEndedAfterMs: number | null;
  /** Until every driver was available again, and no device believed to have a ride. */
  readonly driversFreeAfterMs: number | null;
}

export interface RunFigures extends Calm {
  readonly name: string;
  readonly seed: string;
  readonly seconds: number;
  readonly operations: number;
  readonly kills: number;
  readonly stale: number;
  readonly lostReplies: number;
  /** Asked while something was broken, or until the service was back. */
  readonly confirmsUnderFault: number;
  readonly serverErrors: number;
  readonly endedUnasked: readonly string[];
  readonly answers: Readonly<Record<string, number>>;
  readonly faults: readonly FaultFigures[];
  readonly verify: Verified;
  /** Why the run failed; empty when all held. */
  readonly problems: readonly string[];
}

const REGION_ID = 'chaos';
const WARM_UP_MS = 3_000;
const CALM_MS: readonly [number, number] = [500, 2_000];
const BACK_DEADLINE_MS = 20_000;
const CALM_WITHIN_MS = 60_000;
const LOG_LINES_MAX = 40;
const EXAMPLES_MAX = 3;
const OPEN = ['searching', 'assigned', 'driver_arrived', 'in_progress'] as const;
/** A run by operations that takes longer than this many times a moderate rate is stuck. */
const SLOWEST_OPERATIONS_PER_S = 60;

export async function runChaos(options: RunOptions): Promise<RunFigures> {
  const random = createRandom(options.seed);
  const folder = await mkdtemp(join(tmpdir(), 'cabrank-history-'));
  await using cleanup = new AsyncDisposableStack();
  cleanup.defer(() => rm(folder, { recursive: true, force: true }));
  const historyFile = options.historyFile ?? join(folder, 'history.jsonl');
  const needs = { ofEach: options.ofEach, ...needsOf(options.turns.flat()) };
  await using arena = await Arena.open(needs, random.fork('arena'));
  const run = new Run(options, arena, random, historyFile);
  // Awaited here, before the arena is closed.
  return await run.toTheEnd();
}

const needsOf = (faults: readonly Fault[]): Omit<ArenaNeeds, 'ofEach'> => ({
  redis: faults.some(({ needs }) => needs?.redis === true),
  clocks: [...new Set(faults.flatMap(({ needs }) => needs?.clocks ?? []))],
  smallDisk: faults.some(({ needs }) => needs?.smallDisk === true),
});

interface Seen {
  injected: number;
  restMs: number;
  socketMs: number;
  readonly answers: Map<string, number>;
}

class Run {
  readonly #options: RunOptions;
  readonly #arena: Arena;
  readonly #random: Random;
  readonly #historyFile: string;
  readonly #history: History;
  readonly #connections = new Connections({ maxPerHost: 256 });
  readonly #stop = new AbortController();
  readonly #seen = new Map<string, Seen>();
  readonly #problems: string[] = [];
  #isEnding = false;
  #stretching = 0;
  #kills = 0;
  #confirmsUnderFault = 0;
  #healedAtMs = 0;

  constructor(options: RunOptions, arena: Arena, random: Random, historyFile: string) {
    this.#options = options;
    this.#arena = arena;
    this.#random = random;
    this.#historyFile = historyFile;
    this.#history = new History(historyFile, {
      name: options.name,
      seed: options.seed,
      atMs: nowMs(),
      startedAt: new Date().toISOString(),
      regionId: REGION_ID,
      policy: { ...defaultPolicy, ...POLICY },
    });
  }

  async toTheEnd(): Promise<RunFigures> {
    const startedAtMs = nowMs();
    const operator = this.#operator();
    const world = this.#world();
    await this.#openCity(operator, world);
    const devices = world.driverIds.map((driverId) => new Device(driverId, world));
    const driving = devices.map((device) => device.run());
    const riders = Array.from({ length: this.#options.riders }, (_, i) => new Rider(`rider-${i + 1}`, world).run());
    try {
      await pause(WARM_UP_MS, undefined, { signal: this.#options.signal });
      await this.#breakThings();
      this.#healedAtMs = nowMs();
      this.#isEnding = true;
      const ridesEndedAfterMs = await this.#untilNone('rides were still open', () => findOpen(operator));
      await Promise.race([Promise.all(riders), pause(CALM_WITHIN_MS, undefined, { ref: false })]);
      const driversFreeAfterMs = await this.#untilNone('drivers weren’t free, or their devices didn’t know', () =>
        findHeld(operator, devices),
      );
      return await this.#judge({ ridesEndedAfterMs, driversFreeAfterMs }, startedAtMs, async () => {
        this.#stop.abort();
        await Promise.all([...driving, ...riders]);
        await world.asker.settled();
        await this.#history.end(this.#healedAtMs);
      });
    } finally {
      this.#stop.abort();
      this.#connections.close();
    }
  }

  #operator(): OperatorClient {
    const { authSecret } = this.#arena;
    return new OperatorClient({
      url: this.#arena.urlOf('rider→api'),
      token: signedTokens({ secret: authSecret, sub: 'chaos', role: 'ops', ttlS: 7 * 24 * 3600 }),
      connections: this.#connections,
    });
  }

  #world(): World {
    const { drivers } = this.#options;
    return {
      asker: new Asker({
        history: this.#history,
        authSecret: this.#arena.authSecret,
        connections: this.#connections,
        urls: { rider: this.#arena.urlOf('rider→api'), driver: this.#arena.urlOf('driver→api') },
      }),
      random: this.#random.fork('load'),
      policy: { ...defaultPolicy, ...POLICY },
      regionId: REGION_ID,
      gatewayUrl: this.#arena.urlOf('driver→gateway'),
      driverIds: Array.from({ length: drivers }, (_, i) => `driver-${i + 1}`),
      isEnding: () => this.#isEnding,
      stopped: this.#stop.signal,
      mayTermsStretch: () => this.#stretching > 0,
      accepting: new Map(),
    };
  }

  async #openCity(operator: OperatorClient, { driverIds, policy }: World): Promise<void> {
    await operator.putRegion(REGION_ID, REGION);
    await operator.putPolicy(REGION_ID, policy);
    await Promise.all(driverIds.map((driverId) => operator.putDriver(driverId, { regionId: REGION_ID })));
  }

  async #breakThings(): Promise<void> {
    const { turns, seconds, operations, signal, say } = this.#options;
    const beganAtMs = nowMs();
    const longestMs = 1000 * (seconds ?? operations! / SLOWEST_OPERATIONS_PER_S);
    const random = this.#random.fork('faults');
    const isOver = (): boolean =>
      nowMs() - beganAtMs >= longestMs || (operations !== null && this.#history.tally.operations >= operations);
    for (let turn = 0; !isOver() || turn < turns.length; turn++) {
      signal.throwIfAborted();
      const faults = turns[turn % turns.length]!;
      await this.#turn(faults, random.fork(`turn ${turn}`));
      const { operations: done } = this.#history.tally;
      const perS = Math.round(done / ((nowMs() - beganAtMs) / 1000));
      say(`  ${done} operations, ${perS}/s`);
      await pause(random.int(...CALM_MS), undefined, { signal });
    }
  }

  /** All of a turn's faults at once; each is healed when its time has come. */
  async #turn(faults: readonly Fault[], random: Random): Promise<void> {
    for (const fault of faults) await fault.prepare?.(this.#arena);
    const answers = new Map<string, number>();
    const deaf = this.#history.onCommand(({ command, outcome, code }) => {
      if (command === 'confirm') this.#confirmsUnderFault += 1;
      const answer = [command, outcome, ...(code === undefined ? [] : [code])].join(' ');
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
    });
    const injected = await Promise.allSettled(faults.map((fault) => this.#inject(fault, random.fork(fault.name))));
    for (const each of injected) if (each.status === 'rejected') throw each.reason;
    const back = await this.#untilServed(Math.max(...faults.map(({ backWithinMs }) => backWithinMs)));
    deaf();
    for (const { name } of faults) {
      const seen = this.#seen.get(name) ?? { injected: 0, restMs: 0, socketMs: 0, answers: new Map<string, number>() };
      seen.injected += 1;
      seen.restMs = Math.max(seen.restMs, back.rest);
      seen.socketMs = Math.max(seen.socketMs, back.socket);
      for (const [answer, count] of answers) seen.answers.set(answer, (seen.answers.get(answer) ?? 0) + count);
      this.#seen.set(name, seen);
    }
  }

  async #inject(fault: Fault, random: Random): Promise<void> {
    const atMs = nowMs();
    if (fault.stretchesTerms === true) this.#stretching += 1;
    if (fault.kind === 'kill') this.#kills += 1;
    const injected: Injected = await fault.inject(this.#arena, random);
    await pause(random.int(...fault.holdMs));
    const healingMs = nowMs();
    await injected.heal();
    this.#options.say(
      `  ${fault.name}: ${injected.target} broken for ${Math.round(healingMs - atMs)} ms, up again after ${Math.round(nowMs() - healingMs)} ms more`,
    );
    const detail = injected.detail?.();
    if (detail !== undefined) this.#options.say(`    ${detail}`);
    this.#history.fault({
      name: fault.name,
      target: injected.target,
      atMs,
      healedAtMs: nowMs(),
      ...(detail !== undefined && { detail }),
    });
  }

  /** From now until a request asked from now on was answered in the service's own words: over REST, and a socket. */
  async #untilServed(withinMs: number): Promise<{ rest: number; socket: number }> {
    const healedAtMs = nowMs();
    const back = { rest: Infinity, socket: Infinity };
    const all = Promise.withResolvers<void>();
    const deaf = this.#history.onCommand((command: HistoryCommand) => {
      if (command.askedAtMs < healedAtMs || command.outcome === 'unknown') return;
      back[command.over] = Math.min(back[command.over], command.answeredAtMs! - healedAtMs);
      if (Math.max(back.rest, back.socket) < Infinity) all.resolve();
    });
    await Promise.race([all.promise, pause(BACK_DEADLINE_MS, undefined, { ref: false })]);
    deaf();
    for (const over of ['rest', 'socket'] as const) {
      // A device that was connecting meanwhile may first have to wait for its own deadline.
      const limitMs = over === 'socket' ? withinMs + CONNECT_TIMEOUT_MS : withinMs;
      if (back[over] > limitMs)
        this.#problems.push(`${over} was served only ${Math.round(back[over])} ms after healing`);
      back[over] = Math.round(Math.min(back[over], BACK_DEADLINE_MS));
    }
    return back;
  }

  /** Until there are none: so long after the healing. Null, which fails the run, when there still are some in the end. */
  async #untilNone(what: string, find: () => Promise<readonly string[]>): Promise<number | null> {
    let left: readonly string[] | null = null;
    while (nowMs() - this.#healedAtMs < CALM_WITHIN_MS) {
      left = await find().catch(() => null);
      if (left?.length === 0) return Math.round(nowMs() - this.#healedAtMs);
      await pause(500);
    }
    const which = left === null ? 'nobody could say which' : left.slice(0, EXAMPLES_MAX).join(', ');
    this.#problems.push(`${left?.length ?? 'some'} ${what} ${CALM_WITHIN_MS / 1000} s after healing (${which})`);
    return null;
  }

  async #judge(calm: Calm, startedAtMs: number, close: () => Promise<void>): Promise<RunFigures> {
    await close();
    const verify = await verifyRecords(this.#arena.databaseUrl, this.#historyFile);
    const { tally } = this.#history;
    const { demand, name, seed } = this.#options;
    const endedUnasked = [...this.#arena.ended];
    const reached = {
      operations: tally.operations,
      kills: this.#kills,
      stale: tally.stale,
      lostReplies: tally.lostConfirms,
    };
    const tame = (Object.keys(demand) as (keyof Demand)[])
      .filter((what) => reached[what] < demand[what])
      .map((what) => `too tame: ${reached[what]} ${what}, ${demand[what]} are demanded`);
    const problems = [
      ...this.#problems,
      ...endedUnasked,
      ...tame,
      ...(tally.serverErrors > 0 ? [`${tally.serverErrors} answers were 500`] : []),
      ...verify.problems,
    ];
    if (tally.serverErrors > 0 || endedUnasked.length > 0) await this.#showLogs();
    return {
      name,
      seed,
      seconds: Math.round((nowMs() - startedAtMs) / 1000),
      ...reached,
      confirmsUnderFault: this.#confirmsUnderFault,
      serverErrors: tally.serverErrors,
      endedUnasked,
      ...calm,
      answers: sorted(tally.answers),
      faults: [...this.#seen].map(([faultName, { injected, restMs, socketMs, answers }]) => ({
        name: faultName,
        injected,
        backMs: { rest: restMs, socket: socketMs },
        answers: sorted(answers),
      })),
      verify,
      problems,
    };
  }

  async #showLogs(): Promise<void> {
    for (const each of this.#arena.processes) {
      const text = await readFile(join(this.#arena.folder, `${each.name.replace(' ', '-')}.log`), 'utf8').catch(
        () => '',
      );
      const errors = text.split('\n').filter((line) => !line.startsWith('{') || /"level":[56]0/.test(line));
      if (errors.join('') !== '') this.#options.say(`--- ${each.name}\n${errors.slice(-LOG_LINES_MAX).join('\n')}`);
    }
  }
}

async function findOpen(operator: OperatorClient): Promise<string[]> {
  const open: string[] = [];
  for (const status of OPEN) for await (const { id } of operator.rides(REGION_ID, status)) open.push(`${id} ${status}`);
  return open;
}

/** Drivers who aren't available by the records, or are busy by what their devices were told. */
async function findHeld(operator: OperatorClient, devices: readonly Device[]): Promise<string[]> {
  const held = devices.filter(({ isFree }) => !isFree).map(({ driverId, told }) => `${driverId}: ${told}`);
  for await (const { id, status } of operator.drivers(REGION_ID))
    if (status !== 'available') held.push(`${id} ${status}`);
  return held;
}

const sorted = (counts: ReadonlyMap<string, number>): Record<string, number> =>
  Object.fromEntries([...counts].toSorted(([a], [b]) => (a < b ? -1 : 1)));
