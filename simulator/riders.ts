import { randomUUID } from 'node:crypto';
import type { Random } from '../domain/random.ts';
import type { Ride, RideStatus } from '../src/client/contract.ts';
import { isTransient } from '../src/client/problem.ts';
import type { RiderClient } from '../src/client/rider-client.ts';
import type { Trip } from './demand/demand.ts';
import type { RideFollower } from './follow.ts';
import { isOver, type RideRecord } from './ledger.ts';
import type { RiderPlan } from './life.ts';
import type { World } from './world.ts';

export interface RidersOptions {
  readonly world: World;
  readonly follower: RideFollower;
  readonly regionId: string;
  /** Ordered by request time. */
  readonly trips: readonly Trip[];
  /** Share of riders who change their mind before they are picked up. */
  readonly cancelRate: number;
  /** What each rider wants and will do; null: rides of the plain kind, and minds that change at `cancelRate`. */
  readonly planOf: ((random: Random) => RiderPlan) | null;
  /** Keeps a rider and some driver apart, from now on. */
  readonly block: (riderId: string) => Promise<unknown>;
  readonly random: Random;
  /** Tells this run's riders from another's. */
  readonly idPrefix: string;
  readonly openClient: (riderId: string) => RiderClient;
}

/** Requests under way at the same time; more wait their turn, and their lateness is reported. */
const AT_ONCE_MAX = 64;
/** A request is repeated for so long (wall) while the service is away, beyond the client's own deadline. */
const GIVE_UP_MS = 300_000;
const PAUSE_MS = 500;
/** City milliseconds until a mind changes: about as long as finding a driver takes, so that it meets every stage of it. */
const CHANGE_OF_MIND_MEAN_MS = 10_000;

/** The riders of the city: each asks for a ride at the demand's time, and some change their minds. */
export class Riders {
  readonly #options: RidersOptions;
  readonly #done = Promise.withResolvers<void>();
  #startMs = 0;
  #next = 0;
  #atOnce = 0;
  /** Requests that the service never took. */
  unserved = 0;

  constructor(options: RidersOptions) {
    this.#options = options;
  }

  /** Resolves when every request was answered, or given up on. */
  run(): Promise<void> {
    this.#startMs = this.#options.world.scheduler.now();
    this.#askDue();
    return this.#done.promise;
  }

  #askDue(): void {
    const { trips, world } = this.#options;
    while (this.#atOnce < AT_ONCE_MAX && this.#next < trips.length) {
      const dueMs = this.#dueMs(this.#next);
      if (dueMs > world.scheduler.now()) break;
      this.#begin(this.#next++, dueMs);
    }
    if (this.#next === trips.length && this.#atOnce === 0) return this.#done.resolve();
    // With all hands full the next request starts when one of them is answered.
    if (this.#next < trips.length && this.#atOnce < AT_ONCE_MAX) {
      const next = this.#next;
      world.scheduler.at(this.#dueMs(next), () => {
        if (this.#next === next) this.#askDue();
      });
    }
  }

  #dueMs(index: number): number {
    return this.#startMs + (this.#options.trips[index] as Trip).requestMs / this.#options.world.speedup;
  }

  #begin(index: number, dueMs: number): void {
    this.#atOnce++;
    this.#request(index, dueMs)
      .catch(this.#options.world.failed)
      .finally(() => {
        this.#atOnce--;
        this.#askDue();
      });
  }

  async #request(index: number, dueMs: number): Promise<void> {
    const { world, follower, trips, random, idPrefix, cancelRate, planOf } = this.#options;
    const trip = trips[index] as Trip;
    const riderId = `${idPrefix}${index}`;
    const client = this.#options.openClient(riderId);
    const sentMs = world.scheduler.now();
    world.tally.latenessMs.push(sentMs - dueMs);
    const mind = random.fork(`rider ${index}`);
    const plan = planOf?.(mind) ?? null;
    if (plan?.blocks === true) this.#background('block', this.#options.block(riderId));
    const ride = await this.#ask(client, { riderId, trip, needs: plan?.needs ?? {} }, sentMs);
    if (ride === null) {
      this.unserved++;
      return;
    }
    const record = world.ledger.requested(ride.id, trip, sentMs, world.policy.patienceMs);
    follower.follow(record);
    if (plan !== null) return this.#follow(plan, client, record);
    const waitMs = mind.exponential(CHANGE_OF_MIND_MEAN_MS) / world.speedup;
    if (mind.chance(cancelRate)) world.scheduler.after(waitMs, () => this.#maybeCancel(client, record));
  }

  /** Lives up to the plan. */
  #follow({ changeOfMind, staysAway }: RiderPlan, client: RiderClient, record: RideRecord): void {
    const { scheduler, speedup, tally } = this.#options.world;
    record.isNoShow = staysAway;
    if (staysAway) tally.fault('noShows');
    if (changeOfMind === null) return;
    const { stage, afterMs } = changeOfMind;
    let isPlanned = false;
    const arrivedAt = (status: RideStatus): void => {
      if (status !== stage || isPlanned) return;
      isPlanned = true;
      scheduler.after(afterMs / speedup, () => {
        if (record.status === stage) this.#maybeCancel(client, record);
      });
    };
    record.onStatus = arrivedAt;
    arrivedAt(record.status);
  }

  #background(command: string, work: Promise<unknown>): void {
    const { world } = this.#options;
    work.catch((error: unknown) => world.tally.failed(command, error)).catch(world.failed);
  }

  /** One key for all tries: whichever of them arrived first made the ride. */
  async #ask(
    client: RiderClient,
    { riderId, trip, needs }: { riderId: string; trip: Trip; needs: RiderPlan['needs'] },
    sentMs: number,
  ): Promise<Ride | null> {
    const { world, regionId } = this.#options;
    const { pickup, dropoff } = trip;
    const key = randomUUID();
    while (world.scheduler.now() - sentMs < GIVE_UP_MS) {
      try {
        return await client.request({ regionId, riderId, pickup, dropoff, ...needs }, key);
      } catch (error) {
        world.tally.failed('request', error);
        if (!isTransient(error)) return null;
      }
      await world.scheduler.pause(PAUSE_MS);
    }
    return null;
  }

  #maybeCancel(client: RiderClient, record: RideRecord): void {
    if (record.status === 'in_progress' || isOver(record)) return;
    const { world } = this.#options;
    world.tally.fault('riderCancels');
    client
      .cancel(record.rideId, 'changed_mind')
      .then(
        () => world.ledger.ended(record.rideId, 'cancelled'),
        (error: unknown) => {
          world.tally.failed('riderCancel', error);
          if (!isOver(record)) world.ledger.doubtful(record.rideId);
        },
      )
      .catch(world.failed);
  }
}
