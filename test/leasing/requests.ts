/**
 * Requests to a region, and what the specification says to them. A region's things have the ids of a `Cast`: two regions
 * with the same cast have the same ids, so that a statement which forgets its region is found out.
 */
import { LeaseStore, type Answer } from '../../domain/lease-store.ts';
import { defaultPolicy } from '../../domain/policy.ts';
import type { RideStep } from '../../domain/ride.ts';
import { newId } from '../../src/leasing/ids.ts';
import { DRIVERS, ITS_OWN, RIDES, type Command } from './commands.ts';

/** Long enough that only the test ends them. */
export const TERMS = {
  ...defaultPolicy,
  policyVersion: 1,
  parallelOffers: 2,
  offersMax: 4,
  deliveryTtlMs: 600_000,
  decisionTtlMs: 1_200_000,
  maxLifetimeMs: 7_200_000,
  patienceMs: 3_600_000,
  givebacksMax: 1,
  noShowAfterMs: 3_600_000,
  holdMs: 3_600_000,
};
export const PATIENCE_MS = 3_600_000;

interface OfRide {
  readonly rideId: string;
}
interface OfDriver {
  readonly driverId: string;
}
export interface NewOffer extends OfRide, OfDriver {
  readonly offerId: string;
  readonly token: string;
  readonly seenExclusions?: number;
}

export type Request =
  | (NewOffer & { readonly kind: 'lease' | 'assign' })
  | {
      readonly kind: 'receive' | 'confirm' | 'decline' | 'release';
      readonly offerId: string;
      readonly token: string;
      readonly driverId: string | null;
    }
  | { readonly kind: 'sweep' | 'cancelNoShows' }
  | (OfRide & { readonly kind: 'cancel'; readonly riderId: string | null })
  | (OfRide & OfDriver & { readonly kind: 'driverCancel'; readonly source: 'driver' | 'operator' })
  | (NewOffer & { readonly kind: 'reassign'; readonly fromDriverId: string; readonly by: 'operator' | 'system' })
  | (OfRide & { readonly kind: 'hold' | 'releaseHold' | 'lift' })
  | (OfRide & { readonly kind: 'flag'; readonly offerId: string; readonly isStalled: boolean })
  | (OfRide & { readonly kind: 'replaceStalled'; readonly offerId: string })
  | (OfRide & OfDriver & { readonly kind: 'advance'; readonly step: RideStep })
  | (OfDriver & { readonly kind: 'online' | 'offline' })
  | (OfRide & { readonly kind: 'settle'; readonly rescueMs: number })
  | (OfDriver & { readonly kind: 'lapse' | 'lookEarly' })
  | (OfDriver & { readonly kind: 'block'; readonly isBlocked: boolean })
  | (OfRide & { readonly kind: 'outlastHold' | 'outlastWait' | 'outlastPatience' });

/** What was answered. */
export interface Outcome {
  readonly refused: string | null;
  readonly applied: boolean;
  /** Of a granted lease or assignment. */
  readonly fence: number | null;
  /** The offers that ended with it beside the one it names, and a driver whom a cancelled ride set free; of no-shows the rides. */
  readonly touched: readonly string[];
}

export const done = (applied: boolean, touched: readonly string[] = []): Outcome => ({
  refused: null,
  applied,
  fence: null,
  touched: touched.toSorted(),
});

/** The ids of a region's things, made when they are first asked for, in ascending order. */
export class Cast {
  readonly #region: number;
  readonly offers: string[] = [];
  #madeAtMs = Date.now();
  readonly rides: readonly string[];
  readonly drivers: readonly string[];

  constructor(region: number) {
    this.#region = region;
    this.rides = Array.from({ length: RIDES + 1 }, () => this.#next());
    this.drivers = Array.from({ length: DRIVERS + 1 }, () => `driver-${this.#next()}`);
  }

  #next(): string {
    return newId(this.#region, this.#madeAtMs++);
  }

  offer(number: number): string {
    while (this.offers.length <= number) this.offers.push(this.#next());
    return this.offers[number]!;
  }
}

/** A region as it is specified. */
export class Specified {
  store = new LeaseStore();
  readonly cast: Cast;
  #asked = 0;

  constructor(cast: Cast) {
    this.cast = cast;
    for (const id of this.rides) this.store.requestRide(id, 'rider', PATIENCE_MS);
    for (const id of this.drivers) {
      this.store.registerDriver(id);
      this.store.bringOnline(id);
    }
  }

  /** Those that are there. */
  get rides(): readonly string[] {
    return this.cast.rides.slice(0, RIDES);
  }

  get drivers(): readonly string[] {
    return this.cast.drivers.slice(0, DRIVERS);
  }

  /** A command as a request that names things by their ids; null: it makes no sense now. */
  resolve(asked: Command): Request | null {
    const rideId = 'ride' in asked ? this.cast.rides[asked.ride]! : '';
    const driverId = 'driver' in asked ? this.#driver(asked.driver, rideId) : '';
    switch (asked.kind) {
      case 'assign':
      case 'lease':
        return { kind: asked.kind, rideId, driverId, ...this.#newOffer(), ...this.#seen(rideId, asked.seen) };
      case 'reassign': {
        const to = this.cast.drivers[asked.to]!;
        if (to === driverId) return null;
        return { kind: 'reassign', rideId, fromDriverId: driverId, driverId: to, ...this.#newOffer(), by: asked.by };
      }
      case 'receive':
      case 'confirm':
      case 'decline':
      case 'release':
        return this.#claim(asked);
      case 'cancel':
        return { kind: 'cancel', rideId, riderId: asked.by };
      case 'driverCancel':
        return { kind: 'driverCancel', rideId, driverId, source: asked.source };
      case 'advance':
        return { kind: 'advance', rideId, driverId, step: asked.step };
      case 'flag':
        return { kind: 'flag', rideId, offerId: this.#offer(asked.offer).id, isStalled: asked.isStalled };
      case 'replaceStalled':
        return { kind: 'replaceStalled', rideId, offerId: this.#offer(asked.offer).id };
      case 'settle':
        return { kind: 'settle', rideId, rescueMs: asked.rescueMs };
      case 'block':
        return { kind: 'block', driverId, isBlocked: asked.isBlocked };
      case 'sweep':
      case 'cancelNoShows':
        return { kind: asked.kind };
      case 'online':
      case 'offline':
      case 'lookEarly':
        return { kind: asked.kind, driverId };
      case 'lapse': {
        const leased = this.drivers.filter((id) => this.store.drivers.get(id)!.status === 'leased');
        const lapsed = leased.find((id) => id >= driverId) ?? leased[0];
        return lapsed === undefined ? null : { kind: 'lapse', driverId: lapsed };
      }
      case 'outlastHold': {
        const held = this.rides.find((id) => this.store.rides.get(id)!.heldUntilMs !== null);
        return held === undefined ? null : { kind: asked.kind, rideId: held };
      }
      case 'outlastWait': {
        const waits = this.rides.find((id) => this.store.rides.get(id)!.status === 'driver_arrived');
        return waits === undefined ? null : { kind: asked.kind, rideId: waits };
      }
      case 'outlastPatience':
        return this.store.rides.has(rideId) ? { kind: asked.kind, rideId } : null;
      case 'hold':
      case 'releaseHold':
      case 'lift':
        return { kind: asked.kind, rideId };
      default:
        return asked satisfies never;
    }
  }

  #driver(number: number, rideId: string): string {
    if (number !== ITS_OWN) return this.cast.drivers[number]!;
    return this.store.rides.get(rideId)?.assignment?.driverId ?? this.cast.drivers[0]!;
  }

  #newOffer(): { offerId: string; token: string } {
    const offerId = this.cast.offer(this.#asked++);
    return { offerId, token: `token of ${offerId}` };
  }

  /** The newest is 0; one that isn't there has an id, too. */
  #offer(number: number): { id: string; driverId: string | null } {
    const made = [...this.store.offers.values()].at(-1 - number);
    return made ?? { id: this.cast.rides.at(-1)!, driverId: null };
  }

  /** How much of a ride's exclusions a matcher had read. */
  #seen(rideId: string, how: 'none' | 'some' | 'all' | null): { seenExclusions?: number } {
    const count = this.store.rides.get(rideId)?.exclusions.length ?? 0;
    if (how === null) return {};
    return { seenExclusions: { none: 0, some: count >> 1, all: count }[how] };
  }

  #claim({ kind, offer, token, by }: Extract<Command, { token: string }>): Request {
    const { id: offerId, driverId: owner } = this.#offer(offer);
    const driverId = by === 'holder' ? null : by === 'driver' ? (owner ?? 'nobody') : 'a stranger';
    return { kind, offerId, token: token === 'own' ? `token of ${offerId}` : 'guessed', driverId };
  }
}

/** The store as it is now, to go on from it in another way. */
export function copyOf(store: LeaseStore): LeaseStore {
  const copy = new LeaseStore();
  for (const [id, ride] of store.rides) copy.rides.set(id, ride);
  for (const [id, driver] of store.drivers) copy.drivers.set(id, driver);
  for (const [id, offer] of store.offers) copy.offers.set(id, offer);
  for (const pair of store.blocks) copy.blocks.add(pair);
  return copy;
}

/**
 * Does to the specification what was asked, and says what the answer has to be. A sweep and its like leave out what others
 * hold: given what it touched, the specification touches nothing else.
 */
export function specify(store: LeaseStore, asked: Request, atMs: number, touched?: readonly string[]): Outcome {
  const isOpen = (id: string): boolean => store.offers.get(id)!.status === 'pending';
  const openBefore = [...store.offers.keys()].filter(isOpen);
  const named = 'offerId' in asked ? asked.offerId : null;
  const said = (answer: Answer): Outcome => {
    const ended = openBefore.filter((id) => id !== named && !isOpen(id));
    const isGrant = ['lease', 'assign', 'reassign', 'confirm'].includes(asked.kind) && answer.refused === null;
    const fence = isGrant ? (store.offers.get(named!)?.fence ?? null) : null;
    return { ...answer, fence, touched: ended.toSorted() };
  };
  switch (asked.kind) {
    case 'lease':
      return said(store.lease(asked, TERMS, atMs));
    case 'assign':
      return said(store.assign(asked, TERMS, atMs));
    case 'reassign':
      return said(store.reassign(asked.fromDriverId, asked, TERMS, atMs, asked.by));
    case 'receive':
      return said(store.receive(asked, atMs));
    case 'confirm':
      return said(store.confirm(asked, atMs));
    case 'decline':
      return said(store.giveBackOffer(asked, 'declined', atMs));
    case 'release':
      return said(store.giveBackOffer(asked, 'withdrawn', atMs));
    case 'cancel': {
      const freed = store.rides.get(asked.rideId)?.assignment?.driverId ?? null;
      const outcome = said(store.cancel(asked.rideId, asked.riderId));
      return outcome.applied && freed !== null ? { ...outcome, touched: [...outcome.touched, freed] } : outcome;
    }
    case 'driverCancel':
      return said(store.driverCancel(asked.rideId, asked.driverId, atMs, TERMS));
    case 'advance':
      return said(store.advance(asked.rideId, asked.driverId, asked.step, atMs + TERMS.noShowAfterMs));
    case 'online':
      return said(store.bringOnline(asked.driverId));
    case 'offline':
      return said(store.takeOffline(asked.driverId));
    case 'hold':
      return said(store.hold(asked.rideId, TERMS, atMs));
    case 'releaseHold':
      return said(store.releaseHold(asked.rideId, atMs));
    case 'sweep': {
      const ended = expire(store, atMs, touched);
      return done(ended.length > 0, ended);
    }
    case 'cancelNoShows': {
      const over = touched === undefined ? store.cancelNoShows(atMs) : touched.filter((id) => cancelNoShow(id));
      return done(over.length > 0, over);
    }
    case 'replaceStalled':
      return done(store.replaceStalled(asked.rideId, asked.offerId, atMs, TERMS));
    case 'flag':
      return changes(store, asked.rideId, () => store.flagPickup(asked.rideId, asked.offerId, asked.isStalled));
    case 'lift':
      return changes(store, asked.rideId, () => store.lift(asked.rideId, atMs));
    case 'settle': {
      const terms = { offersMax: TERMS.offersMax, rescueMs: asked.rescueMs };
      return changes(store, asked.rideId, () => store.settle(asked.rideId, terms, atMs));
    }
    default:
      return befall(store, asked, atMs);
  }

  function cancelNoShow(id: string): boolean {
    const dueAtMs = store.rides.get(id)?.noShowAtMs ?? null;
    return dueAtMs !== null && dueAtMs <= atMs && store.cancel(id, null).applied;
  }
}

function changes(store: LeaseStore, rideId: string, run: () => void): Outcome {
  const before = store.rides.get(rideId);
  run();
  return done(store.rides.get(rideId) !== before);
}

/** `only`: others hold the rest. */
function expire(store: LeaseStore, atMs: number, only: readonly string[] | undefined): string[] {
  if (only === undefined) return store.expire(atMs);
  const held = [...store.drivers.values()].filter(
    (driver) => driver.status === 'leased' && !only.includes(driver.term.offerId),
  );
  for (const driver of held)
    if (driver.status === 'leased')
      store.drivers.set(driver.id, { ...driver, term: { ...driver.term, expiresAtMs: Infinity } });
  const ended = store.expire(atMs);
  for (const driver of held) store.drivers.set(driver.id, driver);
  return ended;
}

/** What comes over the region by itself. */
function befall(store: LeaseStore, what: Request, atMs: number): Outcome {
  const driver = 'driverId' in what ? store.drivers.get(what.driverId ?? '') : undefined;
  const ride = 'rideId' in what ? store.rides.get(what.rideId) : undefined;
  if (what.kind === 'lapse' && driver?.status === 'leased')
    store.drivers.set(driver.id, { ...driver, term: { ...driver.term, expiresAtMs: atMs - 1 } });
  if (what.kind === 'outlastHold') store.rides.set(ride!.id, { ...ride!, heldUntilMs: atMs });
  if (what.kind === 'outlastWait') store.rides.set(ride!.id, { ...ride!, noShowAtMs: atMs });
  if (what.kind === 'outlastPatience') store.rides.set(ride!.id, { ...ride!, patienceUntilMs: atMs });
  if (what.kind === 'block') store.blocks[what.isBlocked ? 'add' : 'delete'](`rider ${what.driverId}`);
  return done(true);
}

export interface Asked {
  readonly request: Request;
  readonly outcome: Outcome;
  /** In steps of one run: what was answered before another was asked came before it. */
  readonly sentAt: number;
  readonly answeredAt: number;
}

const NEVER_WAIT: ReadonlySet<Request['kind']> = new Set([
  'sweep',
  'cancelNoShows',
  'replaceStalled',
  'flag',
  'lift',
  'settle',
]);

/** Somebody else held what it asked for: nothing was done. */
const changedNothing = ({ request, outcome }: Asked): boolean =>
  outcome.refused === 'busy' || (NEVER_WAIT.has(request.kind) && !outcome.applied);

const isEqual = (a: Outcome, b: Outcome): boolean =>
  a.refused === b.refused && a.applied === b.applied && a.fence === b.fence && a.touched.join() === b.touched.join();

/** Every end that an order of these requests, one after the other, leads to with the answers that were given. */
export function* explanations(store: LeaseStore, asked: readonly Asked[], atMs: number): Generator<LeaseStore> {
  const open = asked.filter((each) => !changedNothing(each));
  if (open.length === 0) {
    yield store;
    return;
  }
  for (const next of open) {
    if (open.some((other) => other.answeredAt < next.sentAt)) continue;
    const copy = copyOf(store);
    const outcome = specify(copy, next.request, atMs, next.outcome.touched);
    const rest = open.filter((each) => each !== next);
    if (isEqual(outcome, next.outcome)) yield* explanations(copy, rest, atMs);
  }
}
