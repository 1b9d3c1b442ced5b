/** All asks for one thing, folded into one: a confirm of a term by its token, a step of a ride by its driver, … */
import type { HistoryCommand } from '../history.ts';
import { meaningOf } from './answers.ts';

export class Asks {
  readonly command: HistoryCommand['command'];
  /** Whose: the token's hash of a term, the driver of a step, the key of a request; empty for a ride's own cancellation. */
  readonly who: string;
  /** The first ask, for people. */
  readonly id: string;

  /** The first ask that did it or may have. */
  firstAskedMs = Infinity;
  /** The first ask of all, and the last moment at which one that wasn't granted was still without answer. */
  triedFromMs = Infinity;
  triedToMs = -Infinity;

  /** Of the answers that said yes: the first answer, and the first and the last ask. */
  doneAtMs = Infinity;
  doneAskedMs = Infinity;
  lastDoneAskedMs = -Infinity;
  /** Of those that said never. */
  neverAtMs = Infinity;
  neverCode: string | null = null;
  /** One was told that the term was lost: ended otherwise, or lapsed and followed by the driver's next. */
  isLost = false;
  /** One was told that it came too early: a copy of it may come later. */
  wasTooEarly = false;
  /** Asks without answer. */
  unknown = 0;

  /** What the first yes told. */
  rideId: string | undefined;
  driverId: string | undefined;
  offerId: string | undefined;
  token: string | undefined;
  fence: number | undefined;
  assignedAt: string | undefined;

  constructor({ command, id }: HistoryCommand, who: string) {
    this.command = command;
    this.who = who;
    this.id = id;
  }

  get isDone(): boolean {
    return this.doneAtMs !== Infinity;
  }

  /** One of them may have had its effect. */
  get mayBeDone(): boolean {
    return this.firstAskedMs !== Infinity;
  }

  /** Somebody who may asked for it: whether it was refused then is another matter. */
  get isAskedFor(): boolean {
    return this.mayBeDone || this.wasTooEarly || this.neverCode !== null;
  }

  /** False when this answer contradicts an earlier one. */
  add(ask: HistoryCommand): boolean {
    const meaning = meaningOf(ask);
    this.triedFromMs = Math.min(this.triedFromMs, ask.askedAtMs);
    if (meaning !== 'done') this.triedToMs = Math.max(this.triedToMs, ask.answeredAtMs ?? Infinity);
    if (ask.outcome === 'unknown') this.unknown++;
    this.wasTooEarly ||= ask.code === 'wrong_phase';
    if (meaning === 'done' || meaning === 'open') this.firstAskedMs = Math.min(this.firstAskedMs, ask.askedAtMs);
    if (meaning === 'never') {
      this.neverAtMs = Math.min(this.neverAtMs, ask.answeredAtMs!);
      this.neverCode ??= ask.code!;
      this.isLost ||= ask.code === 'lease_lost';
    }
    return meaning === 'done' ? this.#addDone(ask) : true;
  }

  #addDone(ask: HistoryCommand): boolean {
    const isFirst = !this.isDone;
    this.doneAtMs = Math.min(this.doneAtMs, ask.answeredAtMs!);
    this.doneAskedMs = Math.min(this.doneAskedMs, ask.askedAtMs);
    this.lastDoneAskedMs = Math.max(this.lastDoneAskedMs, ask.askedAtMs);
    if (!isFirst) return tells.every((field) => ask[field] === undefined || ask[field] === this[nameOf(field)]);
    this.rideId = ask.rideId;
    this.driverId = ask.driverId;
    this.offerId = ask.offerId;
    // Most often the same as who asked: kept once.
    this.token = ask.tokenSha256 === this.who ? this.who : ask.tokenSha256;
    this.fence = ask.fence;
    this.assignedAt = ask.assignedAt;
    return true;
  }

  toString(): string {
    return `${this.command} ${this.id}`;
  }
}

const tells = ['rideId', 'driverId', 'offerId', 'tokenSha256', 'fence', 'assignedAt'] as const;
const nameOf = (field: (typeof tells)[number]) => (field === 'tokenSha256' ? 'token' : field);
