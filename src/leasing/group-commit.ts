/**
 * Group commit: concurrent requests of one kind share a transaction.
 *
 * The window is nothing when idle (a request that finds no set under way starts one at once) and fills sets when
 * busy: requests that arrive while a set is under way wait for the next, which rests a little when the last one was
 * shared. Measured on 4 cores with full durability, the load on them too: sets of 50 carry 8 times what goes one at a
 * time, and sets of 200 no more. A second set beside one that isn't full made everything slower: at 1,000 rides/s offers
 * came after 170 ms (p50) instead of 75, at 300/s after 33 instead of 25. The rest spares a fifth of the database's time
 * at 300/s; counted from when the first of the next set came, it spared half of that, and no offer came sooner. Without
 * further sets beside full ones a kind that is asked for three times a ride stood in everybody's way from 900 rides/s on.
 *
 * One bad item never fails or stalls the others: an item whose rows are held is answered `busy` by its set and
 * then waits on its own; a set that fails is split until the item that fails it stands alone.
 */
import { isLockTimeout, isUnreachable } from '../database/connection.ts';

export interface Refusable {
  readonly refused: string | null;
}

export interface GroupCommitOptions<Item, Answer extends Refusable> {
  /** Runs one set in one transaction; answers in the order of the items. */
  readonly run: (region: number, items: Item[], wait: boolean) => Promise<Answer[]>;
  /** Equal items of a set are merged and share one answer. Null: no item equals another. */
  readonly keyOf: (item: Item) => string | null;
  /** After a set that was shared the next one gathers for so long; absent: `REST_MS`. */
  readonly restMs?: number;
}

const SET_MAX = 50;
/** Sets of one kind and region under way at the same time, when whole ones wait. */
const SETS_AT_ONCE = 3;
const REST_MS = 6;
/** Items waiting on their own for a locked row, each on a connection. */
const WAITS_AT_ONCE = 2;
const QUEUE_MAX = 20_000;

/** More is asked than can be queued: the caller shall come again later. */
export class OverloadedError extends Error {
  override name = 'OverloadedError';
}

/** It wasn't run, and won't be. */
export class TakenBackError extends Error {
  override name = 'TakenBackError';
}

/** One for all: each with a stack of its own took 4 % of a busy gateway. */
const TAKEN_BACK = new TakenBackError('taken back before it was run');

interface Waiter<Item, Answer> {
  readonly item: Item;
  readonly key: string | null;
  readonly promise: Promise<Answer>;
  /** Somebody waits for the answer who wouldn't know what to make of its being taken back. */
  isFirm: boolean;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: unknown) => void;
}

interface Lane<Item, Answer> {
  readonly region: number;
  queued: Waiter<Item, Answer>[];
  readonly byKey: Map<string, Waiter<Item, Answer>>;
  underWay: number;
  isResting: boolean;
  readonly blocked: Waiter<Item, Answer>[];
  waiting: number;
}

export class GroupCommit<Item, Answer extends Refusable> {
  readonly #options: GroupCommitOptions<Item, Answer>;
  readonly #lanes = new Map<number, Lane<Item, Answer>>();

  constructor(options: GroupCommitOptions<Item, Answer>) {
    this.#options = options;
  }

  /**
   * Rejects with OverloadedError when too much is queued, and with the database's error when it fails; with TakenBackError
   * only if it isn't firm.
   */
  submit(region: number, item: Item, isFirm = true): Promise<Answer> {
    const lane = this.#lane(region);
    const key = this.#options.keyOf(item);
    const twin = key === null ? undefined : lane.byKey.get(key);
    if (twin !== undefined) {
      twin.isFirm ||= isFirm;
      return twin.promise;
    }
    if (lane.queued.length + lane.blocked.length >= QUEUE_MAX) {
      return Promise.reject(new OverloadedError('too many requests are waiting for the database'));
    }
    const waiter = { item, key, isFirm, ...Promise.withResolvers<Answer>() };
    lane.queued.push(waiter);
    if (key !== null) lane.byKey.set(key, waiter);
    // What else this turn of the event loop brings goes into the same set.
    if (lane.queued.length === 1 || lane.queued.length === SET_MAX) setImmediate(() => this.#startSets(lane));
    return waiter.promise;
  }

  /**
   * Takes back an item whose set hasn't started, unless it is firm: what `submit` returned rejects with TakenBackError.
   * Returns whether it was taken back.
   */
  takeBack(region: number, item: Item): boolean {
    const lane = this.#lane(region);
    const key = this.#options.keyOf(item);
    if (key === null) return false;
    const waiter = lane.byKey.get(key);
    if (waiter === undefined || waiter.isFirm) return false;
    lane.byKey.delete(key);
    lane.queued.splice(lane.queued.indexOf(waiter), 1);
    waiter.reject(TAKEN_BACK);
    return true;
  }

  #lane(region: number): Lane<Item, Answer> {
    let lane = this.#lanes.get(region);
    if (lane === undefined) {
      lane = { region, queued: [], byKey: new Map(), underWay: 0, isResting: false, blocked: [], waiting: 0 };
      this.#lanes.set(region, lane);
    }
    return lane;
  }

  /** One set at a time; more only where a whole one waits already. */
  #startSets(lane: Lane<Item, Answer>): void {
    const mayStart = (): boolean =>
      lane.queued.length >= SET_MAX
        ? lane.underWay < SETS_AT_ONCE
        : lane.queued.length > 0 && lane.underWay === 0 && !lane.isResting;
    while (mayStart()) {
      const set = lane.queued.splice(0, SET_MAX);
      for (const { key } of set) if (key !== null) lane.byKey.delete(key);
      lane.underWay += 1;
      void this.#runSet(lane, set).finally(() => {
        lane.underWay -= 1;
        if (set.length > 1) this.#rest(lane);
        this.#startSets(lane);
      });
    }
  }

  #rest(lane: Lane<Item, Answer>): void {
    if (lane.isResting) return;
    lane.isResting = true;
    setTimeout(() => {
      lane.isResting = false;
      this.#startSets(lane);
    }, this.#options.restMs ?? REST_MS);
  }

  async #runSet(lane: Lane<Item, Answer>, set: Waiter<Item, Answer>[]): Promise<void> {
    try {
      const answers = await this.#options.run(
        lane.region,
        set.map(({ item }) => item),
        false,
      );
      set.forEach((waiter, i) => {
        const answer = answers[i]!;
        if (answer.refused === 'busy') lane.blocked.push(waiter);
        else waiter.resolve(answer);
      });
      this.#startWaits(lane);
    } catch (error) {
      if (set.length === 1 || isUnreachable(error)) {
        for (const { reject } of set) reject(error);
      } else {
        const half = Math.ceil(set.length / 2);
        await this.#runSet(lane, set.slice(0, half));
        await this.#runSet(lane, set.slice(half));
      }
    }
  }

  #startWaits(lane: Lane<Item, Answer>): void {
    while (lane.blocked.length > 0 && lane.waiting < WAITS_AT_ONCE) {
      const waiter = lane.blocked.shift()!;
      lane.waiting += 1;
      void this.#waitAlone(lane, waiter).finally(() => {
        lane.waiting -= 1;
        this.#startWaits(lane);
      });
    }
  }

  async #waitAlone(lane: Lane<Item, Answer>, { item, resolve, reject }: Waiter<Item, Answer>): Promise<void> {
    try {
      const [answer] = await this.#options.run(lane.region, [item], true);
      resolve(answer!);
    } catch (error) {
      if (isLockTimeout(error)) resolve({ refused: 'busy' } as Answer);
      else reject(error);
    }
  }
}
