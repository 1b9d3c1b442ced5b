/** A rider, ride after ride, and whoever else has a hand in the ride: the fleet's own matcher, an operator. */
import type { Ride, RideStatus } from '../../src/client/contract.ts';
import type { Random } from '../../domain/random.ts';
import { nowMs } from '../history.ts';
import type { Asked, Heard } from './ask.ts';
import { planRide, type RidePlan } from './plan.ts';
import { settle, sleep, type World } from './world.ts';

const WATCH_EVERY_MS = 600;
/** A rider who has seen no end of his ride goes on with the next; the run's end tells whether it ended. */
const WATCH_MAX_MS = 45_000;
const LEASE_TRIES = 3;
const ENDED: ReadonlySet<RideStatus> = new Set(['completed', 'cancelled', 'no_drivers_available']);

export class Rider {
  readonly #riderId: string;
  readonly #world: World;
  readonly #random: Random;
  #rides = 0;

  constructor(riderId: string, world: World) {
    this.#riderId = riderId;
    this.#world = world;
    this.#random = world.random.fork(`rider ${riderId}`);
  }

  async run(): Promise<void> {
    while (!this.#world.isEnding() && !this.#world.stopped.aborted) {
      this.#rides += 1;
      const random = this.#random.fork(`ride ${this.#rides}`);
      await this.#ride(planRide(random), random);
    }
  }

  async #ride(plan: RidePlan, random: Random): Promise<void> {
    const rideId = await this.#request(plan);
    if (rideId === null) return;
    const meanwhile = [this.#cancelAsPlanned(rideId, plan), this.#leaseAsPlanned(rideId, plan, random)];
    await this.#watch(rideId);
    await Promise.all(meanwhile);
    await sleep(this.#world, plan.pauseMs);
  }

  async #request(plan: RidePlan): Promise<string | null> {
    const key = `${this.#riderId}-${this.#rides}`;
    const firstId = this.#world.asker.history.nextId();
    const body = { regionId: this.#world.regionId, riderId: this.#riderId, pickup: plan.pickup, dropoff: plan.dropoff };
    const ask = (id: string | undefined) => (repeats: string | undefined) => {
      const asked: Asked = {
        client: this.#riderId,
        command: 'request',
        idempotencyKey: key,
        ...(id !== undefined && { id }),
        ...(repeats !== undefined && { repeats }),
      };
      id = undefined;
      return this.#world.asker.rest(asked, 'rider', { method: 'POST', path: '/v1/rides', body, idempotencyKey: key });
    };
    const [heard] = await Promise.all([
      settle(this.#world, ask(firstId)),
      plan.isDoubled ? settle(this.#world, ask(undefined), firstId) : null,
    ]);
    return heard?.outcome === 'ok' ? (heard.data as Ride).id : null;
  }

  async #cancelAsPlanned(rideId: string, { cancel }: RidePlan): Promise<void> {
    if (cancel === null) return;
    if (cancel.when === 'after') {
      if (await sleep(this.#world, cancel.afterMs)) await this.#cancel(rideId);
      return;
    }
    const { accepting } = this.#world;
    const asked = Promise.withResolvers<void>();
    accepting.set(rideId, () => asked.resolve());
    await Promise.race([asked.promise, sleep(this.#world, this.#world.policy.patienceMs)]);
    accepting.delete(rideId);
    await this.#cancel(rideId);
  }

  #cancel(rideId: string): Promise<Heard | null> {
    return settle(this.#world, (repeats) =>
      this.#world.asker.rest(
        { client: this.#riderId, command: 'cancel', rideId, ...(repeats !== undefined && { repeats }) },
        'rider',
        { method: 'POST', path: `/v1/rides/${rideId}/cancel`, body: { reasonCode: 'changed_mind' } },
      ),
    );
  }

  /** Beside the service's rounds: whoever is first has the driver. */
  async #leaseAsPlanned(rideId: string, { leasedBy, releaseAfterMs }: RidePlan, random: Random): Promise<void> {
    if (leasedBy === null) return;
    for (let attempt = 1; attempt <= LEASE_TRIES; attempt++) {
      const driverId = random.pick(this.#world.driverIds);
      const offer = await this.#lease(leasedBy, rideId, driverId, attempt);
      if (offer === null) continue;
      if (releaseAfterMs !== null && (await sleep(this.#world, releaseAfterMs))) await this.#release(leasedBy, offer);
      return;
    }
  }

  async #lease(
    role: 'service' | 'ops',
    rideId: string,
    driverId: string,
    attempt: number,
  ): Promise<LeasedOffer | null> {
    const idempotencyKey = `${rideId}-${attempt}`;
    const heard = await settle(this.#world, (repeats) =>
      this.#world.asker.rest(
        { client: role, command: 'offer', rideId, driverId, idempotencyKey, ...(repeats !== undefined && { repeats }) },
        role,
        { method: 'POST', path: `/v1/rides/${rideId}/offers`, body: { driverId }, idempotencyKey },
      ),
    );
    const offer = heard?.outcome === 'ok' ? (heard.data as LeasedOffer) : null;
    return offer === null || offer.leaseToken === null ? null : offer;
  }

  #release(role: 'service' | 'ops', { id: offerId, rideId, driverId, leaseToken }: LeasedOffer): Promise<Heard | null> {
    return settle(this.#world, (repeats) =>
      this.#world.asker.rest(
        {
          client: role,
          command: 'release',
          rideId,
          driverId,
          offerId,
          leaseToken: leaseToken!,
          ...(repeats !== undefined && { repeats }),
        },
        role,
        { method: 'POST', path: `/v1/offers/${offerId}/release`, body: { leaseToken } },
      ),
    );
  }

  async #watch(rideId: string): Promise<void> {
    const untilMs = nowMs() + WATCH_MAX_MS;
    while (nowMs() < untilMs && (await sleep(this.#world, WATCH_EVERY_MS))) {
      const ride = await this.#world.asker.read<Ride>(this.#riderId, 'rider', `/v1/rides/${rideId}`);
      if (ride !== null && ENDED.has(ride.status)) return;
    }
  }
}

interface LeasedOffer {
  readonly id: string;
  readonly rideId: string;
  readonly driverId: string;
  /** Null once it isn't pending any more. */
  readonly leaseToken: string | null;
}
