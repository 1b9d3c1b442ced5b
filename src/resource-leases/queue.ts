/**
 * The queue before held resources, as one process sees it: its own clients' places. The order is the database's, across
 * processes; a release calls by NOTIFY, and whoever is first here then asks again. Nobody polls: an end that nobody
 * declares is waited for by one timer for each resource, and twice a second one statement says for all places of the
 * process that they are still wanted (and hears of calls that got lost).
 */
import { isUnreachable, type Sql } from '../database/connection.ts';
import * as transitions from './transitions.ts';

/** What a try came to: its answer, or after how long another may be worth it (null: when called). */
export type Attempt<Answer> =
  | { readonly isOver: true; readonly answer: Answer }
  | { readonly isOver: false; readonly answer: Answer; readonly againInMs: number | null };

export interface Place<Answer> {
  readonly resources: readonly string[];
  readonly priority: number;
  readonly waitMs: number;
  readonly attempt: (ticket: number) => Promise<Attempt<Answer>>;
  /** Takes back what a try was granted when nobody waits for it any more. */
  readonly undo: (answer: Answer) => void;
  readonly signal: AbortSignal | undefined;
}

interface Waiting {
  readonly ticket: number;
  readonly place: Place<unknown>;
  readonly resolve: (answer: unknown) => void;
  readonly reject: (error: unknown) => void;
  timer: NodeJS.Timeout | undefined;
  /** Asked for while a try was under way: one more after it. */
  isTrying: boolean;
  isCalled: boolean;
  /** Time is up: the next answer is the last. */
  isLast: boolean;
  /** Nobody waits any more. */
  isGone: boolean;
}

const CHANNEL = 'cabrank_leases';
const SEEN_EVERY_MS = 500;
/** Timers fire early by a fraction, and an end has to have passed. */
const AFTER_END_MS = 2;
const PLACES_MAX = 10_000;

/** There is no place here: more clients wait than a process keeps places for, or it is ending. Another may have one. */
export class NoPlaceError extends Error {
  override name = 'NoPlaceError';
}

export class Queue {
  readonly #sql: Sql;
  readonly #waiting = new Map<number, Waiting>();
  readonly #byResource = new Map<string, Set<Waiting>>();
  readonly #onError: (error: unknown) => void;
  #listening: Promise<{ unlisten: () => Promise<void> }> | null = null;
  #seen: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(sql: Sql, onError: (error: unknown) => void) {
    this.#sql = sql;
    this.#onError = onError;
  }

  /** Waits for a turn; the place is given up at the end, whatever the end is. Rejects when aborted. */
  async wait<Answer>(place: Place<Answer>): Promise<Answer> {
    place.signal?.throwIfAborted();
    if (this.#isClosed || this.#waiting.size >= PLACES_MAX) throw new NoPlaceError('too many wait for leases here');
    const endsAtMs = performance.now() + place.waitMs;
    await this.#listen();
    const ticket = await transitions.takeTicket(this.#sql, place.resources, place.priority);
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const waiting: Waiting = {
      ticket,
      place: place as Place<unknown>,
      resolve: resolve as (answer: unknown) => void,
      reject,
      timer: undefined,
      isTrying: false,
      isCalled: false,
      isLast: false,
      isGone: false,
    };
    const abort = (): void => reject(place.signal!.reason);
    const overdue = setTimeout(() => this.#timeUp(waiting), Math.max(0, endsAtMs - performance.now()));
    place.signal?.addEventListener('abort', abort);
    this.#add(waiting);
    // What was released before the ticket was there called nobody. Behind others of ours it is their turn to look.
    if (this.#isFirst(waiting)) this.#try(waiting);
    try {
      return await promise;
    } finally {
      clearTimeout(overdue);
      place.signal?.removeEventListener('abort', abort);
      this.#remove(waiting);
      await transitions.dropTickets(this.#sql, [ticket]).catch(this.#onError);
    }
  }

  /** Whoever waits tries once more, and then has to wait elsewhere. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const waiting of this.#waiting.values()) this.#timeUp(waiting);
    const listening = this.#listening;
    this.#listening = null;
    await listening?.then(({ unlisten }) => unlisten()).catch(this.#onError);
  }

  /** One more try, whose answer counts whatever it is. */
  #timeUp(waiting: Waiting): void {
    waiting.isLast = true;
    this.#try(waiting);
  }

  #add(waiting: Waiting): void {
    this.#waiting.set(waiting.ticket, waiting);
    for (const resource of waiting.place.resources) {
      const here = this.#byResource.get(resource) ?? new Set();
      this.#byResource.set(resource, here.add(waiting));
    }
    this.#seen ??= setInterval(() => void this.#sayThatWeWait(), SEEN_EVERY_MS).unref();
  }

  #remove(waiting: Waiting): void {
    waiting.isGone = true;
    clearTimeout(waiting.timer);
    this.#waiting.delete(waiting.ticket);
    for (const resource of waiting.place.resources) {
      const here = this.#byResource.get(resource);
      here?.delete(waiting);
      if (here?.size === 0) this.#byResource.delete(resource);
      else this.#call(resource);
    }
    if (this.#waiting.size > 0) return;
    clearInterval(this.#seen);
    this.#seen = undefined;
  }

  /** A resource may be free: the first of ours tries. */
  #call(resource: string): void {
    const first = this.#firstOf(resource);
    if (first !== undefined) this.#try(first);
  }

  #isFirst(waiting: Waiting): boolean {
    return waiting.place.resources.some((each) => this.#firstOf(each) === waiting);
  }

  #firstOf(resource: string): Waiting | undefined {
    let first: Waiting | undefined;
    for (const waiting of this.#byResource.get(resource) ?? []) {
      const ahead = waiting.place.priority - (first?.place.priority ?? -Infinity);
      if (ahead > 0 || (ahead === 0 && waiting.ticket < first!.ticket)) first = waiting;
    }
    return first;
  }

  #try(waiting: Waiting): void {
    clearTimeout(waiting.timer);
    waiting.isCalled = true;
    if (!waiting.isTrying) void this.#tryWhileCalled(waiting);
  }

  async #tryWhileCalled(waiting: Waiting): Promise<void> {
    waiting.isTrying = true;
    while (waiting.isCalled && !waiting.isGone) {
      waiting.isCalled = false;
      const { isLast, place, ticket } = waiting;
      try {
        const attempt = await place.attempt(ticket);
        if (attempt.isOver && waiting.isGone) place.undo(attempt.answer);
        else if (attempt.isOver || (isLast && !this.#isClosed)) waiting.resolve(attempt.answer);
        else if (isLast) waiting.reject(new NoPlaceError('whoever waits here has to wait elsewhere'));
        else if (attempt.againInMs !== null) this.#tryIn(waiting, attempt.againInMs);
      } catch (error) {
        // A database that is away comes back within the wait, or not.
        if (isUnreachable(error) && !isLast) this.#tryIn(waiting, SEEN_EVERY_MS);
        else waiting.reject(error);
      }
      // Whoever waits hears of it, and leaves, before another try.
      await Promise.resolve();
    }
    waiting.isTrying = false;
  }

  #tryIn(waiting: Waiting, ms: number): void {
    // Those behind the first are called when it is their turn: a timer for each would be a storm.
    if (waiting.isGone || !this.#isFirst(waiting)) return;
    clearTimeout(waiting.timer);
    waiting.timer = setTimeout(() => this.#try(waiting), ms + AFTER_END_MS);
  }

  async #sayThatWeWait(): Promise<void> {
    try {
      const callable = await transitions.seeTickets(this.#sql, [...this.#waiting.keys()]);
      for (const ticket of callable)
        for (const each of this.#waiting.get(ticket)?.place.resources ?? []) this.#call(each);
    } catch (error) {
      this.#onError(error);
    }
  }

  async #listen(): Promise<void> {
    this.#listening ??= this.#sql.listen(CHANNEL, (resource) => this.#call(resource));
    try {
      await this.#listening;
    } catch (error) {
      this.#listening = null;
      throw error;
    }
  }
}
