import { randomUUID } from 'node:crypto';
import { defaultPolicy, type Policy, policyProblems } from '../domain/policy.ts';
import { createRandom, type Random } from '../domain/random.ts';
import { greatCircleTravelTime } from '../domain/travel-time.ts';
import { DriverClient } from '../src/client/driver-client.ts';
import { OperatorClient } from '../src/client/operator-client.ts';
import { isTransient, Unreachable } from '../src/client/problem.ts';
import { Connections } from '../src/client/rest.ts';
import { RiderClient } from '../src/client/rider-client.ts';
import { type Role, signedTokens, type TokenSource } from '../src/client/token.ts';
import { defaultRates, type FaultRates, rateProblems } from './behaviour.ts';
import { eachBounded } from './bounded.ts';
import { cityOf, startPosition } from './demand/city.ts';
import type { Demand, Trip } from './demand/demand.ts';
import { SimulatedDriver } from './driver.ts';
import { RideFollower } from './follow.ts';
import { RideLedger } from './ledger.ts';
import { lifelikePolicy, planDriver, planRider } from './life.ts';
import { Meter } from './meter.ts';
import type { Progress } from './progress.ts';
import type { SimulationResult } from './result.ts';
import { Riders } from './riders.ts';
import { Scheduler } from './scheduler.ts';
import { mean, percentiles, round, Tally } from './tally.ts';
import { scalePolicy } from './time-scale.ts';
import type { World } from './world.ts';

export interface SimulationOptions {
  /** Base URLs of the service; drivers and riders spread over them, and move on from one that is gone. */
  readonly urls: readonly string[];
  /** Where drivers connect, when REST and sockets are served by different processes; `urls` unless given. */
  readonly socketUrls?: readonly string[];
  /** The service's `AUTH_SECRET`, or where else tokens come from. */
  readonly tokens: string | ((sub: string, role: Role) => TokenSource);
  readonly regionId: string;
  readonly demand: Demand;
  readonly drivers: number;
  /** How many times as fast as the wall's clock the city's runs; 1 or more. */
  readonly speedup: number;
  readonly seed: number | string;
  /** In city time, as everything in `demand`; the rest is the default policy. */
  readonly policy?: Partial<Policy>;
  readonly rates?: Partial<FaultRates>;
  /** Riders and drivers as they are in real cities (life.ts), under a policy that expects them. */
  readonly lifelike?: boolean;
  /** Share of riders who change their mind before they are picked up. */
  readonly riderCancelRate?: number;
  readonly signal?: AbortSignal;
  /** Called about once a second. */
  readonly onProgress?: (progress: Progress) => void;
}

const RIDER_CANCEL_RATE = 0.01;
const TOKEN_TTL_S = 24 * 3600;
const PROFILES_AT_ONCE = 32;
const CONNECTS_AT_ONCE = 50;
const BEGIN_DEADLINE_MS = 60_000;
/** The service takes ids of 64 characters. */
const DRIVER_ID_PREFIX_MAX = 48;
const PROGRESS_MS = 1_000;
const END_CHECK_MS = 100;
/** City time that a ride may take besides its patience and its drive: two ways to a pick-up, boarding, an app's restart. */
const RIDE_MARGIN_MS = 1_800_000;
/** Wall time for a service that is just being restarted. */
const RESTART_MARGIN_MS = 30_000;
const READ_BACK_TRIES = 4;
const READ_BACK_PAUSE_MS = 1_000;

/**
 * Drives a city through a running service, over the public contract alone, and tells what it was like.
 *
 * Opens the region with its policy and drivers, connects the drivers, sends the demand's requests at their times,
 * waits until every ride has ended or can't be expected to, and reads back what became of each. The seed decides
 * every draw; what the service makes of them, and how fast, is its own.
 *
 * Throws `RangeError` on options that can't work, `Problem` or `Unreachable` when the service can't be set up, and
 * the signal's reason when aborted. Afterwards no socket and no timer is left.
 */
export async function runSimulation(options: SimulationOptions): Promise<SimulationResult> {
  const run = new Run(options);
  try {
    return await run.toTheEnd();
  } finally {
    run.close();
  }
}

class Run {
  readonly #options: SimulationOptions;
  readonly #random: Random;
  readonly #policy: Policy;
  readonly #connections = new Connections();
  readonly #tally = new Tally();
  readonly #scheduler: Scheduler;
  readonly #ledger: RideLedger;
  readonly #meter: Meter;
  readonly #operator: OperatorClient;
  readonly #world: World;
  /** Rejects when the run is to end before its time. */
  readonly #ending = Promise.withResolvers<never>();
  readonly #onAbort = (): void => this.#ending.reject(this.#options.signal?.reason);
  readonly #runId = randomUUID().slice(0, 8);
  #drivers: SimulatedDriver[] = [];
  #phase: Progress['phase'] = 'opening';
  #dayStartedMs: number | null = null;
  #clients = 0;

  constructor(options: SimulationOptions) {
    this.#options = options;
    this.#policy = effectivePolicy(options);
    this.#random = createRandom(options.seed);
    const failed = (error: unknown): void => this.#ending.reject(error);
    this.#scheduler = new Scheduler({ now: () => performance.now(), failed });
    this.#ledger = new RideLedger(() => performance.now(), this.#tally);
    this.#meter = new Meter(this.#ledger, this.#tally, performance.now());
    this.#operator = new OperatorClient(this.#access('simulator', 'ops'));
    this.#world = {
      scheduler: this.#scheduler,
      ledger: this.#ledger,
      tally: this.#tally,
      speedup: options.speedup,
      policy: this.#policy,
      travel: greatCircleTravelTime(this.#policy),
      rates: { ...defaultRates, ...options.rates },
      openClient: (driverId, events) => new DriverClient({ ...this.#access(driverId, 'driver'), events }),
      readRide: (rideId) => this.#operator.getRide(rideId),
      failed,
    };
  }

  async toTheEnd(): Promise<SimulationResult> {
    const { signal } = this.#options;
    signal?.throwIfAborted();
    signal?.addEventListener('abort', this.#onAbort);
    this.#reportEverySecond();
    await this.#unlessEnding(this.#openCity());
    await this.#unlessEnding(this.#bringDriversOnline());
    this.#phase = 'running';
    this.#dayStartedMs = this.#scheduler.now();
    const riders = this.#riders();
    await this.#unlessEnding(riders.run());
    this.#phase = 'ending';
    await this.#unlessEnding(this.#ridesToEnd());
    const wallSeconds = round((this.#scheduler.now() - this.#dayStartedMs) / 1000);
    await this.#unlessEnding(this.#readBack());
    this.#report();
    return this.#result(riders, wallSeconds);
  }

  close(): void {
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    this.#scheduler.stop();
    for (const driver of this.#drivers) driver.end();
    this.#connections.close();
  }

  async #openCity(): Promise<void> {
    const { regionId, demand } = this.#options;
    await this.#operator.putRegion(regionId, { name: regionId, ...cityOf(demand.trips) });
    await this.#operator.putPolicy(regionId, this.#policy);
  }

  async #bringDriversOnline(): Promise<void> {
    const { regionId, demand, drivers } = this.#options;
    const places = this.#random.fork('start positions');
    this.#drivers = Array.from({ length: drivers }, (_, index) => {
      const id = `${regionId.slice(0, DRIVER_ID_PREFIX_MAX)}-${index + 1}`;
      const start = startPosition(demand.trips, places);
      return new SimulatedDriver(id, start, this.#random.fork(`driver ${index}`), this.#world);
    });
    await eachBounded(this.#drivers, PROFILES_AT_ONCE, (driver, index) => this.#register(driver, index));
    await eachBounded(this.#drivers, CONNECTS_AT_ONCE, (driver) => this.#beginOrFail(driver));
    // By then every position was sent again, and the service has had the time to write the first.
    await this.#scheduler.pause(this.#policy.positionIntervalMs);
  }

  async #register(driver: SimulatedDriver, index: number): Promise<void> {
    const { regionId, lifelike, speedup } = this.#options;
    if (lifelike !== true) return void (await this.#operator.putDriver(driver.id, { regionId }));
    const { profile, shiftEndsAfterMs } = planDriver(this.#random.fork(`life of driver ${index}`));
    const shiftMs = shiftEndsAfterMs === null ? null : shiftEndsAfterMs / speedup;
    const shiftEndsAt = shiftMs === null ? null : new Date(Date.now() + shiftMs).toISOString();
    await this.#operator.putDriver(driver.id, { regionId, ...profile, shiftEndsAt });
    if (shiftMs !== null) driver.endShiftIn(shiftMs);
  }

  /** A driver who can't get through at the start means a wrong address or secret, not a bad moment. */
  async #beginOrFail(driver: SimulatedDriver): Promise<void> {
    const deadline = Promise.withResolvers<never>();
    const late = this.#scheduler.after(BEGIN_DEADLINE_MS, () =>
      deadline.reject(new Unreachable(`driver ${driver.id} couldn't go online: ${JSON.stringify(this.#tally.errors)}`)),
    );
    await Promise.race([driver.begin(), deadline.promise]);
    late.cancel();
  }

  #riders(): Riders {
    const { demand, regionId, riderCancelRate } = this.#options;
    const blocks = this.#random.fork('blocks');
    const follower = new RideFollower({
      scheduler: this.#scheduler,
      ledger: this.#ledger,
      tally: this.#tally,
      readRide: this.#world.readRide,
      firstPauseMs: this.#policy.retryMaxMs,
      failed: this.#world.failed,
    });
    return new Riders({
      world: this.#world,
      follower,
      regionId,
      trips: demand.trips,
      cancelRate: riderCancelRate ?? RIDER_CANCEL_RATE,
      planOf: this.#options.lifelike === true ? planRider : null,
      block: (riderId) => this.#operator.putBlock(riderId, blocks.pick(this.#drivers).id),
      random: this.#random.fork('riders'),
      idPrefix: this.#riderIdPrefix(),
      openClient: (riderId) => new RiderClient(this.#access(riderId, 'rider')),
    });
  }

  /** Until no ride is open, or the time is over in which the last one should have ended. */
  async #ridesToEnd(): Promise<void> {
    const { demand, speedup } = this.#options;
    const estimateMs = (trip: Trip): number => this.#world.travel.etaS(trip.pickup, trip.dropoff) * 1000 * speedup;
    const longestMs = demand.trips.reduce((longest, trip) => Math.max(longest, trip.driveMs ?? estimateMs(trip)), 0);
    const lastEndMs = this.#policy.patienceMs + (longestMs + RIDE_MARGIN_MS) / speedup + RESTART_MARGIN_MS;
    const giveUpAtMs = this.#scheduler.now() + lastEndMs;
    while (this.#ledger.anyOpen() && this.#scheduler.now() < giveUpAtMs) await this.#scheduler.pause(END_CHECK_MS);
  }

  /** What the service says became of the rides counts, not what we believe. */
  async #readBack(): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        for await (const ride of this.#operator.rides(this.#options.regionId)) {
          // By their riders' names, so that a ride is found too whose rider never heard that it was made.
          if (ride.riderId.startsWith(this.#riderIdPrefix())) this.#ledger.adopt(ride);
        }
        return;
      } catch (error) {
        if (!isTransient(error) || attempt === READ_BACK_TRIES) throw error;
        await this.#scheduler.pause(READ_BACK_PAUSE_MS);
      }
    }
  }

  #result(riders: Riders, wallSeconds: number): SimulationResult {
    const { seed, speedup, demand, drivers } = this.#options;
    const { requested, assignedEver, completed, cancelled, noDriversAvailable } = this.#ledger.counts();
    const open = requested - completed - cancelled - noDriversAvailable;
    const tally = this.#tally;
    const { p50, p95 } = percentiles(tally.pickupEtaS);
    return {
      seed,
      speedup,
      policy: this.#policy,
      demand: { name: demand.name, trips: demand.trips.length, broken: demand.broken },
      drivers,
      rides: { requested, assigned: assignedEver, completed, cancelled, noDriversAvailable, open },
      cancellations: this.#ledger.cancellations(),
      unserved: riders.unserved,
      offersSeen: tally.offersSeen,
      latencyMs: {
        requestToOffer: percentiles(tally.requestToOfferMs),
        requestToAssigned: percentiles(tally.requestToAssignedMs),
        confirm: percentiles(tally.confirmMs),
      },
      pickupEtaS: { mean: mean(tally.pickupEtaS), p50, p95 },
      latenessMs: percentiles(tally.latenessMs),
      faults: tally.faults,
      taken: tally.taken,
      errors: tally.errors,
      wallSeconds,
    };
  }

  #reportEverySecond(): void {
    this.#scheduler.after(PROGRESS_MS, () => {
      this.#report();
      this.#reportEverySecond();
    });
  }

  #report(): void {
    const { onProgress, demand, speedup } = this.#options;
    const nowMs = this.#scheduler.now();
    const cityTimeMs = this.#dayStartedMs === null ? null : demand.startsAtMs + (nowMs - this.#dayStartedMs) * speedup;
    const { length: trips } = demand.trips;
    onProgress?.(this.#meter.read({ phase: this.#phase, nowMs, cityTimeMs, drivers: this.#drivers, trips }));
  }

  /** Each client begins at another of the addresses. */
  #access(sub: string, role: Role) {
    const { tokens } = this.#options;
    const urls = (role === 'driver' ? this.#options.socketUrls : undefined) ?? this.#options.urls;
    const first = this.#clients++ % urls.length;
    const url = [...urls.slice(first), ...urls.slice(0, first)];
    const token =
      typeof tokens === 'string' ? signedTokens({ secret: tokens, sub, role, ttlS: TOKEN_TTL_S }) : tokens(sub, role);
    return { url, token, connections: this.#connections };
  }

  #riderIdPrefix(): string {
    return `rider-${this.#runId}-`;
  }

  #unlessEnding<Value>(work: Promise<Value>): Promise<Value> {
    return Promise.race([work, this.#ending.promise]);
  }
}

/** The policy as it will run; throws `RangeError` on options that can't work. */
function effectivePolicy({
  urls,
  drivers,
  policy,
  speedup,
  rates,
  lifelike,
  riderCancelRate,
  demand,
}: SimulationOptions): Policy {
  const problems = rateProblems({ ...defaultRates, ...rates });
  if (urls.length === 0) problems.push('no URL of a service');
  if (!(Number.isInteger(drivers) && drivers >= 1)) problems.push('drivers must be a whole number, 1 or more');
  if (demand.trips.length === 0) problems.push('the demand holds no trips');
  if (!((riderCancelRate ?? 0) >= 0 && (riderCancelRate ?? 0) <= 1))
    problems.push('riderCancelRate must be from 0 to 1');
  const cityPolicy = { ...defaultPolicy, ...(lifelike === true && lifelikePolicy), ...policy };
  problems.push(...policyProblems(cityPolicy).map(({ setting, problem }) => `${setting} ${problem}`));
  if (problems.length > 0) throw new RangeError(problems.join('; '));
  return scalePolicy(cityPolicy, speedup);
}
