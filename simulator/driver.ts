import type { Point } from '../domain/geo.ts';
import type { Random } from '../domain/random.ts';
import type { RideStatus } from '../src/client/contract.ts';
import type {
  AssignedRide,
  DriverClient,
  DriverState,
  RideCancelled,
  ShownOffer,
} from '../src/client/driver-client.ts';
import { isTransient } from '../src/client/problem.ts';
import { type AnswerPlan, planAnswer } from './behaviour.ts';
import { type Leg, parkedAt, positionAt } from './motion.ts';
import type { Scheduled } from './scheduler.ts';
import type { World } from './world.ts';

/** An accepted ride, from acceptance to its end. */
interface Job {
  readonly rideId: string;
  readonly pickup: Point;
  readonly dropoff: Point;
  /** The last step is being asked for: the service may know the ride as over before we do. */
  completing: boolean;
  next: Scheduled | null;
}

/** Answers come within these shares of the window, the second with a spike, so that only a fault lets one lapse. */
const WINDOW_SHARE = 0.6;
const WINDOW_SHARE_SLOW = 0.9;
/** City milliseconds from arriving to driving off. */
const BOARDING_MEDIAN_MS = 20_000;
const BOARDING_SIGMA = 0.5;
/** How often a step is asked for again when its client gave up, and the pause between (wall). */
const STEP_TRIES_MAX = 60;
const STEP_PAUSE_MS = 500;

/**
 * One driver of the simulated city: waits, answers offers (now and then badly), drives, and is free again where the
 * rider got out. Speaks to the service through the driver client alone, and has no timer of its own.
 */
export class SimulatedDriver {
  readonly id: string;
  readonly #world: World;
  readonly #random: Random;
  #client: DriverClient | null = null;
  #leg: Leg;
  #job: Job | null = null;
  /** Of the newest ride, so that late news of that or an older one doesn't begin it again. */
  #fence = 0;
  /** The offer whose way to the pick-up was measured last. */
  #etaOfferId: string | null = null;
  /** Offers on the screen: the answer still to be given, if any, and the end of the window. */
  readonly #screen = new Map<string, { answer: Scheduled | null; lapse: Scheduled; rideId: string }>();
  /** How long to stand still before setting out for the pick-up, once. Wall milliseconds. */
  #dawdleMs = 0;
  #onDuty = false;
  #shiftIsOver = false;
  #ended = false;

  constructor(id: string, start: Point, random: Random, world: World) {
    this.id = id;
    this.#leg = parkedAt(start);
    this.#random = random;
    this.#world = world;
  }

  get onDuty(): boolean {
    return this.#onDuty;
  }

  get busy(): boolean {
    return this.#job !== null;
  }

  /** Resolves once the service knows the driver as online, and where. */
  async begin(): Promise<void> {
    await this.#startApp();
    const { scheduler, policy } = this.#world;
    const tick = (): void => {
      this.#client?.trackLocation(this.#position());
      scheduler.after(policy.positionIntervalMs, tick);
    };
    scheduler.after(policy.positionIntervalMs * this.#random.next(), tick);
  }

  /** Takes no more rides from then on, wall milliseconds from now. */
  endShiftIn(ms: number): void {
    this.#world.scheduler.after(ms, () => {
      this.#shiftIsOver = true;
      if (this.#job === null) this.#goHome();
    });
  }

  #goHome(): void {
    if (!this.#onDuty) return;
    this.#onDuty = false;
    this.#background(
      'offline',
      this.#persist('offline', (client) => client.offline()),
    );
  }

  end(): void {
    this.#ended = true;
    this.#client?.close();
    this.#client = null;
  }

  async #startApp(): Promise<void> {
    const client = this.#world.openClient(this.id, {
      state: (state) => this.#takeState(state),
      offer: (offer) => this.#consider(offer),
      offerWithdrawn: ({ offerId }) => this.#clear(offerId),
      assignment: (ride) => this.#take(ride),
      rideCancelled: (news) => this.#rideCancelled(news),
      disconnected: (reason) => this.#world.tally.failed('connection', reason),
    });
    this.#client = client;
    client.connect();
    await this.#persist('online', (current) => current.online());
    this.#onDuty = true;
    await this.#persist('location', (current) => current.location(this.#position()));
  }

  // --- what the service says

  #takeState(state: DriverState): void {
    // Away for too long: the service took this driver out of the line.
    if (state.status === 'offline' && this.#onDuty && this.#client !== null) {
      this.#background('online', this.#client.online());
      this.#client.trackLocation(this.#position());
    }
    const assigned = state.assignment;
    const job = this.#job;
    if (job !== null && assigned === null && !job.completing) this.#background('ride', this.#recheck(job));
    if (assigned !== null && assigned.rideId !== job?.rideId) this.#begin(assigned, assigned.rideStatus);
  }

  #rideCancelled({ rideId, reasonCode, source }: RideCancelled): void {
    const { ledger, tally, policy } = this.#world;
    const isTaken = source === 'system' && (reasonCode === 'stalled' || reasonCode === 'replaced');
    if (isTaken) tally.taken[reasonCode] = (tally.taken[reasonCode] ?? 0) + 1;
    // The ride itself goes on: without a driver, or with a better one. A driver who gave it back knows.
    if (isTaken && reasonCode === 'stalled') ledger.searchingAgain(rideId, policy.patienceMs);
    if (!isTaken && source !== 'driver') ledger.ended(rideId, 'cancelled');
    if (this.#job?.rideId === rideId) this.#leave(this.#job);
  }

  // --- offers

  #consider(offer: ShownOffer): void {
    const { scheduler, ledger, tally, rates, speedup } = this.#world;
    tally.offersSeen++;
    ledger.offered(offer.rideId);
    const lapse = scheduler.at(offer.decideByMs, () => this.#clear(offer.offerId));
    this.#screen.set(offer.offerId, { answer: null, lapse, rideId: offer.rideId });

    const plan = planAnswer(rates, this.#random);
    if (plan.fault !== null) tally.fault(plan.fault);
    if (plan.slow) tally.fault('slow');
    const windowMs = Math.max(0, offer.decideByMs - scheduler.now());
    const thinkMs = Math.min(plan.thinkMs / speedup, windowMs * (plan.slow ? WINDOW_SHARE_SLOW : WINDOW_SHARE));
    this.#carryOut(plan, offer, thinkMs, windowMs);
  }

  #carryOut(plan: AnswerPlan, offer: ShownOffer, thinkMs: number, windowMs: number): void {
    const awayMs = plan.awayMs / this.#world.speedup;
    const accept = (): void => this.#background('accept', this.#accept(offer, plan));
    switch (plan.fault) {
      case 'declines':
        return this.#answerIn(thinkMs, offer, () => this.#background('decline', this.#decline(offer)));
      case 'ignores':
        return;
      case 'answersLate':
        // Not among the answers that a withdrawal takes back: the driver taps on what is no longer there.
        this.#world.scheduler.after(windowMs * (1.1 + plan.when), accept);
        return;
      case 'disconnects':
        return this.#answerIn(thinkMs, offer, () => {
          // Before the answer, or between it and its receipt: either way it goes out (again) on coming back.
          if (plan.when < 0.5) this.#client?.interrupt(awayMs);
          accept();
          if (plan.when >= 0.5) this.#client?.interrupt(awayMs);
        });
      case 'crashes':
        return this.#answerIn(thinkMs * plan.when, offer, () => this.#crash(awayMs));
      case 'answersTwice':
        return this.#answerIn(thinkMs, offer, () => {
          accept();
          accept();
        });
      default:
        return this.#answerIn(thinkMs, offer, accept);
    }
  }

  #answerIn(delayMs: number, offer: ShownOffer, answer: () => void): void {
    const shown = this.#screen.get(offer.offerId);
    if (shown !== undefined) shown.answer = this.#world.scheduler.after(delayMs, answer);
  }

  /** Takes an offer off the screen, with the answer that hasn't been given. */
  #clear(offerId: string): void {
    const shown = this.#screen.get(offerId);
    if (shown === undefined) return;
    this.#screen.delete(offerId);
    shown.answer?.cancel();
    shown.lapse.cancel();
    this.#world.ledger.offerEnded(shown.rideId);
  }

  async #decline(offer: ShownOffer): Promise<void> {
    this.#clear(offer.offerId);
    await this.#persist('decline', (client) => client.decline(offer, 'too_far'));
  }

  async #accept(offer: ShownOffer, plan: AnswerPlan): Promise<void> {
    const { scheduler, tally } = this.#world;
    const sentMs = scheduler.now();
    const accepted = await this.#persist('accept', (client) => client.accept(offer));
    this.#clear(offer.offerId);
    if (accepted === null) return;
    // The connection that we cut ourselves says nothing about the service.
    if (plan.fault !== 'disconnects') tally.confirmMs.push(scheduler.now() - sentMs);
    const { pickup, dropoff } = offer;
    this.#dawdleMs = plan.fault === 'dawdles' ? plan.awayMs / this.#world.speedup : 0;
    this.#take({ ...accepted, pickup, dropoff });
    if (plan.fault === 'cancels') this.#planToCancel(offer.rideId, plan.when);
  }

  #planToCancel(rideId: string, when: number): void {
    const { scheduler } = this.#world;
    const onTheWayMs = this.#leg.arriveMs - scheduler.now();
    scheduler.after(Math.max(0, onTheWayMs * when), () => {
      if (this.#job?.rideId === rideId) this.#background('cancel', this.#cancel(this.#job));
    });
  }

  async #cancel(job: Job): Promise<void> {
    const done = await this.#persist('cancel', async (client) => {
      await client.cancel(job.rideId, 'vehicle_problem');
      return true;
    });
    if (done === null) return;
    const { ledger, policy } = this.#world;
    ledger.searchingAgain(job.rideId, policy.patienceMs);
    this.#leave(job);
  }

  #crash(awayMs: number): void {
    const { scheduler } = this.#world;
    // Without a word first: a dying app doesn't say goodbye.
    this.#client?.interrupt(awayMs);
    this.#client?.close();
    this.#client = null;
    this.#onDuty = false;
    for (const offerId of this.#screen.keys()) this.#clear(offerId);
    if (this.#job !== null) this.#leave(this.#job);
    scheduler.after(awayMs, () => this.#background('restart', this.#startApp()));
  }

  // --- the ride

  /** News of an assignment, from the answer to an accept or from the service; usually both. */
  #take(ride: AssignedRide): void {
    if (ride.fence > this.#fence) this.#begin(ride, 'assigned');
  }

  /** The service's state doesn't have our ride: is it over, or was the state older news than the ride? */
  async #recheck(job: Job): Promise<void> {
    const known = await this.#persist('ride', () => this.#world.readRide(job.rideId));
    if (known === null || this.#job !== job) return;
    if (known.status === 'assigned' || known.status === 'driver_arrived' || known.status === 'in_progress') return;
    this.#world.ledger.doubtful(job.rideId);
    this.#leave(job);
  }

  #begin({ rideId, offerId, fence, pickup, dropoff }: AssignedRide, status: RideStatus): void {
    if (this.#job !== null) this.#leave(this.#job);
    this.#fence = fence;
    const job: Job = { rideId, pickup, dropoff, completing: false, next: null };
    if (status === 'assigned') {
      if (this.#etaOfferId !== offerId)
        this.#world.tally.pickupEtaS.push((this.#etaMs(pickup) * this.#world.speedup) / 1000);
      this.#etaOfferId = offerId;
      this.#driveToPickup(job);
    }
    if (status === 'driver_arrived') this.#board(job);
    if (status === 'in_progress') this.#driveToDropoff(job);
  }

  #driveToPickup(job: Job): void {
    const afterMs = this.#dawdleMs;
    this.#dawdleMs = 0;
    const arrived = async (): Promise<void> => {
      if ((await this.#step(job, 'arrive')) && this.#job === job) this.#board(job);
    };
    this.#drive(job, 'assigned', job.pickup, this.#etaMs(job.pickup), arrived, afterMs);
  }

  #board(job: Job): void {
    this.#job = job;
    const boardingMs = this.#random.logNormal(BOARDING_MEDIAN_MS, BOARDING_SIGMA) / this.#world.speedup;
    if (this.#world.ledger.get(job.rideId).isNoShow) {
      // Waits until the service has had enough.
      const { noShowAfterMs } = this.#world.policy;
      return this.#world.ledger.underWay(job.rideId, 'driver_arrived', this.#quietMs(noShowAfterMs));
    }
    this.#world.ledger.underWay(job.rideId, 'driver_arrived', this.#quietMs(boardingMs));
    this.#next(job, boardingMs, async () => {
      if ((await this.#step(job, 'start')) && this.#job === job) this.#driveToDropoff(job);
    });
  }

  #driveToDropoff(job: Job): void {
    const recordedMs = this.#world.ledger.get(job.rideId).trip?.driveMs ?? null;
    const driveMs = recordedMs === null ? this.#etaMs(job.dropoff) : recordedMs / this.#world.speedup;
    this.#drive(job, 'in_progress', job.dropoff, driveMs, async () => {
      job.completing = true;
      // First where, then that: whoever looks for a driver next shall find this one where he is.
      this.#client?.trackLocation(this.#position());
      if (!(await this.#step(job, 'complete'))) return;
      this.#world.ledger.ended(job.rideId, 'completed');
      this.#leave(job);
    });
  }

  #drive(
    job: Job,
    status: 'assigned' | 'in_progress',
    to: Point,
    driveMs: number,
    arrived: () => Promise<void>,
    afterMs = 0,
  ): void {
    this.#job = job;
    const departMs = this.#world.scheduler.now() + afterMs;
    this.#leg = { from: this.#position(), to, departMs, arriveMs: departMs + driveMs };
    this.#world.ledger.underWay(job.rideId, status, this.#quietMs(afterMs + driveMs));
    this.#next(job, afterMs + driveMs, arrived);
  }

  #next(job: Job, delayMs: number, act: () => Promise<void>): void {
    job.next = this.#world.scheduler.after(delayMs, () => {
      if (this.#job === job) this.#background('ride', act());
    });
  }

  /** Asks for a step until it is granted. When refused, the ride isn't ours any more: the driver is free. */
  async #step(job: Job, command: 'arrive' | 'start' | 'complete'): Promise<boolean> {
    const granted = await this.#persist(command, async (client) => {
      await client[command](job.rideId);
      return true;
    });
    if (granted === true) return true;
    this.#world.ledger.doubtful(job.rideId);
    this.#leave(job);
    return false;
  }

  #leave(job: Job): void {
    if (this.#job !== job) return;
    job.next?.cancel();
    this.#job = null;
    this.#leg = parkedAt(this.#position());
    if (this.#shiftIsOver) this.#goHome();
  }

  // --- means

  /**
   * Asks again while there is no answer, beyond what the client itself repeats: a service that is away for a minute
   * doesn't make a driver forget the rider in the car. Null when refused, or when this app has ended meanwhile.
   */
  async #persist<Data>(command: string, ask: (client: DriverClient) => Promise<Data>): Promise<Data | null> {
    const client = this.#client;
    for (let tries = 0; client !== null && tries < STEP_TRIES_MAX; tries++) {
      try {
        return await ask(client);
      } catch (error) {
        if (this.#ended || client !== this.#client) return null;
        this.#world.tally.failed(command, error);
        if (!isTransient(error)) return null;
      }
      await this.#world.scheduler.pause(STEP_PAUSE_MS);
    }
    return null;
  }

  #background(command: string, work: Promise<unknown>): void {
    work
      .catch((error: unknown) => {
        if (!this.#ended) this.#world.tally.failed(command, error);
      })
      .catch(this.#world.failed);
  }

  #position(): Point {
    return positionAt(this.#leg, this.#world.scheduler.now());
  }

  /** Wall milliseconds. */
  #etaMs(to: Point): number {
    return this.#world.travel.etaS(this.#position(), to) * 1000;
  }

  /** How long the rider waits for news of a step before asking: its time, and as much again for the network. */
  #quietMs(stepMs: number): number {
    return 2 * stepMs + 2 * STEP_PAUSE_MS;
  }
}
