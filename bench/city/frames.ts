/**
 * A driver's connection made of frames written by hand (engine.io 4, socket.io 5, over a WebSocket), so that the load takes
 * little of the machine that it shares with the service. It neither asks again nor connects again: whatever isn't answered
 * as hoped is a failure of the trial.
 */
import { WebSocket } from 'ws';
import type { Offer } from '../../src/client/driver-client.ts';
import type { Position } from '../../src/client/contract.ts';
import { Problem, Unreachable } from '../../src/client/problem.ts';

const CONNECT_DEADLINE_MS = 20_000;
const ANSWER_DEADLINE_MS = 20_000;
const LOOK_EVERY_MS = 1_000;
const NAMESPACE = '/drivers,';

type Reply = { ok: true; data: unknown } | { ok: false; error: { code: string; detail?: string } };

interface Asked {
  readonly event: string;
  readonly atMs: number;
  readonly resolve: (data: unknown) => void;
  readonly reject: (error: Error) => void;
}

export interface FramesEvents {
  readonly offer: (offer: Offer) => void;
  readonly closed: () => void;
}

export class FramesDriver {
  readonly #socket: WebSocket;
  readonly #events: FramesEvents;
  readonly #ready = Promise.withResolvers<void>();
  readonly #asked = new Map<number, Asked>();
  #lastAck = 0;
  #lastOfferId = '';

  private constructor(socket: WebSocket, token: string, events: FramesEvents) {
    this.#socket = socket;
    this.#events = events;
    socket.on('message', (data: Buffer) => this.#hear(data.toString(), token));
    socket.on('error', (error) => this.#fail(error.message));
    socket.on('close', () => {
      this.#fail('the connection was closed');
      events.closed();
    });
    setInterval(() => this.#lookForOverdue(), LOOK_EVERY_MS).unref();
  }

  /** Resolves when the service has told the driver's state. */
  static async connect(url: string, token: string, events: FramesEvents): Promise<FramesDriver> {
    const address = new URL('/socket.io/?EIO=4&transport=websocket', url);
    address.protocol = 'ws:';
    const socket = new WebSocket(address, { perMessageDeflate: false, handshakeTimeout: CONNECT_DEADLINE_MS });
    const driver = new FramesDriver(socket, token, events);
    const overdue = setTimeout(() => driver.#fail('no state'), CONNECT_DEADLINE_MS);
    await driver.#ready.promise.finally(() => clearTimeout(overdue));
    return driver;
  }

  async online(): Promise<void> {
    await this.#ask('online', {});
  }

  async location(position: Position): Promise<void> {
    await this.#ask('location', position);
  }

  trackLocation(position: Position): void {
    this.#socket.send(`42${NAMESPACE}${JSON.stringify(['location', position])}`);
  }

  async accept({ offerId, leaseToken }: Pick<Offer, 'offerId' | 'leaseToken'>): Promise<void> {
    await this.#ask('accept', { offerId, leaseToken });
  }

  async arrive(rideId: string): Promise<void> {
    await this.#ask('arrive', { rideId });
  }

  async start(rideId: string): Promise<void> {
    await this.#ask('start', { rideId });
  }

  async complete(rideId: string): Promise<void> {
    await this.#ask('complete', { rideId });
  }

  #ask(event: string, payload: object): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#lastAck += 1;
      this.#asked.set(this.#lastAck, { event, atMs: performance.now(), resolve, reject });
      this.#socket.send(`42${NAMESPACE}${this.#lastAck}${JSON.stringify([event, payload])}`);
    });
  }

  #hear(frame: string, token: string): void {
    if (frame === '2') return this.#socket.send('3');
    if (frame.startsWith('0')) return this.#socket.send(`40${NAMESPACE}${JSON.stringify({ token })}`);
    if (frame.startsWith('44')) return this.#fail(`refused: ${frame}`);
    const body = frame.indexOf('[', NAMESPACE.length);
    if (body === -1) return;
    const ack = frame.slice(2 + NAMESPACE.length, body);
    if (frame.startsWith('43')) return this.#answered(Number(ack), JSON.parse(frame.slice(body)) as [Reply]);
    const [event, data] = JSON.parse(frame.slice(body)) as [string, unknown];
    if (ack !== '') this.#socket.send(`43${NAMESPACE}${ack}[]`);
    if (event === 'state') this.#ready.resolve();
    if (event === 'offer') this.#show(data as Offer);
  }

  /** Once, however often it is pushed. */
  #show(offer: Offer): void {
    if (offer.offerId === this.#lastOfferId) return;
    this.#lastOfferId = offer.offerId;
    this.#events.offer(offer);
  }

  #answered(ack: number, [reply]: readonly [Reply]): void {
    const asked = this.#asked.get(ack);
    this.#asked.delete(ack);
    if (reply.ok) asked?.resolve(reply.data);
    else asked?.reject(new Problem(reply.error));
  }

  #lookForOverdue(): void {
    for (const [ack, { event, atMs, reject }] of this.#asked) {
      if (performance.now() - atMs < ANSWER_DEADLINE_MS) return;
      this.#asked.delete(ack);
      reject(new Unreachable(`${event}: no answer`));
    }
  }

  #fail(why: string): void {
    this.#ready.reject(new Unreachable(why));
    for (const { reject } of this.#asked.values()) reject(new Unreachable(why));
    this.#asked.clear();
  }
}
