/* oxlint-disable vitest/no-standalone-expect -- commands are classes, and they are the test */
/**
 * Sequences of calls over the API beside a model of it: rides, drivers and offers that are made, answered, cancelled and
 * asked for again, in right and in wrong order, by those who may and those who may not, with junk in between. What the
 * service answers must be what the model says; in the end every state must be the model's, and the records sound.
 * `CABRANK_FUZZ_REQUESTS` says how many.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { verify } from '../../src/verify/verify.ts';
import {
  calmPolicy,
  must,
  openDriver,
  openRegion,
  OPS,
  rideBody,
  SERVICE,
  startTestApi,
  type Call,
  type Method,
  type TestApi,
} from '../api/harness.ts';
import { operations } from './operations.ts';
import { spoiledRequestFor } from './requests.ts';

const DEFAULT_REQUESTS = 1_000;
const REQUESTS = Number(process.env['CABRANK_FUZZ_REQUESTS'] ?? DEFAULT_REQUESTS);
/** So that a run by default is always the same; longer ones look elsewhere each time, and print the seed of a failure. */
const DEFAULT_SEED = 1;
const COMMANDS_MAX = 60;
/** Many times what they take on a machine that has nothing else to do. */
const TIMEOUT_MS = 60_000 + 50 * REQUESTS;
const DRIVERS = 3;

interface Driver {
  readonly id: string;
  status: 'offline' | 'available' | 'leased' | 'assigned';
}

interface Ride {
  readonly id: string;
  readonly riderId: string;
  status: 'searching' | 'assigned' | 'driver_arrived' | 'in_progress' | 'completed' | 'cancelled';
  /** Of the accepted offer. */
  taken: Offer | null;
}

interface Offer {
  readonly id: string;
  readonly leaseToken: string;
  readonly ride: Ride;
  readonly driver: Driver;
  status: 'pending' | 'accepted' | 'declined' | 'withdrawn';
}

interface City {
  readonly drivers: readonly Driver[];
  readonly rides: Ride[];
  readonly offers: Offer[];
}

const steps = ['assigned', 'driver_arrived', 'in_progress', 'completed'] as const;
/** From the newest on. */
const pick = <Item>(items: readonly Item[], at: number): Item => items[items.length - 1 - (at % items.length)]!;
const pendingOf = ({ offers }: City, of: Ride | Driver): Offer | undefined =>
  offers.find(({ status, ride, driver }) => status === 'pending' && (ride === of || driver === of));

function endOffer(offer: Offer, status: 'declined' | 'withdrawn', driverStatus: Driver['status'] = 'available'): void {
  offer.status = status;
  offer.driver.status = driverStatus;
}

interface Asked {
  readonly method: Method;
  readonly path: string;
  readonly call: Call;
}

/** What is asked, and what the model makes of it: `ok`, having changed the model, or the refusal's code. */
interface Turn {
  readonly asked: Asked;
  readonly judge: (answer: Record<string, unknown>) => string;
}

class Command implements fc.AsyncCommand<City, TestApi> {
  readonly #says: string;
  readonly #turn: (city: City) => Turn | null;

  constructor(says: string, turn: (city: City) => Turn | null) {
    this.#says = says;
    this.#turn = turn;
  }

  check(city: Readonly<City>): boolean {
    return this.#turn(city) !== null;
  }

  async run(city: City, api: TestApi): Promise<void> {
    const { asked, judge } = this.#turn(city)!;
    const { status, body } = await api.call(asked.method, asked.path, asked.call);
    const says = status < 300 ? 'ok' : (body as { code: string }).code;
    expect(says, `${asked.method} ${asked.path} by ${asked.call.as}`).toBe(judge(body as Record<string, unknown>));
  }

  toString(): string {
    return this.#says;
  }
}

const post = (path: string, as: NonNullable<Call['as']>, body?: unknown): Asked => ({
  method: 'POST',
  path: `/v1/${path}`,
  call: { as, ...(body !== undefined && { body }) },
});

const request = (rider: number) =>
  new Command(`request(${rider})`, ({ rides }) => {
    const riderId = `r${rider}`;
    return {
      asked: post('rides', `rider:${riderId}`, rideBody(riderId)),
      judge: ({ id }) => {
        rides.push({ id: id as string, riderId, status: 'searching', taken: null });
        return 'ok';
      },
    };
  });

const offer = (at: number, by: number) =>
  new Command(`offer(${at}, ${by})`, (city) => {
    if (city.rides.length === 0) return null;
    const [ride, driver] = [pick(city.rides, at), pick(city.drivers, by)];
    return {
      asked: post(`rides/${ride.id}/offers`, SERVICE.as, { driverId: driver.id }),
      judge: ({ id, leaseToken }) => {
        if (ride.status !== 'searching') return 'ride_not_searching';
        if (driver.status !== 'available') return 'driver_unavailable';
        if (pendingOf(city, ride) !== undefined) return 'ride_fully_offered';
        driver.status = 'leased';
        city.offers.push({ id: id as string, leaseToken: leaseToken as string, ride, driver, status: 'pending' });
        return 'ok';
      },
    };
  });

type Holder = 'its driver' | 'another driver' | 'the service';
type Shown = 'its token' | 'another token' | 'a guess';
const anyHolder = fc.constantFrom<Holder>('its driver', 'its driver', 'another driver', 'the service');
const anyShown = fc.constantFrom<Shown>('its token', 'its token', 'its token', 'another token', 'a guess');

const answer = (verb: 'confirm' | 'decline' | 'release' | 'received', at: number, by: Holder, shown: Shown) =>
  new Command(`${verb}(${at}, by ${by}, with ${shown})`, (city) => {
    if (city.offers.length === 0 || (verb === 'release' && by !== 'the service')) return null;
    const asked = pick(city.offers, at);
    const other = pick(city.offers, at + 1);
    if (shown === 'another token' && other === asked) return null;
    const token = { 'its token': asked.leaseToken, 'another token': other.leaseToken, 'a guess': 'guess' }[shown];
    const stranger = city.drivers.find((driver) => driver !== asked.driver)!;
    const as =
      by === 'the service' ? SERVICE.as : (`driver:${by === 'its driver' ? asked.driver.id : stranger.id}` as const);
    return {
      asked: post(`offers/${asked.id}/${verb}`, as, { leaseToken: token }),
      judge: () => {
        if (by === 'another driver') return 'wrong_driver';
        if (shown !== 'its token') return 'wrong_token';
        return judgeTerm(verb, asked);
      },
    };
  });

function judgeTerm(verb: 'confirm' | 'decline' | 'release' | 'received', asked: Offer): string {
  const { ride, driver } = asked;
  const endsAs = { confirm: 'accepted', decline: 'declined', release: 'withdrawn', received: null }[verb];
  if (asked.status === endsAs && endedByToken.has(asked)) return 'ok';
  if (asked.status !== 'pending') {
    if (ride.status === 'cancelled') return 'ride_cancelled';
    return ride.taken !== null && ride.taken !== asked ? 'ride_taken' : 'lease_lost';
  }
  if (verb === 'confirm') {
    Object.assign(asked, { status: 'accepted' });
    Object.assign(driver, { status: 'assigned' });
    Object.assign(ride, { status: 'assigned', taken: asked });
  } else if (verb !== 'received') {
    endOffer(asked, verb === 'decline' ? 'declined' : 'withdrawn');
  }
  if (verb !== 'received') endedByToken.add(asked);
  return 'ok';
}
/** Asked again, these are answered as the first time; others were ended by a cancel, or by going offline. */
const endedByToken = new WeakSet<Offer>();

const cancel = (at: number, by: 'its rider' | 'another rider' | 'ops') =>
  new Command(`cancel(${at}, by ${by})`, (city) => {
    if (city.rides.length === 0) return null;
    const ride = pick(city.rides, at);
    const as = by === 'ops' ? OPS.as : (`rider:${by === 'its rider' ? ride.riderId : 'nobody'}` as const);
    return {
      asked: post(`rides/${ride.id}/cancel`, as, { reasonCode: 'attack' }),
      judge: () => {
        if (by === 'another rider') return 'wrong_rider';
        if (ride.status === 'cancelled') return 'ok';
        if (ride.status === 'in_progress') return 'ride_in_progress';
        if (ride.status === 'completed') return 'ride_over';
        const open = pendingOf(city, ride);
        if (open !== undefined) endOffer(open, 'withdrawn');
        if (ride.taken !== null) ride.taken.driver.status = 'available';
        ride.status = 'cancelled';
        return 'ok';
      },
    };
  });

const step = (name: 'arrive' | 'start' | 'complete', at: number, by: number) =>
  new Command(`${name}(${at}, ${by})`, (city) => {
    if (city.rides.length === 0) return null;
    const [ride, driver] = [pick(city.rides, at), pick(city.drivers, by)];
    return {
      asked: post(`rides/${ride.id}/${name}`, `driver:${driver.id}`),
      judge: () => {
        if (ride.taken?.driver !== driver) return 'wrong_driver';
        if (ride.status === 'cancelled') return 'ride_cancelled';
        const ahead = { arrive: 1, start: 2, complete: 3 }[name] - steps.indexOf(ride.status as (typeof steps)[number]);
        if (ahead > 1) return 'wrong_phase';
        if (ahead === 1) ride.status = steps[steps.indexOf(ride.status as (typeof steps)[number]) + 1]!;
        if (ahead === 1 && name === 'complete') driver.status = 'available';
        return 'ok';
      },
    };
  });

const shift = (name: 'online' | 'offline', by: number) =>
  new Command(`${name}(${by})`, (city) => {
    const driver = pick(city.drivers, by);
    return {
      asked: post(`drivers/${driver.id}/${name}`, `driver:${driver.id}`),
      judge: () => {
        if (name === 'online') {
          if (driver.status === 'offline') driver.status = 'available';
          return 'ok';
        }
        if (driver.status === 'assigned') return 'driver_assigned';
        const open = pendingOf(city, driver);
        if (open !== undefined) endOffer(open, 'declined');
        driver.status = 'offline';
        return 'ok';
      },
    };
  });

/** Something spoiled, about no known thing: it is refused, and the model goes on as if it hadn't been asked. */
class Junk implements fc.AsyncCommand<City, TestApi> {
  readonly #asked: Asked;

  constructor(asked: Asked) {
    this.#asked = asked;
  }

  check = (): boolean => true;

  async run(_city: City, api: TestApi): Promise<void> {
    const { method, path, call } = this.#asked;
    const { status, body } = await api.call(method, path, call);
    expect(status, `${method} ${path} ${JSON.stringify(body)}`).toBeGreaterThanOrEqual(400);
    expect(status).toBeLessThan(500);
  }

  toString = (): string => `junk(${JSON.stringify(this.#asked).slice(0, 500)})`;
}

const about = [
  'cancelRide',
  'offerRide',
  'confirmOffer',
  'declineOffer',
  'receiveOffer',
  'releaseOffer',
  'requestRide',
];
const junk = fc
  .oneof(...operations.filter(({ name }) => about.includes(name)).map((each) => spoiledRequestFor(each, {})))
  .map(({ method, path, headers, body, type }) => {
    const sent = body === undefined ? {} : { body };
    return new Junk({ method, path, call: { ...SERVICE, ...sent, headers: { ...headers, 'content-type': type } } });
  });

const at = fc.nat({ max: 3 });
const by = fc.nat({ max: DRIVERS - 1 });
const anyAnswer = fc
  .tuple(fc.constantFrom('confirm', 'confirm', 'decline', 'release', 'received'), at, anyHolder, anyShown)
  .map((args) => answer(...args));
const commands = fc.commands(
  [
    fc.nat({ max: 2 }).map(request),
    fc.tuple(at, by).map((args) => offer(...args)),
    fc.tuple(at, by).map((args) => offer(...args)),
    anyAnswer,
    anyAnswer,
    anyAnswer,
    fc.tuple(at, fc.constantFrom('its rider', 'another rider', 'ops')).map((args) => cancel(...args)),
    fc.tuple(fc.constantFrom('arrive', 'start', 'complete'), at, by).map((args) => step(...args)),
    fc.tuple(fc.constantFrom('online', 'offline'), by).map((args) => shift(...args)),
    junk,
  ],
  { maxCommands: COMMANDS_MAX, size: 'max' },
);

async function expectAsModelled(api: TestApi, { drivers, rides, offers }: City): Promise<void> {
  const statusOf = async (path: string) => ((await api.call('GET', path, OPS)).body as { status: string }).status;
  for (const { id, status } of drivers) expect(await statusOf(`/v1/drivers/${id}`), id).toBe(status);
  for (const { id, status } of rides) expect(await statusOf(`/v1/rides/${id}`), id).toBe(status);
  for (const { id, status } of offers) expect(await statusOf(`/v1/offers/${id}`), id).toBe(status);
}

test(
  'whatever is asked in whatever order is answered as the model says, and leaves sound records',
  async () => {
    await using api = await startTestApi({ policy: { ...calmPolicy, offersMax: 100 } });
    await openRegion(api);
    let runs = 0;
    let accepted = 0;
    await fc.assert(
      fc.asyncProperty(commands, async (turns) => {
        runs += 1;
        const drivers = Array.from({ length: DRIVERS }, (_, i): Driver => ({
          id: `d${runs}-${i}`,
          status: 'available',
        }));
        for (const { id } of drivers) await openDriver(api, id);
        const city: City = { drivers, rides: [], offers: [] };
        await fc.asyncModelRun(() => ({ model: city, real: api }), turns);
        await expectAsModelled(api, city);
        accepted += city.offers.filter(({ status }) => status === 'accepted').length;
        // Nobody matches them: left waiting, they would be more than a region takes.
        for (const { id } of city.rides.filter(({ status }) => status === 'searching'))
          await must(api.call('POST', `/v1/rides/${id}/cancel`, { ...OPS, body: { reasonCode: 'over' } }));
      }),
      {
        numRuns: Math.ceil(REQUESTS / COMMANDS_MAX),
        ...(REQUESTS === DEFAULT_REQUESTS && { seed: DEFAULT_SEED }),
      },
    );
    expect(accepted, 'nothing was accepted').toBeGreaterThan(5);
    const { empty, invariants } = await verify(api.database.url);
    expect(empty).toBe(false);
    expect(invariants.filter(({ violations }) => violations > 0)).toEqual([]);
  },
  TIMEOUT_MS,
);
