/** The drivers' websocket: who is connected here, what they are told, what they say. */
import type { IncomingMessage, Server as HttpServer } from 'node:http';
import type { Namespace, Server, Socket } from 'socket.io';
import { AuthError } from '../auth.ts';
import { gather } from '../database/gather.ts';
import * as transitions from '../leasing/transitions.ts';
import { lookAgain } from '../ops/look-every.ts';
import { createRateLimiter } from '../rate-limit.ts';
import { type DriverSnapshot, driverSnapshots, regionNumbersOfDrivers } from '../records.ts';
import { handleDriverEvents } from './driver-events.ts';
import type { DriverConnected } from './fanout.ts';
import type { DriverNotice, OfferMessage } from './notices.ts';
import { pushOffer, type Push } from './offer-pushes.ts';
import { comeAgain, type GatewayDeps, loseRide, type Seat } from './seat.ts';
import { Turns } from './turns.ts';

/**
 * How often the records are looked through for offers that no device has acknowledged: often enough for the region's
 * push retry, and no more often than this, nor less.
 */
const LOOK_EVERY_MS = { least: 50, most: 1_000 };
/** The same for silent drivers of whom it is time to say that they are there: a sixth of the shortest grace. */
const TOUCH_EVERY_MS = { least: 100, most: 2_000 };
/** How often a gateway says that it watches: a sixth of the shortest grace. */
const WATCH_EVERY_MS = { least: 100, most: 5_000 };
const UNDELIVERED_MAX = 1_000;
/** How often what drivers were told is compared with the records: twice the region's push retry, within these. */
const CORRECT_EVERY_MS = { least: 200, most: 2_000 };
const CORRECTED_TOGETHER_MAX = 1_000;
const SOCKETS_MAX = 100_000;
/** Connections that are nobody’s yet: they have the fan-out's `connectTimeout` to show a token. */
const STRANGERS_MAX = 10_000;
/**
 * Connections taken up with each turn of the event loop. When ten thousand came at once and all were taken up together,
 * none was ready before most had given up and come again.
 */
const COMERS_A_TURN = 32;
/** Of one connection, whatever is in them. An app sends a few; beyond this, answering costs more than hanging up. */
const FRAMES_PER_S_MAX = 1_000;
/** For the closing to arrive. */
const CLOSING_MS = 1_000;

export class GatewayRefusal extends Error {
  readonly data: { readonly code: string };

  constructor(code: string) {
    super(code);
    this.data = { code };
  }
}

interface Admitted {
  readonly driverId: string;
  readonly region: number;
  readonly expiresAtMs: number;
}

export class Gateway {
  readonly #deps: GatewayDeps;
  readonly #seats = new Map<string, Seat>();
  #stopLooking: readonly (() => Promise<void>)[] = [];

  /** Of everybody who comes back at the same time in a few statements. */
  readonly #regionOf: (driverId: string) => Promise<number | null>;
  readonly #snapshotOf: (driverId: string) => Promise<DriverSnapshot | null>;
  readonly #comers = new Turns(COMERS_A_TURN);

  constructor(deps: GatewayDeps) {
    this.#deps = deps;
    this.#regionOf = gather((driverIds) => regionNumbersOfDrivers(deps.database, driverIds));
    this.#snapshotOf = gather((driverIds) => driverSnapshots(deps.database, driverIds));
  }

  start(server: HttpServer): void {
    const { fanout } = this.#deps;
    const drivers: Namespace = fanout.io.of('/drivers');
    drivers.use((socket, next) => {
      this.#admit(socket).then(
        () => next(),
        (error: unknown) =>
          refuse(socket, next, error instanceof GatewayRefusal ? error : new GatewayRefusal('unavailable')),
      );
    });
    // Every socket.io server has this namespace, and lets everybody in.
    fanout.io.of('/').use((socket, next) => refuse(socket, next, new GatewayRefusal('forbidden')));
    drivers.on('connection', (socket) => void this.#seat(socket));
    fanout.onNotices((notices) => this.#deliver(notices));
    fanout.onConnected((connected) => this.#unseatOlder(connected));
    fanout.io.attach(server, {
      allowRequest: (request, answer) => this.#letIn(request, (mayCome) => answer(null, mayCome)),
    });
    boundConnections(fanout.io);
    const failed = (what: string, againInMs: number) => (error: unknown) => {
      this.#deps.log.warn({ err: error }, what);
      return againInMs;
    };
    this.#stopLooking = [
      lookAgain(
        TOUCH_EVERY_MS.least,
        () => this.#touchSilent(),
        failed('the look for silent drivers failed', TOUCH_EVERY_MS.most),
      ),
      lookAgain(0, () => this.#watch(), failed('nobody was told that a gateway watches', LOOK_EVERY_MS.most)),
      lookAgain(
        LOOK_EVERY_MS.most,
        () => this.#pushUndelivered(),
        failed('the look for undelivered offers failed', LOOK_EVERY_MS.most),
      ),
      lookAgain(
        CORRECT_EVERY_MS.most,
        () => this.#correctMistaken(),
        failed('the look for mistaken drivers failed', CORRECT_EVERY_MS.most),
      ),
    ];
  }

  async stop(): Promise<void> {
    await Promise.all(this.#stopLooking.map((stop) => stop()));
    for (const seat of this.#seats.values()) comeAgain(seat);
  }

  /** Whoever may connect: a driver with a valid token and a profile. */
  async #admit(socket: Socket): Promise<void> {
    if (this.#seats.size >= SOCKETS_MAX) throw new GatewayRefusal('overloaded');
    const token: unknown = socket.handshake.auth.token;
    if (typeof token !== 'string') throw new GatewayRefusal('token_missing');
    const caller = await this.#deps.authenticator.verify(token).catch((error: unknown) => {
      throw new GatewayRefusal(error instanceof AuthError ? error.code : 'unavailable');
    });
    if (caller.role !== 'driver') throw new GatewayRefusal('forbidden');
    const region = await this.#regionOf(caller.sub);
    if (region === null) throw new GatewayRefusal('driver_not_found');
    socket.data = { driverId: caller.sub, region, expiresAtMs: caller.expiresAtMs } satisfies Admitted;
  }

  async #seat(socket: Socket): Promise<void> {
    const { driverId, region, expiresAtMs } = socket.data as Admitted;
    const lastSeenAtMs = performance.now();
    const connectedAtMs = Date.now();
    const seat: Seat = {
      driverId,
      region,
      socket,
      connectedAtMs,
      expiresAtMs,
      lastSeenAtMs,
      fence: 0,
      push: null,
      standing: 'free',
      told: 0,
      early: [],
    };
    this.#seats.get(driverId)?.socket.disconnect(true);
    this.#seats.set(driverId, seat);
    this.#deps.metrics.connectedDrivers.set(this.#seats.size);
    this.#deps.fanout.announce({ driverId, socketId: socket.id, connectedAtMs: seat.connectedAtMs });
    this.#deps.positions.report(region, { driverId, position: null });
    handleDriverEvents(this.#deps, seat);
    socket.on('disconnect', () => {
      if (seat.push !== null) seat.push.isOver = true;
      if (this.#seats.get(driverId) === seat) this.#seats.delete(driverId);
      this.#deps.metrics.connectedDrivers.set(this.#seats.size);
      // Whoever leaves the namespace leaves the connection, or it would be held for nobody.
      socket.conn.close();
    });
    await this.#sendState(seat);
  }

  /**
   * What the driver's app has to show now. Read after the seat is taken, so that no notice falls in between; those that come
   * meanwhile may be newer than what was read, and are told after it.
   */
  async #sendState(seat: Seat): Promise<void> {
    try {
      const snapshot = await this.#snapshotOf(seat.driverId);
      if (snapshot === null) throw new GatewayRefusal('driver_not_found');
      this.#tellState(seat, snapshot);
      const early = seat.early ?? [];
      seat.early = null;
      for (const notice of early) this.#tell(seat, notice);
    } catch (error) {
      this.#deps.log.warn({ err: error }, 'a driver’s state could not be read');
      comeAgain(seat);
    }
  }

  #tellState(seat: Seat, { status, offer, assignment, fence, offerReceived }: DriverSnapshot): void {
    seat.fence = fence;
    seat.standing = status === 'offline' ? 'offline' : (assignment?.rideId ?? 'free');
    seat.told += 1;
    seat.socket.emit('state', { status, offer, assignment });
    if (offer !== null && !offerReceived) this.#push(seat, offer);
  }

  /**
   * Returns what other gateways shall hear: notices for drivers who aren't here. One who is here may have just connected
   * elsewhere: there an offer is found in the records anyway, and what the driver accepted is known.
   */
  #deliver(notices: readonly DriverNotice[]): DriverNotice[] {
    return notices.filter((notice) => {
      const seat = this.#seats.get(notice.driverId);
      if (seat === undefined) return true;
      if (seat.early === null) this.#tell(seat, notice);
      else seat.early.push(notice);
      return notice.event !== 'offer' && !(notice.event === 'assignment' && notice.accepted);
    });
  }

  #tell(seat: Seat, notice: DriverNotice): void {
    if (notice.event === 'offer') return this.#push(seat, notice.data);
    if (notice.event === 'shift') {
      // The look for mistaken drivers makes up for it.
      this.#tellAnew(seat).catch((error: unknown) =>
        this.#deps.log.warn({ err: error }, 'a driver wasn’t told of a shift'),
      );
      return;
    }
    if (notice.event === 'assignment') seat.standing = notice.data.rideId;
    if (notice.event === 'ride:cancelled') loseRide(seat, notice.data.rideId);
    seat.told += 1;
    if (notice.event === 'offer:withdrawn' && seat.push?.offer.offerId === notice.data.offerId) seat.push.isOver = true;
    seat.socket.emit(notice.event, notice.data);
  }

  /** Starts pushing, unless this offer, or a newer one, is being pushed or was received. */
  #push(seat: Seat, offer: OfferMessage): void {
    const last = seat.push;
    if (offer.fence < seat.fence) return;
    if (last !== null && last.offer.fence > offer.fence) return;
    if (last?.offer.fence === offer.fence && (!last.isOver || last.receipt !== null)) return;
    if (last !== null) last.isOver = true;
    const push: Push = { offer, receipt: null, isOver: false };
    seat.push = push;
    seat.told += 1;
    void this.#deps.regions.byNumber(seat.region).then(
      (region) => {
        if (region === null) return;
        const { pushRetryMs, deliveryTtlMs } = region.policy;
        pushOffer(this.#deps, seat.socket, seat.driverId, push, { retryMs: pushRetryMs, untilMs: deliveryTtlMs });
      },
      () => {
        push.isOver = true;
      },
    );
  }

  /** What every notice about was lost, or no device acknowledged. Returns when to look again. */
  #pushUndelivered(): Promise<number> {
    return this.#lookByRegion([...this.#seats.values()], LOOK_EVERY_MS, 1, async (region, _, pushRetryMs) => {
      const { hot } = this.#deps.database;
      for (const { driverId, ...offer } of await transitions.undeliveredOffers(
        hot,
        region,
        pushRetryMs,
        UNDELIVERED_MAX,
      )) {
        const seat = this.#seats.get(driverId);
        if (seat?.early === null) this.#push(seat, offer);
      }
    });
  }

  /**
   * Tells drivers what holds to whom something else was told, for longer than a push may take: a notice was lost, or nobody
   * was left to send it. Returns when to look again.
   */
  #correctMistaken(): Promise<number> {
    const told = [...this.#seats.values()].filter((seat) => seat.early === null);
    return this.#lookByRegion(told, CORRECT_EVERY_MS, 2, async (region, seats, pushRetryMs) => {
      for (let i = 0; i < seats.length; i += CORRECTED_TOGETHER_MAX) {
        const some = seats.slice(i, i + CORRECTED_TOGETHER_MAX);
        const mistaken = await transitions.mistakenDrivers(this.#deps.database.hot, region, some, pushRetryMs);
        await Promise.all(mistaken.map((driverId) => this.#correct(this.#seats.get(driverId))));
      }
    });
  }

  /** Looks at the seats of each region; returns when to look again, after so many of the shortest push retry, within the bounds. */
  async #lookByRegion(
    seats: readonly Seat[],
    everyMs: { readonly least: number; readonly most: number },
    retries: number,
    look: (region: number, seats: readonly Seat[], pushRetryMs: number) => Promise<void>,
  ): Promise<number> {
    let nextInMs = everyMs.most;
    for (const [number, here] of Map.groupBy(seats, (seat) => seat.region)) {
      const region = await this.#deps.regions.byNumber(number);
      if (region === null) continue;
      const { pushRetryMs } = region.policy;
      nextInMs = Math.min(nextInMs, Math.max(retries * pushRetryMs, everyMs.least));
      await look(number, here, pushRetryMs);
    }
    return nextInMs;
  }

  async #correct(seat: Seat | undefined): Promise<void> {
    if (seat?.early === null && (await this.#tellAnew(seat))) this.#deps.metrics.statesCorrected.inc();
  }

  /**
   * Whether the driver was told its state: not if it is told something while that is read, which is newer. Who has moved to another
   * region sits down there.
   */
  async #tellAnew(seat: Seat): Promise<boolean> {
    const { told } = seat;
    const snapshot = await this.#snapshotOf(seat.driverId);
    if (snapshot?.region !== seat.region) {
      comeAgain(seat);
      return false;
    }
    if (seat.told !== told) return false;
    this.#tellState(seat, snapshot);
    return true;
  }

  /** Keeps drivers present who are connected and have nothing to say. Returns when to do it again. */
  async #touchSilent(): Promise<number> {
    const regions = new Map((await this.#deps.regions.all().catch(() => [])).map((region) => [region.number, region]));
    const now = performance.now();
    const wallMs = Date.now();
    for (const seat of this.#seats.values()) {
      // With a new token.
      if (wallMs >= seat.expiresAtMs) comeAgain(seat);
      const graceMs = regions.get(seat.region)?.policy.presenceGraceMs;
      if (graceMs === undefined || now - seat.lastSeenAtMs < graceMs / 3) continue;
      seat.lastSeenAtMs = now;
      this.#deps.positions.report(seat.region, { driverId: seat.driverId, position: null });
    }
    const shortestMs = Math.min(...[...regions.values()].map(({ policy }) => policy.presenceGraceMs / 6));
    return Math.max(TOUCH_EVERY_MS.least, Math.min(shortestMs, TOUCH_EVERY_MS.most));
  }

  /** Says that drivers are seen where there are any. Returns when to say it again. */
  async #watch(): Promise<number> {
    const regions = await this.#deps.regions.all();
    const watched = regions.map(({ number, policy }) => ({ number, graceMs: policy.presenceGraceMs }));
    await transitions.watchRegions(this.#deps.database.hot, watched);
    const shortestMs = Math.min(...watched.map(({ graceMs }) => graceMs / 6));
    return Math.max(WATCH_EVERY_MS.least, Math.min(shortestMs, WATCH_EVERY_MS.most));
  }

  /** A new connection: when it is its turn, and as long as not too many are nobody's. */
  #letIn({ socket }: IncomingMessage, answer: (mayCome: boolean) => void): void {
    const strangers = this.#deps.fanout.io.engine.clientsCount - this.#seats.size;
    if (strangers + this.#comers.waiting >= STRANGERS_MAX) return answer(false);
    // Nobody else listens meanwhile, and without a listener the process would end.
    socket.on('error', ignore);
    this.#comers.take(() => {
      socket.off('error', ignore);
      if (socket.destroyed) return answer(false);
      // The answer and socket.io's first packet go out together.
      socket.cork();
      setImmediate(() => socket.uncork());
      answer(true);
    });
  }

  #unseatOlder({ driverId, socketId, connectedAtMs }: DriverConnected): void {
    const seat = this.#seats.get(driverId);
    if (seat === undefined || seat.socket.id === socketId || seat.connectedAtMs > connectedAtMs) return;
    seat.socket.disconnect(true);
  }
}

const ignore = (): void => {};

/** Says why, and hangs up: whoever was refused has no reason to stay. */
function refuse(socket: Socket, next: (refusal: GatewayRefusal) => void, refusal: GatewayRefusal): void {
  next(refusal);
  // socket.io sends the refusal in the next tick; closing sends what is written first.
  setImmediate(() => socket.conn.close());
}

/**
 * Holds for everybody, before anything is read: a flood of frames ends its connection, and so does a binary one, of which
 * there are none here. The end is ours alone: a peer that doesn't answer a closing would hold it for half a minute.
 */
function boundConnections(io: Server): void {
  const mayCome = createRateLimiter(FRAMES_PER_S_MAX);
  let connections = 0;
  io.engine.on('connection', (connection: Socket['conn']) => {
    const name = String(++connections);
    connection.on('packet', ({ data }: { readonly data?: unknown }) => {
      const isText = data === undefined || typeof data === 'string';
      if (!isText || !mayCome(name)) connection.close(true);
    });
    connection.on('close', () => {
      const { socket } = connection.transport as unknown as { readonly socket?: { terminate(): void } };
      setTimeout(() => socket?.terminate(), CLOSING_MS).unref();
    });
  });
}
