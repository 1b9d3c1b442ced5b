import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server as HttpServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { decodeJwt } from 'jose';
import { Server, type Socket } from 'socket.io';
import { greatCircleM, type Point } from '../../domain/geo.ts';
import type { Policy } from '../../domain/policy.ts';

interface Offer {
  readonly offerId: string;
  readonly rideId: string;
  readonly leaseToken: string;
  readonly fence: number;
  readonly expiresInMs: number;
  readonly pickup: Point;
  readonly dropoff: Point;
  readonly pickupEtaS: number;
}

interface Ride {
  readonly id: string;
  readonly regionId: string;
  readonly riderId: string;
  readonly pickup: Point;
  readonly dropoff: Point;
  status: string;
  driverId: string | null;
  readonly triedDriverIds: Set<string>;
}

interface Driver {
  readonly id: string;
  status: 'offline' | 'available' | 'leased' | 'assigned';
  position: Point | null;
  offer: Offer | null;
  expiry: NodeJS.Timeout | undefined;
  ride: Ride | null;
  fence: number;
  socket: Socket | null;
}

const phases = ['assigned', 'driver_arrived', 'in_progress', 'completed'];

/**
 * The least that keeps the contract towards the simulator: one region in memory, each waiting ride offered to its
 * nearest free driver, leases that expire. Nothing of it is the service's own code.
 */
export class FakeService implements AsyncDisposable {
  readonly url: string;
  readonly rides = new Map<string, Ride>();
  readonly drivers = new Map<string, Driver>();
  readonly confirmed = new Map<string, object>();
  policy: Policy | null = null;
  /** While true every call is answered 503 and no socket may connect. */
  down = false;
  readonly #ridesByKey = new Map<string, Ride>();
  readonly #http: HttpServer;
  readonly #io: Server;
  readonly #timers = new Set<NodeJS.Timeout>();

  private constructor(http: HttpServer) {
    this.#http = http;
    this.url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
    this.#io = new Server(http, { transports: ['websocket'] });
    http.on('request', (request: IncomingMessage, response: ServerResponse) => {
      if (request.url?.startsWith('/v1/') === true) void this.#answer(request, response);
    });
    const drivers = this.#io.of('/drivers');
    drivers.use((_socket, next) => next(this.down ? new Error('down') : undefined));
    drivers.on('connection', (socket) => this.#seat(socket));
  }

  static async listen(): Promise<FakeService> {
    const http = createServer();
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
    return new FakeService(http);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#http.closeAllConnections();
    await this.#io.close();
  }

  /** As if every process had died: connections break, answers are lost, and nobody is there for a while. */
  outage(ms: number): void {
    this.down = true;
    this.#io.disconnectSockets(true);
    this.#http.closeAllConnections();
    this.#later(ms, () => (this.down = false));
  }

  #later(ms: number, act: () => void): NodeJS.Timeout {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      act();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }

  // --- REST

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const part of request.setEncoding('utf8')) text += part as string;
    const send = (status: number, body: object): void =>
      void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (this.down) return send(503, { code: 'database_unavailable', title: 'down' });
    const body = (text === '' ? {} : JSON.parse(text)) as never;
    const url = new URL(request.url ?? '/', this.url);
    const [, , collection, id, action] = url.pathname.split('/');
    if (collection === 'regions') {
      if (action === 'policy') this.policy = body;
      return send(200, {});
    }
    if (collection === 'drivers' && id !== undefined) {
      if (!this.drivers.has(id)) this.drivers.set(id, newDriver(id));
      return send(200, { id });
    }
    if (request.method === 'POST' && id === undefined) {
      return send(201, plain(this.#request(body, String(request.headers['idempotency-key']))));
    }
    if (id === undefined) return send(200, { items: [...this.rides.values()].map(plain), nextCursor: null });
    const ride = this.rides.get(id);
    if (ride === undefined) return send(404, { code: 'ride_not_found' });
    if (action === 'cancel' && !this.#cancel(ride)) return send(409, { code: 'ride_over' });
    send(200, plain(ride));
  }

  #request(wish: Pick<Ride, 'regionId' | 'riderId' | 'pickup' | 'dropoff'>, key: string): Ride {
    const known = this.#ridesByKey.get(key);
    if (known !== undefined) return known;
    const ride: Ride = { ...wish, id: randomUUID(), status: 'searching', driverId: null, triedDriverIds: new Set() };
    this.rides.set(ride.id, ride);
    this.#ridesByKey.set(key, ride);
    this.#later(this.policy?.patienceMs ?? 0, () => {
      if (ride.status === 'searching' && ride.driverId === null) ride.status = 'no_drivers_available';
    });
    this.#match();
    return ride;
  }

  #cancel(ride: Ride): boolean {
    if (ride.status === 'cancelled') return true;
    if (!['searching', 'assigned', 'driver_arrived'].includes(ride.status)) return false;
    ride.status = 'cancelled';
    for (const driver of this.drivers.values()) {
      if (driver.offer?.rideId === ride.id) this.#endOffer(driver, 'ride_cancelled');
      if (driver.ride === ride) {
        this.#free(driver);
        driver.socket?.emit('ride:cancelled', { rideId: ride.id, reasonCode: 'changed_mind', source: 'rider' });
      }
    }
    return true;
  }

  // --- matching

  #match(): void {
    for (const ride of this.rides.values()) {
      if (ride.status !== 'searching' || ride.driverId !== null) continue;
      const free = [...this.drivers.values()].filter(
        (driver) => driver.status === 'available' && driver.position !== null && !ride.triedDriverIds.has(driver.id),
      );
      const distanceM = (driver: Driver): number => greatCircleM(driver.position as Point, ride.pickup);
      const nearest = free.sort((a, b) => distanceM(a) - distanceM(b))[0];
      if (nearest !== undefined) this.#offer(ride, nearest);
    }
  }

  #offer(ride: Ride, driver: Driver): void {
    const expiresInMs = this.policy?.decisionTtlMs ?? 0;
    const { id: rideId, pickup, dropoff } = ride;
    driver.fence++;
    driver.offer = {
      offerId: randomUUID(),
      rideId,
      leaseToken: randomUUID(),
      fence: driver.fence,
      expiresInMs,
      pickup,
      dropoff,
      pickupEtaS: 1,
    };
    driver.status = 'leased';
    ride.driverId = driver.id;
    ride.triedDriverIds.add(driver.id);
    driver.expiry = this.#later(expiresInMs, () => this.#endOffer(driver, 'expired'));
    driver.socket?.emit('offer', driver.offer, () => {});
    driver.socket?.emit('offer', driver.offer, () => {});
  }

  #endOffer(driver: Driver, reason: string): void {
    const { offer } = driver;
    if (offer === null) return;
    const ride = this.rides.get(offer.rideId);
    if (ride !== undefined) ride.driverId = null;
    this.#free(driver);
    if (reason !== 'declined') driver.socket?.emit('offer:withdrawn', { offerId: offer.offerId, reason });
  }

  #free(driver: Driver): void {
    clearTimeout(driver.expiry);
    driver.offer = null;
    driver.ride = null;
    driver.status = 'available';
    setImmediate(() => this.#match());
  }

  // --- the drivers' socket

  #seat(socket: Socket): void {
    const driver = this.drivers.get(decodeJwt(socket.handshake.auth.token as string).sub ?? '');
    if (driver === undefined) return void socket.disconnect(true);
    driver.socket?.disconnect(true);
    driver.socket = socket;
    for (const event of [
      'online',
      'offline',
      'location',
      'accept',
      'decline',
      'arrive',
      'start',
      'complete',
      'cancel',
    ]) {
      socket.on(event, (...args: unknown[]) => {
        const reply = args.at(-1);
        const refused = this.#command(driver, event, args[0] as never);
        if (typeof reply !== 'function') return;
        if (typeof refused === 'string') reply({ ok: false, error: { code: refused } });
        else reply({ ok: true, data: refused });
      });
    }
    const { ride } = driver;
    const assignment =
      ride === null
        ? null
        : {
            rideId: ride.id,
            driverId: driver.id,
            offerId: '',
            fence: driver.fence,
            assignedAt: '',
            pickup: ride.pickup,
            dropoff: ride.dropoff,
            rideStatus: ride.status,
          };
    socket.emit('state', { status: driver.status, offer: driver.offer, assignment });
  }

  /** The answer's data, or why not. */
  #command(
    driver: Driver,
    event: string,
    data: { offerId: string; leaseToken: string; rideId: string } & Point,
  ): object | string {
    if (event === 'location') driver.position = { lat: data.lat, lng: data.lng };
    if (event === 'online' && driver.status === 'offline') this.#free(driver);
    if (event === 'accept') return this.#accept(driver, data);
    if (event === 'decline') {
      if (driver.offer?.offerId !== data.offerId) return 'lease_lost';
      this.#endOffer(driver, 'declined');
    }
    if (event === 'cancel') {
      if (driver.ride?.id !== data.rideId) return 'wrong_driver';
      driver.ride.status = 'searching';
      driver.ride.driverId = null;
      this.#free(driver);
    }
    const step = ['arrive', 'start', 'complete'].indexOf(event);
    return step === -1 ? {} : this.#advance(driver, data.rideId, step + 1);
  }

  #accept(driver: Driver, { offerId, leaseToken }: { offerId: string; leaseToken: string }): object | string {
    const earlier = this.confirmed.get(offerId);
    if (earlier !== undefined) return earlier;
    const { offer } = driver;
    if (offer?.offerId !== offerId) return 'lease_expired';
    if (offer.leaseToken !== leaseToken) return 'wrong_token';
    const ride = this.rides.get(offer.rideId) as Ride;
    clearTimeout(driver.expiry);
    Object.assign(driver, { offer: null, status: 'assigned', ride });
    ride.status = 'assigned';
    const assignment = {
      rideId: ride.id,
      driverId: driver.id,
      offerId,
      fence: offer.fence,
      assignedAt: new Date().toISOString(),
    };
    this.confirmed.set(offerId, { assignment });
    driver.socket?.emit('assignment', { ...assignment, pickup: ride.pickup, dropoff: ride.dropoff });
    return { assignment };
  }

  #advance(driver: Driver, rideId: string, phase: number): object | string {
    const ride = this.rides.get(rideId);
    if (ride === undefined || ride.driverId !== driver.id) return 'wrong_driver';
    const at = phases.indexOf(ride.status);
    if (at >= phase) return {};
    if (at < phase - 1) return ride.status === 'cancelled' ? 'ride_cancelled' : 'wrong_phase';
    ride.status = phases[phase] as string;
    if (ride.status === 'completed') this.#free(driver);
    return {};
  }
}

function newDriver(id: string): Driver {
  return { id, status: 'offline', position: null, offer: null, expiry: undefined, ride: null, fence: 0, socket: null };
}

const plain = ({ triedDriverIds: _, ...ride }: Ride): object => ({
  ...ride,
  assignment: null,
  cancellation: null,
});
