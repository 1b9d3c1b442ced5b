/**
 * A history, folded as it is read into what is needed to judge it: of each offer, ride and key what was asked and
 * answered, and of each offer who was shown it. Lines may come in any order but for two things: `run` comes first and
 * `end` last, and what one client was shown comes in the order of time.
 */
import { createHash } from 'node:crypto';
import type { HistoryCheckId } from '../catalog.ts';
import type { Tally } from '../checks.ts';
import type { HistoryCommand, HistoryFault, HistoryLine, HistoryRun, HistoryShown } from '../history.ts';
import { Asks } from './asks.ts';
import { AskIds, hash32 } from './ids.ts';
import { linesOf, parseLine, secretsIn, type Line, type Parsed } from './lines.ts';

/** Words that could be lease tokens, until the records tell. */
const SUSPECTS_MAX = 10_000;
const FIRST_FENCE = 0;

export interface Showing {
  readonly client: string;
  readonly driverId: string;
  readonly fence: number | undefined;
  readonly token: string | undefined;
  readonly isAssignment: boolean;
}

/** Lists are as long as they have to be: the first `push` makes room for 17. */
export interface OfferStory {
  asks: readonly Asks[];
  /** Of a holder who leased the driver by itself. */
  grant: Asks | null;
  shown: readonly Showing[];
}

export interface RideStory {
  request: Asks | null;
  asks: readonly Asks[];
}

export class Stories {
  run: HistoryRun | null = null;
  /** When nothing was broken any more, and the last moment of all. */
  healedAtMs = Infinity;
  endedAtMs = 0;
  readonly offers = new Map<string, OfferStory>();
  readonly rides = new Map<string, RideStory>();
  /** By command and Idempotency-Key. */
  readonly keys = new Map<string, Asks>();
  readonly faults: HistoryFault[] = [];
  /** Words that could be lease tokens, by SHA-256, with the lines they are on. */
  readonly suspects = new Map<string, number>();
  readonly counts = {
    lines: 0,
    commands: 0,
    okConfirms: 0,
    refused: 0,
    unknown: 0,
    shown: 0,
    stale: 0,
    kills: 0,
    faults: 0,
  };
  /** Rides may have been made that nobody could ask about again. */
  unknownWithoutKey = 0;

  readonly #tally: Tally<HistoryCheckId>;
  readonly #ids = new AskIds();
  /** Repetitions whose first ask wasn't read yet: it ended later. */
  #repetitions: { readonly number: number; readonly of: string; readonly what: number; readonly atMs: number }[] = [];
  /** The newest offer that each device was shown. */
  readonly #newest = new Map<string, { atMs: number; fence: number }>();
  readonly #names = new Map<string, string>();
  #isOver = false;

  constructor(tally: Tally<HistoryCheckId>) {
    this.#tally = tally;
  }

  read(line: Line): void {
    this.counts.lines++;
    const parsed = parseLine(line);
    this.#lookForSecrets(line, parsed);
    this.#judge('H1a', 'line' in parsed, line.number, 'problem' in parsed ? parsed.problem : '');
    if ('line' in parsed) this.#add(parsed.line, line.number);
  }

  /** To be called after the last line. */
  end(): void {
    for (const { number, of, what, atMs } of this.#repetitions) this.#judgeRepetition(number, of, what, atMs);
    this.#repetitions = [];
    this.#tally.judge('H1b', this.run !== null, () => 'there is no run line');
    this.#tally.judge('H1b', this.#isOver, () => 'there is no end line: the load may have gone on');
  }

  /** Null: nobody asked or was shown anything about it. */
  offer(id: string): OfferStory {
    let story = this.offers.get(id);
    if (story === undefined) this.offers.set(id, (story = { asks: [], grant: null, shown: [] }));
    return story;
  }

  ride(id: string): RideStory {
    let story = this.rides.get(id);
    if (story === undefined) this.rides.set(id, (story = { request: null, asks: [] }));
    return story;
  }

  #judge(id: HistoryCheckId, holds: boolean, number: number, example: string): void {
    this.#tally.judge(id, holds, () => `line ${number}: ${example}`);
  }

  #lookForSecrets({ text, number }: Line, parsed: Parsed): void {
    const { isSecret, suspects } = secretsIn(text, parsed);
    this.#judge('H1d', !isSecret, number, 'shows a token');
    if (this.suspects.size >= SUSPECTS_MAX) return;
    for (const word of suspects) this.suspects.set(createHash('sha256').update(word).digest('hex'), number);
  }

  #add(line: HistoryLine, number: number): void {
    this.#judgeOrder(line, number);
    if (line.kind === 'command') this.#addCommand(line, number);
    else if (line.kind === 'shown') this.#addShown(line, number);
    else if (line.kind === 'fault') this.#addFault(line);
  }

  #judgeOrder(line: HistoryLine, number: number): void {
    if (this.#isOver) this.#judge('H1b', false, number, `a ${line.kind} after the end`);
    if (line.kind === 'run') {
      this.#judge('H1b', this.run === null && number === 1, number, 'a run isn’t the first line');
      this.run ??= line;
    } else if (line.kind === 'end') {
      this.#isOver = true;
      this.healedAtMs = line.healedAtMs;
      this.#judge(
        'H1b',
        line.atMs >= this.endedAtMs && line.healedAtMs <= line.atMs,
        number,
        'the end is before what happened',
      );
      this.endedAtMs = Math.max(this.endedAtMs, line.atMs);
    } else {
      const fromMs = line.kind === 'command' ? line.askedAtMs : line.atMs;
      const toMs =
        line.kind === 'command'
          ? (line.answeredAtMs ?? fromMs)
          : line.kind === 'fault'
            ? (line.healedAtMs ?? fromMs)
            : fromMs;
      this.#judge(
        'H1b',
        fromMs >= (this.run?.atMs ?? 0) && toMs >= fromMs,
        number,
        `a ${line.kind} ended before it began, or began before the run`,
      );
      this.endedAtMs = Math.max(this.endedAtMs, toMs);
    }
  }

  #addCommand(command: HistoryCommand, number: number): void {
    const what = hash32(identityOf(command));
    const { id, askedAtMs: atMs, repeats } = command;
    this.#judge('H1c', this.#ids.add(id, { what, atMs }), number, 'its id was there before');
    if (repeats !== undefined && this.#ids.get(repeats) === null)
      this.#repetitions.push({ number, of: repeats, what, atMs });
    else if (repeats !== undefined) this.#judgeRepetition(number, repeats, what, atMs);
    this.#count(command);
    this.#fold(command);
  }

  #judgeRepetition(number: number, of: string, what: number, atMs: number): void {
    const first = this.#ids.get(of);
    const holds = first !== null && first.what === what && first.atMs <= atMs;
    this.#judge(
      'H1c',
      holds,
      number,
      first === null ? 'repeats an ask that isn’t there' : 'repeats an ask of something else, or a later one',
    );
  }

  #count({ command, outcome, isStale, code }: HistoryCommand): void {
    this.counts.commands++;
    if (command === 'confirm' && outcome === 'ok') this.counts.okConfirms++;
    if (outcome === 'refused') this.counts.refused++;
    if (outcome === 'unknown') this.counts.unknown++;
    if (command !== 'confirm' && command !== 'decline' && command !== 'release') return;
    if (isStale === true || code === 'lease_lost' || code === 'lease_expired') this.counts.stale++;
  }

  #fold(command: HistoryCommand): void {
    switch (command.command) {
      case 'received':
      case 'confirm':
      case 'decline':
      case 'release':
        return this.#addTo(this.offer(command.offerId!), command, command.tokenSha256!);
      case 'cancel':
      case 'arrive':
      case 'start':
      case 'complete':
        return this.#addTo(this.ride(command.rideId!), command, this.#known(command.driverId ?? ''));
      case 'request':
      case 'offer':
        return this.#addCreating(command);
      case 'online':
      case 'offline':
    }
  }

  #addTo(story: { asks: readonly Asks[] }, command: HistoryCommand, who: string): void {
    const { asks: all } = story;
    let asks = all.find((each) => each.command === command.command && each.who === who);
    if (asks === undefined) {
      asks = new Asks(command, all[0]?.who === who ? all[0].who : who);
      story.asks = [...all, asks];
    }
    const agrees = asks.add(command);
    if (!agrees) this.#tally.judge('H4a', false, () => `${asks.toString()}: ${command.id} was answered otherwise`);
  }

  #addCreating(command: HistoryCommand): void {
    const { idempotencyKey: key } = command;
    const name = `${command.command} ${key}`;
    const asks = (key !== undefined && this.keys.get(name)) || new Asks(command, key ?? '');
    if (key !== undefined) this.keys.set(name, asks);
    else if (command.command === 'request' && command.outcome === 'unknown') this.unknownWithoutKey++;
    const agrees = asks.add(command);
    if (key !== undefined) this.#tally.judge('H4b', agrees, () => `${asks.toString()}: ${command.id} made another`);
    if (command.outcome !== 'ok') return;
    if (command.command === 'request') this.ride(command.rideId!).request ??= asks;
    else this.offer(command.offerId!).grant ??= asks;
  }

  #addShown(shown: HistoryShown, number: number): void {
    this.counts.shown++;
    const { offerId, fence, tokenSha256: token } = shown;
    const [client, driverId] = [this.#known(shown.client), this.#known(shown.driverId)];
    const isNew =
      offerId !== undefined &&
      this.#addShowing(offerId, { client, driverId, fence, token, isAssignment: shown.event === 'assignment' });
    this.#judgeNewest(shown, isNew, number);
  }

  /** Whether this device wasn't shown the offer before. */
  #addShowing(offerId: string, showing: Showing): boolean {
    const story = this.offer(offerId);
    const { shown } = story;
    const isNew = shown.every(({ client }) => client !== showing.client);
    if (!shown.some((other) => isSameShowing(other, showing))) story.shown = [...shown, showing];
    return isNew;
  }

  /** Drivers and devices are few, and each line names them anew. */
  #known(name: string): string {
    const known = this.#names.get(name);
    if (known === undefined) this.#names.set(name, name);
    return known ?? name;
  }

  #judgeNewest({ client, driverId, event, atMs, fence }: HistoryShown, isNew: boolean, number: number): void {
    const device = `${client} ${driverId}`;
    let newest = this.#newest.get(device);
    if (newest === undefined) this.#newest.set(device, (newest = { atMs, fence: FIRST_FENCE }));
    this.#judge('H1b', atMs >= newest.atMs, number, 'a client was shown this before the line above it');
    newest.atMs = atMs;
    if (event !== 'offer' || fence === undefined) return;
    if (isNew)
      this.#judge(
        'H7c',
        fence > newest.fence,
        number,
        `driver ${driverId} was shown fence ${fence} after ${newest.fence}`,
      );
    newest.fence = Math.max(newest.fence, fence);
  }

  #addFault(fault: HistoryFault): void {
    this.faults.push(fault);
    this.counts.faults++;
    if (fault.name.includes('kill')) this.counts.kills++;
  }
}

const isSameShowing = (a: Showing, b: Showing): boolean =>
  a.client === b.client &&
  a.driverId === b.driverId &&
  a.fence === b.fence &&
  a.token === b.token &&
  a.isAssignment === b.isAssignment;

/** What an ask is the same by: without what only its answer tells. */
function identityOf(command: HistoryCommand): string {
  const { rideId, driverId = '', offerId, tokenSha256, idempotencyKey, id } = command;
  switch (command.command) {
    // Without a key it can't be repeated: that would be another ride.
    case 'request':
      return `request ${idempotencyKey ?? id}`;
    case 'offer':
      return `offer ${rideId} ${driverId} ${idempotencyKey ?? id}`;
    case 'received':
    case 'confirm':
    case 'decline':
    case 'release':
      return `${command.command} ${offerId} ${tokenSha256}`;
    default:
      return `${command.command} ${rideId ?? ''} ${driverId}`;
  }
}

/** @throws the file system's error */
export async function readStories(path: string, tally: Tally<HistoryCheckId>): Promise<Stories> {
  const stories = new Stories(tally);
  for await (const lines of linesOf(path)) for (const line of lines) stories.read(line);
  stories.end();
  return stories;
}
