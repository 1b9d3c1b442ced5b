import { io, type Socket } from 'socket.io-client';
import type { Assignment, DriverStatus, Position, RideStatus } from './contract.ts';
import { fullJitterMs, isTransient, Problem, Unreachable } from './problem.ts';
import type { TokenSource } from './token.ts';

/** A ride offered to this driver alone, for a while. */
export interface Offer {
  readonly offerId: string;
  readonly rideId: string;
  /** Proves that the answer comes from the offer's holder; goes back with it, and nowhere else. */
  readonly leaseToken: string;
  readonly fence: number;
  /** The decision window in milliseconds, counted from receipt. */
  readonly expiresInMs: number;
  readonly pickup: Position;
  readonly dropoff: Position;
  readonly pickupEtaS: number;
}

/** An offer on the driver's screen. */
export interface ShownOffer extends Offer {
  /** When the window closes, on the clock of `performance.now()`: a device's wall clock may jump. */
  readonly decideByMs: number;
}

/** The ride isn't this driver's any more; `source` is who took it, `reasonCode` why. */
export interface RideCancelled {
  readonly rideId: string;
  readonly reasonCode: string;
  readonly source: string;
}

/** An assignment as it is pushed: with where to drive. */
export interface AssignedRide extends Assignment {
  readonly pickup: Position;
  readonly dropoff: Position;
}

/** How the service sees this driver. */
export interface DriverState {
  readonly status: DriverStatus;
  readonly offer: Offer | null;
  /** The ride in hand, and how far it has come. */
  readonly assignment: (AssignedRide & { readonly rideStatus: RideStatus }) | null;
}

export interface DriverEvents {
  /** On every connect, and when another notice may have been lost; the truth: whatever the app believed gives way to it. */
  state?(state: DriverState): void;
  /** A new offer; each is shown once, however often it is pushed. */
  offer?(offer: ShownOffer): void;
  /** Take it off the screen. */
  offerWithdrawn?(withdrawn: { readonly offerId: string; readonly reason: string }): void;
  assignment?(ride: AssignedRide): void;
  rideCancelled?(cancelled: RideCancelled): void;
  /** The connection was lost, or couldn't be made; the client goes on trying. */
  disconnected?(reason: Error): void;
}

export interface DriverClientOptions {
  /** The service's base URL; of several, the next is tried when one can't be reached. */
  readonly url: string | readonly string[];
  /** A token of role `driver` whose `sub` is the driver's id; a source is asked before each connect. */
  readonly token: string | TokenSource;
  readonly events: DriverEvents;
}

type Answer = { ok: true; data: unknown } | { ok: false; error: { code: string; detail?: string } };

/** Of ten thousand who come back at once the last is let in after some seconds; those who gave up and came again kept all waiting. */
const CONNECT_TIMEOUT_MS = 10_000;
const RECONNECT_BASE_MS = 250;
const RECONNECT_MAX_MS = 5_000;
/** How long one try waits for the service's answer, and how long a command is tried over and over. */
const ANSWER_TIMEOUT_MS = 3_000;
const COMMAND_DEADLINE_MS = 20_000;
const RETRY_BASE_MS = 100;
const RETRY_MAX_MS = 2_000;
/** Offers remembered so as to be shown once; a driver holds one at a time, so a few would do. */
const SHOWN_MAX = 16;

/**
 * A driver's app's connection to the service: the socket, and what a careful app does with it.
 *
 * Every command may be repeated without harm, so one whose answer got lost is sent again, over the next connection
 * if need be, until it is answered or its deadline has passed. Commands throw `Problem` when the service refuses
 * (`lease_expired`, `ride_taken`, …) and `Unreachable` when its answer couldn't be had: the outcome is open then, and
 * the next `state` tells.
 */
export class DriverClient {
  readonly #urls: readonly string[];
  readonly #token: TokenSource;
  readonly #events: DriverEvents;
  #socket: Socket | null = null;
  #openedAtMs = 0;
  /** Connected, and told the state: before that, a command's answer could be older news than the state's. */
  #ready = false;
  #running = false;
  /** Connections in a row that failed or didn't last. */
  #failures = 0;
  #reconnect: ReturnType<typeof setTimeout> | undefined;
  /** Whoever waits for a connection, or for it to be given up. */
  readonly #waiting = new Set<() => void>();
  readonly #shown = new Set<string>();
  #onScreen: ShownOffer | null = null;

  constructor(options: DriverClientOptions) {
    this.#urls = typeof options.url === 'string' ? [options.url] : options.url;
    if (this.#urls.length === 0) throw new RangeError('a driver client needs at least one URL');
    const { token } = options;
    this.#token = typeof token === 'string' ? () => token : token;
    this.#events = options.events;
  }

  /** Connects and stays connected until `close`. The first thing to arrive is the `state` event. */
  connect(): void {
    if (this.#running) return;
    this.#running = true;
    this.#open();
  }

  /** Ends the connection and every command still waiting for an answer. `connect` starts anew. */
  close(): void {
    this.#running = false;
    clearTimeout(this.#reconnect);
    this.#drop();
    this.#wake();
  }

  /** Loses the connection without a word, as in a tunnel, for at least so long: to see what an app makes of it. */
  interrupt(ms: number): void {
    if (this.#socket !== null) this.#reconnectAfter(ms);
  }

  /** Ready for rides. The service also wants to know where, so send a location. */
  online(): Promise<void> {
    return this.#command('online', {});
  }

  /** No more rides; declines an offer that is still open. */
  offline(): Promise<void> {
    return this.#command('offline', {});
  }

  /** Where the driver is, and to be sure that it arrived. */
  location(position: Position): Promise<void> {
    return this.#command('location', position);
  }

  /** Where the driver is, for every few seconds: a lost one is made up for by the next. */
  trackLocation(position: Position): void {
    if (this.#ready) this.#socket?.volatile.emit('location', position);
  }

  /** Repeating it, even after the window, gives the same assignment. */
  async accept(offer: Pick<Offer, 'offerId' | 'leaseToken'>): Promise<Assignment> {
    const answer = await this.#command<{ assignment: Assignment }>('accept', answerTo(offer));
    this.#onScreen = null;
    return answer.assignment;
  }

  async decline(offer: Pick<Offer, 'offerId' | 'leaseToken'>, reasonCode?: string): Promise<void> {
    await this.#command('decline', { ...answerTo(offer), ...(reasonCode !== undefined && { reasonCode }) });
    this.#onScreen = null;
  }

  /** At the pick-up. */
  arrive(rideId: string): Promise<void> {
    return this.#command('arrive', { rideId });
  }

  /** The rider is in. */
  start(rideId: string): Promise<void> {
    return this.#command('start', { rideId });
  }

  /** At the drop-off: the driver is free again. */
  complete(rideId: string): Promise<void> {
    return this.#command('complete', { rideId });
  }

  /** Gives an accepted ride back, before it started: the service looks for another driver. */
  cancel(rideId: string, reasonCode: string): Promise<void> {
    return this.#command('cancel', { rideId, reasonCode });
  }

  #open(): void {
    const url = new URL('/drivers', this.#urls[this.#failures % this.#urls.length]).href;
    // Reconnecting is ours: socket.io's own can't move on to another address. Compression costs far more than it
    // saves on messages this small.
    const socket = io(url, {
      transports: ['websocket'],
      forceNew: true,
      reconnection: false,
      timeout: CONNECT_TIMEOUT_MS,
      perMessageDeflate: false as never,
      auth: (send) => void this.#authenticate(socket, send),
    });
    this.#socket = socket;
    this.#openedAtMs = performance.now();
    socket.on('connect_error', (error) => this.#lost(socket, refusalOf(error)));
    socket.on('disconnect', (reason) => this.#lost(socket, new Unreachable(reason)));
    this.#listen(socket);
  }

  async #authenticate(socket: Socket, send: (auth: { token: string }) => void): Promise<void> {
    try {
      send({ token: await this.#token() });
    } catch (error) {
      this.#lost(socket, error as Error);
    }
  }

  #listen(socket: Socket): void {
    socket.on('state', (state: DriverState) => {
      this.#ready = true;
      this.#takeState(state);
      this.#wake();
    });
    socket.on('offer', (offer: Offer, acknowledge?: () => void) => {
      // At once, before anybody looks at it: the acknowledgement is what gives the driver the time to decide.
      acknowledge?.();
      this.#show(offer);
    });
    socket.on('offer:withdrawn', (withdrawn: { offerId: string; reason: string }) => this.#withdraw(withdrawn));
    socket.on('assignment', (ride: AssignedRide) => this.#events.assignment?.(ride));
    socket.on('ride:cancelled', (cancelled: { rideId: string; reasonCode: string; source: string }) =>
      this.#events.rideCancelled?.(cancelled),
    );
  }

  #takeState(state: DriverState): void {
    const gone = this.#onScreen;
    if (gone !== null && state.offer?.offerId !== gone.offerId)
      this.#withdraw({ offerId: gone.offerId, reason: 'over' });
    this.#events.state?.(state);
    if (state.offer !== null) this.#show(state.offer);
  }

  #show(offer: Offer): void {
    if (this.#shown.has(offer.offerId)) return;
    this.#shown.add(offer.offerId);
    for (const oldest of this.#shown) {
      if (this.#shown.size <= SHOWN_MAX) break;
      this.#shown.delete(oldest);
    }
    this.#onScreen = { ...offer, decideByMs: performance.now() + offer.expiresInMs };
    this.#events.offer?.(this.#onScreen);
  }

  #withdraw(withdrawn: { offerId: string; reason: string }): void {
    if (this.#onScreen?.offerId === withdrawn.offerId) this.#onScreen = null;
    this.#events.offerWithdrawn?.(withdrawn);
  }

  #lost(socket: Socket, reason: Error): void {
    if (socket !== this.#socket) return;
    this.#reconnectAfter(0);
    this.#events.disconnected?.(reason);
  }

  #reconnectAfter(awayMs: number): void {
    this.#drop();
    // One that lasted was a good one; otherwise two devices of one driver would throw each other out without a pause.
    const lasted = performance.now() - this.#openedAtMs > RECONNECT_MAX_MS;
    this.#failures = lasted ? 1 : this.#failures + 1;
    const pauseMs = awayMs + fullJitterMs(this.#failures, RECONNECT_BASE_MS, RECONNECT_MAX_MS);
    this.#reconnect = setTimeout(() => this.#open(), pauseMs);
  }

  #drop(): void {
    const socket = this.#socket;
    this.#socket = null;
    this.#ready = false;
    // Below socket.io first: a farewell could wait behind what a dead line still has to carry.
    socket?.io.engine?.close();
    socket?.disconnect();
  }

  #wake(): void {
    for (const wake of this.#waiting) wake();
  }

  async #command<Data>(event: string, payload: object): Promise<Data> {
    const deadlineAtMs = performance.now() + COMMAND_DEADLINE_MS;
    for (let attempt = 1; ; attempt++) {
      try {
        return (await this.#ask(event, payload, deadlineAtMs)) as Data;
      } catch (error) {
        const pauseMs = fullJitterMs(attempt, RETRY_BASE_MS, RETRY_MAX_MS);
        const over = !this.#running || performance.now() + pauseMs >= deadlineAtMs;
        if (over || !isTransient(error)) throw error;
        await this.#pause(pauseMs);
      }
    }
  }

  async #ask(event: string, payload: object, deadlineAtMs: number): Promise<unknown> {
    const socket = await this.#connected(deadlineAtMs);
    const waitMs = Math.max(1, Math.min(ANSWER_TIMEOUT_MS, deadlineAtMs - performance.now()));
    let answer: Answer;
    try {
      answer = (await socket.timeout(waitMs).emitWithAck(event, payload)) as Answer;
    } catch (error) {
      throw new Unreachable(`${event}: ${(error as Error).message}`, { cause: error });
    }
    if (answer.ok) return answer.data;
    throw new Problem(answer.error);
  }

  async #connected(deadlineAtMs: number): Promise<Socket> {
    while (this.#running && performance.now() < deadlineAtMs) {
      if (this.#socket !== null && this.#ready) return this.#socket;
      await this.#pause(deadlineAtMs - performance.now());
    }
    throw new Unreachable(this.#running ? 'not connected' : 'the client is closed');
  }

  /** Until the time is over, or something about the connection changed. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, ms);
      this.#waiting.add(wake);
    });
  }
}

/** The service turns a connection away with the same codes as a call. */
function refusalOf(error: Error & { data?: { code?: unknown; detail?: string } }): Error {
  const code = error.data?.code;
  return typeof code === 'string' ? new Problem({ code, detail: error.data?.detail }) : new Unreachable(error.message);
}

const answerTo = ({ offerId, leaseToken }: Pick<Offer, 'offerId' | 'leaseToken'>) => ({ offerId, leaseToken });
