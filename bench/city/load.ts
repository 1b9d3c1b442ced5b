/** A process that makes load: riders who ask at a set rate, and drivers who accept at once and finish at once. */
import { setTimeout as delay } from 'node:timers/promises';
import { offsetPoint, type Point } from '../../domain/geo.ts';
import { createRandom, type Random } from '../../domain/random.ts';
import { DriverClient, type DriverState, type Offer } from '../../src/client/driver-client.ts';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { Problem, Unreachable } from '../../src/client/problem.ts';
import { Connections } from '../../src/client/rest.ts';
import { RiderClient } from '../../src/client/rider-client.ts';
import { type Role, signedTokens } from '../../src/client/token.ts';
import { FramesDriver } from './frames.ts';
import { type Answer, type Opening, type Order, seenNothing, sharedNowMs } from './messages.ts';

const TOKEN_TTL_S = 24 * 3600;
const OPEN_AT_ONCE = 32;
/** More requests than this without an answer: the service doesn't keep up, and more of them would measure our memory. */
const UNANSWERED_MAX = 2_000;

type Driver = DriverClient | FramesDriver;

class Load {
  readonly #opening: Opening;
  readonly #random: Random;
  readonly #connections = new Connections({ maxPerHost: 64 });
  readonly #riders: RiderClient;
  /** Those who come back by themselves. */
  readonly #apps: DriverClient[] = [];
  /** Called with each app's next state, by its place in `#apps`. */
  readonly #onState: ((state: DriverState) => void)[] = [];
  /** Offers that stand, by the app's place; null: they are accepted. */
  #held: Map<number, string> | null = null;
  #seen = seenNothing();
  #unanswered = 0;

  constructor(opening: Opening) {
    this.#opening = opening;
    this.#random = createRandom(opening.seed);
    this.#riders = new RiderClient(this.#access('bench-riders', 'service'));
  }

  async open(): Promise<void> {
    const operator = new OperatorClient(this.#access('bench', 'ops'));
    const { drivers, regionId } = this.#opening;
    const waiting = drivers.entries();
    const opener = async (): Promise<void> => {
      for (const [, driverId] of waiting) {
        await operator.putDriver(driverId, { regionId });
        await this.#connect(driverId);
      }
    };
    await Promise.all(Array.from({ length: OPEN_AT_ONCE }, opener));
  }

  async #connect(driverId: string): Promise<void> {
    const position = this.#somewhere();
    const { positionIntervalMs, drivenBy } = this.#opening;
    const driver = drivenBy === 'app' ? this.#openApp(driverId) : await this.#openFrames(driverId);
    await driver.online();
    await driver.location(position);
    setTimeout(() => {
      setInterval(() => driver.trackLocation(position), positionIntervalMs);
    }, positionIntervalMs * this.#random.next());
  }

  #openApp(driverId: string): DriverClient {
    const place = this.#apps.length;
    const app: DriverClient = new DriverClient({
      ...this.#access(driverId, 'driver'),
      url: this.#opening.socketUrl,
      events: {
        state: (state) => this.#onState[place]?.(state),
        offer: (offer) => {
          this.#held?.set(place, offer.offerId);
          this.#offered(app, offer);
        },
      },
    });
    this.#apps.push(app);
    app.connect();
    return app;
  }

  async #openFrames(driverId: string): Promise<FramesDriver> {
    const token = await this.#access(driverId, 'driver').token();
    const driver = await FramesDriver.connect(this.#opening.socketUrl, token, {
      offer: (offer) => this.#offered(driver, offer),
      closed: () => this.#count('driver:closed'),
    });
    return driver;
  }

  #offered(driver: Driver, offer: Offer): void {
    this.#seen.offered.push([offer.rideId, sharedNowMs()]);
    if (this.#held === null) this.#drive(driver, offer).catch((error: unknown) => this.#failed('drive', error));
  }

  async #drive(driver: Driver, offer: Offer): Promise<void> {
    const sentMs = sharedNowMs();
    await driver.accept(offer);
    this.#seen.confirmMs.push(sharedNowMs() - sentMs);
    await driver.arrive(offer.rideId);
    await driver.start(offer.rideId);
    await driver.complete(offer.rideId);
    this.#seen.completed.push([offer.rideId, sharedNowMs()]);
  }

  /** Open loop: a request leaves at its time, whatever became of those before. */
  async request({ ratePerS, seconds, startAtMs }: Extract<Order, { kind: 'request' }>): Promise<void> {
    const count = Math.round(ratePerS * seconds);
    const asked: Promise<void>[] = [];
    for (let sent = 0; sent < count; sent++) {
      const dueAtMs = startAtMs + (sent * 1000) / ratePerS;
      const inMs = dueAtMs - sharedNowMs();
      if (inMs > 0) await delay(Math.ceil(inMs));
      asked.push(this.#request(dueAtMs));
    }
    await Promise.all(asked);
  }

  async #request(dueAtMs: number): Promise<void> {
    this.#seen.lateMs.push(sharedNowMs() - dueAtMs);
    if (this.#unanswered >= UNANSWERED_MAX) return this.#count('request:not_sent');
    this.#unanswered++;
    try {
      const { regionId } = this.#opening;
      const riderId = `rider-${this.#random.int(0, 999_999)}`;
      const ride = await this.#riders.request({
        regionId,
        riderId,
        pickup: this.#somewhere(),
        dropoff: this.#somewhere(),
      });
      this.#seen.requested.push([ride.id, dueAtMs]);
    } catch (error) {
      this.#failed('request', error);
    } finally {
      this.#unanswered--;
    }
  }

  hold(): void {
    this.#held = new Map();
  }

  /** When each driver had its state again; rejects when one comes back with another, or without the offer it had. */
  async reconnect(cut: boolean): Promise<{ atMs: number[]; offers: number }> {
    const held = new Map(this.#held);
    const atMs = await Promise.all(
      this.#apps.map((app, place) => {
        const back = Promise.withResolvers<number>();
        this.#onState[place] = ({ status, offer }) => {
          const isSame = offer?.offerId === held.get(place) && status === (held.has(place) ? 'leased' : 'available');
          if (isSame) back.resolve(sharedNowMs());
          else back.reject(new Error(`a driver came back ${status}, with the offer ${offer?.offerId ?? 'of nobody'}`));
        };
        if (cut) app.interrupt(0);
        return back.promise;
      }),
    );
    return { atMs, offers: held.size };
  }

  collect() {
    const seen = this.#seen;
    this.#seen = seenNothing();
    return seen;
  }

  #somewhere(): Point {
    const { center, radiusM } = this.#opening;
    return offsetPoint(center, 2 * Math.PI * this.#random.next(), radiusM * Math.sqrt(this.#random.next()));
  }

  #access(sub: string, role: Role) {
    const { url, authSecret } = this.#opening;
    return {
      url,
      token: signedTokens({ secret: authSecret, sub, role, ttlS: TOKEN_TTL_S }),
      connections: this.#connections,
    };
  }

  #failed(what: string, error: unknown): void {
    if (!(error instanceof Problem) && !(error instanceof Unreachable)) throw error;
    this.#count(`${what}:${error.code}`);
  }

  #count(what: string): void {
    this.#seen.failures[what] = (this.#seen.failures[what] ?? 0) + 1;
  }
}

let load: Load | null = null;

async function obey(order: Order): Promise<Answer> {
  if (order.kind === 'open') {
    load = new Load(order.open);
    await load.open();
    return { kind: 'opened' };
  }
  if (load === null) return { kind: 'failed', why: 'not opened yet' };
  if (order.kind === 'reconnect') return { kind: 'reconnected', ...(await load.reconnect(order.cut)) };
  if (order.kind === 'hold') {
    load.hold();
    return { kind: 'held' };
  }
  if (order.kind === 'collect') return { kind: 'collected', seen: load.collect() };
  await load.request(order);
  return { kind: 'requested', seen: load.collect() };
}

process.on('message', (order: Order) => {
  obey(order).then(
    (answer) => process.send!(answer),
    (error: unknown) => process.send!({ kind: 'failed', why: String(error) } satisfies Answer),
  );
});
// Without the benchmark there is nobody to make load for.
process.on('disconnect', () => process.exit(0));
