/**
 * A driver's phone: shows offers, answers them in every way that phones and people do, and drives. It never asks what the service
 * believes: a ride that nobody told it of stays open, and the run fails.
 */
import { io, type Socket } from 'socket.io-client';
import type { Random } from '../../domain/random.ts';
import type { Offer } from '../../src/client/driver-client.ts';
import type { DriverStatus, RideStatus } from '../../src/client/contract.ts';
import { nowMs } from '../history.ts';
import { type Asked, type Heard, sha256 } from './ask.ts';
import { type AnswerPlan, placeIn, planAnswer } from './plan.ts';
import { settle, sleep, type World } from './world.ts';

interface Trip {
  readonly rideId: string;
  readonly fence: number;
}

interface DriverState {
  readonly status: DriverStatus;
  readonly offer: Offer | null;
  readonly assignment: (Trip & { readonly rideStatus: RideStatus }) | null;
}

interface Shown extends Offer {
  readonly shownAtMs: number;
}

/** Of one attempt to connect. */
export const CONNECT_TIMEOUT_MS = 3_000;
const RECONNECT_MS = { least: 50, most: 400 };
const LOCATION_EVERY_MS = 1_000;
/** Between the end of a term by this clock and the first accept that calls itself late. */
const LATE_MARGIN_MS = 100;
const SHOWN_MAX = 64;

const STEPS = [
  { command: 'arrive', from: 'assigned' },
  { command: 'start', from: 'driver_arrived' },
  { command: 'complete', from: 'in_progress' },
] as const;

export class Device {
  readonly driverId: string;
  readonly #world: World;
  readonly #random: Random;
  #socket: Socket;
  #isClosed = false;
  /** Offers by id, the newest last. */
  readonly #shown = new Map<string, Shown>();
  /** First confirm of each offer: whatever follows repeats it. */
  readonly #confirms = new Map<string, string>();
  #newestFence = 0;
  #answers = 0;
  #tripRideId: string | null = null;
  /** Of the newest ride that it drove, or drives. */
  #tripFence = 0;

  constructor(driverId: string, world: World) {
    this.driverId = driverId;
    this.#world = world;
    this.#random = world.random.fork(`driver ${driverId}`);
    this.#socket = this.#open();
  }

  /** Connected, and without a ride as far as it was told. */
  get isFree(): boolean {
    return this.#socket.connected && this.#tripRideId === null;
  }

  /** For people. */
  get told(): string {
    return this.#socket.connected ? `has ${this.#tripRideId ?? 'no ride'}` : 'not connected';
  }

  /** Until the run is stopped. */
  async run(): Promise<void> {
    await this.#keepLocation();
    this.#isClosed = true;
    this.#socket.disconnect();
  }

  #open(): Socket {
    const { asker, gatewayUrl } = this.#world;
    const socket = io(new URL('/drivers', gatewayUrl).href, {
      transports: ['websocket'],
      forceNew: true,
      reconnection: false,
      timeout: CONNECT_TIMEOUT_MS,
      perMessageDeflate: false as never,
      auth: (send) => void Promise.resolve(asker.tokenOf(this.driverId, 'driver')()).then((token) => send({ token })),
    });
    socket.on('connect_error', () => this.#lost(socket));
    socket.on('disconnect', () => this.#lost(socket));
    socket.on('state', (state: DriverState) => this.#takeState(state));
    socket.on('offer', (offer: Offer, acknowledge?: () => void) => this.#takeOffer(offer, acknowledge));
    socket.on('offer:withdrawn', ({ offerId }: { offerId: string }) => this.#note('offer:withdrawn', { offerId }));
    socket.on('assignment', ({ rideId, offerId, fence }: { rideId: string; offerId: string; fence: number }) => {
      this.#note('assignment', { rideId, offerId, fence });
      void this.#drive({ rideId, fence }, 'assigned', this.#nextPlan());
    });
    socket.on('ride:cancelled', ({ rideId }: { rideId: string }) => {
      this.#note('ride:cancelled', { rideId });
      if (this.#tripRideId === rideId) this.#tripRideId = null;
    });
    return socket;
  }

  /** Also the service closes sockets: the newest replaces older ones. */
  #lost(socket: Socket): void {
    socket.removeAllListeners();
    socket.disconnect();
    if (socket !== this.#socket || this.#isClosed || this.#world.stopped.aborted) return;
    const waitMs = RECONNECT_MS.least + Math.random() * (RECONNECT_MS.most - RECONNECT_MS.least);
    setTimeout(() => {
      if (socket === this.#socket && !this.#isClosed) this.#socket = this.#open();
    }, waitMs);
  }

  #takeState({ status, offer, assignment }: DriverState): void {
    this.#note('state', { ...(offer !== null && offerFacts(offer)) });
    if (offer !== null) this.#takeOffer(offer);
    if (assignment !== null) void this.#drive(assignment, assignment.rideStatus, this.#nextPlan());
    if (status === 'offline') void this.#goOnline();
  }

  #takeOffer(offer: Offer, acknowledge?: () => void): void {
    const known = this.#shown.get(offer.offerId);
    if (known !== undefined) {
      acknowledge?.();
      return;
    }
    const shown = { ...offer, shownAtMs: nowMs() };
    this.#shown.set(offer.offerId, shown);
    for (const oldest of this.#shown.keys()) {
      if (this.#shown.size <= SHOWN_MAX) break;
      this.#shown.delete(oldest);
      this.#confirms.delete(oldest);
    }
    this.#newestFence = Math.max(this.#newestFence, offer.fence);
    this.#note('offer', offerFacts(offer));
    const plan = this.#nextPlan();
    if (plan.answer !== 'deaf' && plan.answer !== 'accept-before-receipt') acknowledge?.();
    void this.#answer(shown, plan);
  }

  #nextPlan(): AnswerPlan {
    this.#answers += 1;
    return planAnswer(this.#random.fork(`answer ${this.#answers}`));
  }

  async #answer(offer: Shown, plan: AnswerPlan): Promise<void> {
    const { maxLifetimeMs } = this.#world.policy;
    const isCalm = this.#world.isEnding();
    const answer = isCalm ? 'accept' : plan.answer;
    if (!(await sleep(this.#world, plan.thinkMs))) return;
    const confirms: Promise<Heard | null>[] = [];
    if (answer === 'accept') confirms.push(this.#confirm(offer, plan.over));
    if (answer === 'accept-twice') confirms.push(this.#confirm(offer, plan.over), this.#confirm(offer, plan.over));
    if (answer === 'accept-over-socket-and-rest')
      confirms.push(this.#confirm(offer, 'socket'), this.#confirm(offer, 'rest'));
    if (answer === 'accept-on-two-sockets')
      confirms.push(this.#confirm(offer, 'socket'), this.#confirmElsewhere(offer));
    if (answer === 'accept-and-decline') {
      confirms.push(this.#confirm(offer, plan.over));
      void this.#decline(offer, plan.over);
    }
    if (answer === 'decline') await this.#decline(offer, plan.over);
    if (answer === 'accept-late') {
      const overAtMs = offer.shownAtMs + maxLifetimeMs + LATE_MARGIN_MS;
      if (!(await sleep(this.#world, overAtMs + plan.lateMs - nowMs()))) return;
      confirms.push(this.#confirm(offer, plan.over));
    }
    if (answer === 'accept-before-receipt') {
      confirms.push(this.#confirm(offer, plan.over));
      void this.#rest('received', offer, 'received');
    }
    if (answer === 'go-offline') await this.#goOffline();
    const heard = await Promise.all(confirms);
    if (heard.some((each) => each?.outcome === 'ok')) await this.#drive(offer, 'assigned', plan);
  }

  /** The first confirm of an offer, or another of the same: a lost answer is asked for again under the same token. */
  #confirm(offer: Shown, over: 'rest' | 'socket', via: Socket | null = null): Promise<Heard | null> {
    const { asker, accepting, stopped } = this.#world;
    const earlier = this.#confirms.get(offer.offerId);
    const firstId = asker.history.nextId();
    if (earlier === undefined) this.#confirms.set(offer.offerId, firstId);
    accepting.get(offer.rideId)?.();
    let id: string | undefined = firstId;
    return settle(
      this.#world,
      (repeats) => {
        const isStale = repeats === undefined && this.#isLate(offer);
        const asked: Asked = {
          ...this.#about('confirm', offer, repeats),
          ...(isStale && { isStale }),
          ...(id !== undefined && { id }),
        };
        id = undefined;
        const socket = via ?? this.#socket;
        const { offerId, leaseToken } = offer;
        if (over === 'socket' && socket.connected && !stopped.aborted)
          return asker.socket(asked, socket, 'accept', { offerId, leaseToken });
        return asker.rest(asked, 'driver', {
          method: 'POST',
          path: `/v1/offers/${offerId}/confirm`,
          body: { leaseToken },
        });
      },
      earlier,
    );
  }

  /** On a second socket, which replaces the first. */
  async #confirmElsewhere(offer: Shown): Promise<Heard | null> {
    const second = this.#open();
    const first = this.#socket;
    this.#socket = second;
    await new Promise<void>((resolve) => {
      for (const event of ['connect', 'connect_error', 'disconnect']) second.once(event, () => resolve());
    });
    setTimeout(() => this.#lost(first), RECONNECT_MS.most);
    return this.#confirm(offer, 'socket', second);
  }

  #isLate({ offerId, shownAtMs, fence }: Shown): boolean {
    if (this.#world.mayTermsStretch() || !this.#shown.has(offerId)) return false;
    const isOver = nowMs() - shownAtMs >= this.#world.policy.maxLifetimeMs + LATE_MARGIN_MS;
    return isOver || this.#newestFence > fence;
  }

  #decline(offer: Shown, over: 'rest' | 'socket'): Promise<Heard | null> {
    const { offerId, leaseToken } = offer;
    return settle(this.#world, (repeats) =>
      over === 'socket' && this.#socket.connected
        ? this.#world.asker.socket(this.#about('decline', offer, repeats), this.#socket, 'decline', {
            offerId,
            leaseToken,
          })
        : this.#rest('decline', offer, 'decline', repeats),
    );
  }

  #rest(command: Asked['command'], offer: Shown, step: string, repeats?: string): Promise<Heard> {
    const path = `/v1/offers/${offer.offerId}/${step}`;
    const body = { leaseToken: offer.leaseToken };
    return this.#world.asker.rest(this.#about(command, offer, repeats), 'driver', { method: 'POST', path, body });
  }

  #about(command: Asked['command'], offer: Shown, repeats?: string): Asked {
    const { offerId, rideId, leaseToken } = offer;
    const { driverId } = this;
    return {
      client: driverId,
      command,
      driverId,
      offerId,
      rideId,
      leaseToken,
      ...(repeats !== undefined && { repeats }),
    };
  }

  /**
   * From wherever the ride stands to its end. One trip at a time: the service sees to that, and this relies on it. An accept
   * that is repeated is answered as the first time, though its ride may be over and another in hand.
   */
  async #drive({ rideId, fence }: Trip, status: RideStatus, plan: AnswerPlan): Promise<void> {
    if (this.#tripRideId === rideId || fence < this.#tripFence) return;
    const at = STEPS.findIndex(({ from }) => from === status);
    if (at < 0) return;
    this.#tripRideId = rideId;
    this.#tripFence = fence;
    if (plan.isOutOfOrder) await this.#step('complete', rideId, plan.over);
    for (const { command } of STEPS.slice(at)) {
      if (command === 'complete' && !(await sleep(this.#world, plan.tripMs))) return;
      if (this.#tripRideId !== rideId) return;
      const heard = await settle(this.#world, (repeats) => this.#step(command, rideId, plan.over, repeats));
      if (heard?.outcome !== 'ok') break;
    }
    if (this.#tripRideId === rideId) this.#tripRideId = null;
  }

  #step(
    command: (typeof STEPS)[number]['command'],
    rideId: string,
    over: 'rest' | 'socket',
    repeats?: string,
  ): Promise<Heard> {
    const { asker } = this.#world;
    const { driverId } = this;
    const asked: Asked = { client: driverId, command, driverId, rideId, ...(repeats !== undefined && { repeats }) };
    if (over === 'socket' && this.#socket.connected) return asker.socket(asked, this.#socket, command, { rideId });
    return asker.rest(asked, 'driver', { method: 'POST', path: `/v1/rides/${rideId}/${command}` });
  }

  async #goOnline(): Promise<void> {
    await settle(this.#world, (repeats) => this.#shift('online', repeats));
    if (this.#socket.connected) this.#socket.volatile.emit('location', placeIn(this.#random));
  }

  async #goOffline(): Promise<void> {
    await settle(this.#world, (repeats) => this.#shift('offline', repeats));
    if (await sleep(this.#world, 200)) await this.#goOnline();
  }

  #shift(command: 'online' | 'offline', repeats?: string): Promise<Heard> {
    const { driverId } = this;
    const asked: Asked = { client: driverId, command, driverId, ...(repeats !== undefined && { repeats }) };
    return this.#world.asker.rest(asked, 'driver', { method: 'POST', path: `/v1/drivers/${driverId}/${command}` });
  }

  async #keepLocation(): Promise<void> {
    const random = this.#random.fork('places');
    do {
      if (this.#socket.connected) this.#socket.volatile.emit('location', placeIn(random));
    } while (await sleep(this.#world, LOCATION_EVERY_MS));
  }

  #note(event: 'offer' | 'offer:withdrawn' | 'assignment' | 'ride:cancelled' | 'state', facts: object): void {
    const { driverId } = this;
    this.#world.asker.history.shown({ client: driverId, driverId, event, atMs: nowMs(), ...facts });
  }
}

const offerFacts = ({ offerId, rideId, fence, leaseToken }: Offer) => ({
  offerId,
  rideId,
  fence,
  tokenSha256: sha256(leaseToken),
});
