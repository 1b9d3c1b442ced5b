/**
 * The matching step of a round: which of the available drivers gets an offer of which waiting ride.
 *
 * Both ways to match start from each ride's candidates: the `candidatesMax` eligible drivers nearest to its pickup by
 * great circle. Eligible is a driver who suits the ride (eligibility.ts), within its search radius (great circle), and with
 * a way to the pickup.
 */
import { problemOf, solveAssignment } from './assignment-problem.ts';
import { type DriverProfile, type Needs, UNSUITABLE, unsuitability, type Unsuitable } from './eligibility.ts';
import { greatCircleM } from './geo.ts';
import { allot, type Allotment } from './matching/allotment.ts';
import { DriverTree, nearestOfAll } from './matching/driver-tree.ts';
import { byText, type Cab, type Fleet, type Rank } from './matching/fleet.ts';
import type { TravelTime } from './travel-time.ts';

export interface WaitingRide extends Needs {
  readonly rideId: string;
  readonly searchRadiusM: number;
  /** How many more offers it may hold now. */
  readonly places: number;
  readonly queuedAtMs: number;
}

export interface Pairing {
  readonly rideId: string;
  readonly driverId: string;
  readonly pickupEtaS: number;
}

export interface MatchingContext {
  readonly travelTime: TravelTime;
  readonly candidatesMax: number;
}

/**
 * Every pairing is eligible, a driver is in one at most, a ride in `places` at most, with a different driver each.
 * Rides and drivers have distinct ids. The result depends on what is given, not on its order; it is in the order of
 * the rides' waiting (equal ones by id), the pairings of one ride by ETA. Pure.
 */
export type Matching = (rides: readonly WaitingRide[], fleet: Fleet, context: MatchingContext) => Pairing[];

export const matchings: { readonly nearest: Matching; readonly batch: Matching } = {
  /**
   * Each ride, longest waiting first, takes its nearest free driver by ETA (equally near: by id). Second places are
   * given when every ride has had its first, and so on: nobody's only driver goes to another ride as its spare.
   */
  nearest(rides, fleet, context) {
    const { seekers } = openRound(rides, fleet, context);
    return seekers.flatMap((seeker) => pairingsOf(seeker, seeker.greedy));
  },

  /**
   * The pairing that serves the most rides, then the most second places, and so on, and among those takes the least
   * total ETA: exactly, over the candidates of each ride, the driver `nearest` would have given it, and, where many rides
   * have the same few candidates, the drivers allotted to it (allotment.ts). It never pairs fewer than `nearest`, nor as
   * many at a higher cost (place by place).
   */
  batch(rides, fleet, context) {
    const { seekers, pool } = openRound(rides, fleet, context);
    const cheapest = cheapestOf(seekers, pool);
    return seekers.flatMap((seeker) => pairingsOf(seeker, cheapest.get(seeker) ?? []));
  },
};

interface Candidate {
  readonly cab: Cab;
  readonly etaS: number;
}

/** A ride in a round. */
interface Seeker {
  readonly ride: WaitingRide;
  /** By ETA, then by id. */
  readonly candidates: readonly Candidate[];
  /** More eligible drivers may exist, farther away. */
  readonly cutOff: boolean;
  /** What it takes when the rides choose one after another. */
  readonly greedy: Candidate[];
  /** All of its candidates were taken before it had enough, and there may be more drivers. */
  crowdedOut: boolean;
}

/** The rides in the order of waiting, each with its candidates and with whom it takes when they choose one after another. */
function openRound(
  rides: readonly WaitingRide[],
  fleet: Fleet,
  context: MatchingContext,
): { seekers: Seeker[]; pool: Pool } {
  const pool = new Pool(fleet, context);
  const waiting = rides.toSorted((a, b) => a.queuedAtMs - b.queuedAtMs || byText(a.rideId, b.rideId));
  const seekers = waiting.map((ride): Seeker => ({ ride, ...pool.candidates(ride), greedy: [], crowdedOut: false }));
  takeNearest(seekers, pool);
  return { seekers, pool };
}

/** A fleet in a round; who is taken is nobody's candidate any more. */
class Pool {
  readonly #fleet: Fleet;
  readonly #context: MatchingContext;
  /** By number. */
  readonly #isTaken: Uint8Array;
  readonly #ranks: Map<string, Rank & { taken: number }>;

  constructor(fleet: Fleet, context: MatchingContext) {
    this.#fleet = fleet;
    this.#context = context;
    this.#isTaken = new Uint8Array(fleet.cabs.length);
    this.#ranks = new Map([...fleet.ranks].map(([vehicleClass, rank]) => [vehicleClass, { ...rank, taken: 0 }]));
  }

  isTaken(cab: Cab): boolean {
    return this.#isTaken[cab.number] === 1;
  }

  take(cab: Cab): void {
    this.#isTaken[cab.number] = 1;
    const rank = this.#ranks.get(cab.vehicleClass)!;
    rank.taken += 1;
    if (rank.taken * 2 < rank.cabs.length) return;
    // Where most are taken, looking for the others goes far.
    const cabs = rank.cabs.filter((each) => !this.isTaken(each));
    this.#ranks.set(cab.vehicleClass, { cabs, tree: new DriverTree(cabs), taken: 0 });
  }

  /** The nearest eligible drivers who aren't taken yet. */
  candidates(ride: WaitingRide): Pick<Seeker, 'candidates' | 'cutOff'> {
    const found = this.#nearest(ride);
    const candidates = found.flatMap((cab) => this.#reaching(ride, cab) ?? []).sort(byEta);
    return { candidates, cutOff: found.length === this.#context.candidatesMax };
  }

  /** One more than the highest number. */
  get size(): number {
    return this.#fleet.cabs.length;
  }

  /** Which drivers could be spared for each of these rides, taken or not; all by their numbers. */
  allot(rides: readonly WaitingRide[]): Allotment {
    const { drivers } = this.#fleet;
    const { allotted, expected } = allot(rides, drivers, this.#context.travelTime);
    if (drivers.length === this.size) return { allotted, expected };
    const price = new Float64Array(this.size);
    for (const [nth, { number }] of drivers.entries()) price[number] = expected.price[nth]!;
    return {
      allotted: allotted.map((some) => some.map((nth) => drivers[nth]!.number)),
      expected: { ...expected, price },
    };
  }

  /** This driver, if he is eligible, taken or not. */
  candidate(ride: WaitingRide, number: number): Candidate | null {
    const cab = this.#fleet.cabs[number]!;
    const isNear = greatCircleM(ride.pickup, cab.position) <= ride.searchRadiusM;
    const isEligible = isNear && unsuitability(ride, cab, this.#context.travelTime) === null;
    return isEligible ? this.#reaching(ride, cab) : null;
  }

  /** Null where there is no way. */
  #reaching(ride: WaitingRide, cab: Cab): Candidate | null {
    const etaS = this.#context.travelTime.etaS(cab.position, ride.pickup);
    return etaS < Infinity ? { cab, etaS } : null;
  }

  #nearest(ride: WaitingRide): Cab[] {
    const { pickup, searchRadiusM, vehicleClasses } = ride;
    const { travelTime, candidatesMax } = this.#context;
    const accepts = (cab: Cab): boolean =>
      !this.isTaken(cab) && this.#fleet.isFree(cab) && unsuitability(ride, cab, travelTime) === null;
    const trees = vehicleClasses.flatMap((vehicleClass) => this.#ranks.get(vehicleClass)?.tree ?? []);
    return nearestOfAll(trees, pickup, searchRadiusM, candidatesMax, accepts);
  }
}

function byEta(a: Candidate, b: Candidate): number {
  return a.etaS - b.etaS || a.cab.number - b.cab.number;
}

/** Lets the rides choose one after another, place by place. */
function takeNearest(seekers: readonly Seeker[], pool: Pool): void {
  let choosing = seekers;
  // Ends after as many places as there are drivers at the latest: whoever goes on has just taken one.
  for (let place = 1; choosing.length > 0; place++) {
    choosing = choosing.filter((seeker) => {
      const candidate = seeker.ride.places >= place ? nearestFree(seeker, pool) : undefined;
      if (!candidate) return false;
      pool.take(candidate.cab);
      seeker.greedy.push(candidate);
      return true;
    });
  }
}

function nearestFree(seeker: Seeker, pool: Pool): Candidate | undefined {
  const { ride, candidates, cutOff } = seeker;
  const candidate = candidates.find(({ cab }) => !pool.isTaken(cab));
  if (candidate || !cutOff) return candidate;
  seeker.crowdedOut = true;
  return pool.candidates(ride).candidates[0];
}

/** One place of a ride, and who may fill it. */
interface Place {
  readonly seeker: Seeker;
  readonly tier: number;
  readonly options: readonly Candidate[];
  /** 1: its ride is expected to find nobody. */
  readonly expectedOut: number;
}

/** What each ride takes in the cheapest pairing overall. */
function cheapestOf(seekers: readonly Seeker[], pool: Pool): Map<Seeker, Candidate[]> {
  const allotment = isCrowded(seekers) ? pool.allot(seekers.map(({ ride }) => ride)) : null;
  const places = seekers.flatMap((seeker, nth) => {
    const options = optionsOf(seeker, allotment?.allotted[nth] ?? [], pool);
    const expectedOut = allotment?.expected.leftOut[nth] ?? 0;
    const count = Math.min(seeker.ride.places, options.length);
    return Array.from({ length: count }, (_, earlier): Place => ({ seeker, tier: earlier + 1, options, expectedOut }));
  });
  const { drivers, columnOf } = columnsOf(places, pool.size);
  const problem = problemOf(
    places.map(({ options }) => options),
    drivers.length,
    ({ cab }) => columnOf[cab.number]!,
    ({ etaS }) => etaS,
  );
  const tier = Int32Array.from(places, (place) => place.tier);
  const leftOut = Uint8Array.from(places, ({ expectedOut }) => expectedOut);
  const priceOf = (number: number): number => allotment!.expected.price[number]!;
  const expected = allotment ? { price: Float64Array.from(drivers, priceOf), leftOut } : undefined;
  const { columnOfRow } = solveAssignment({ ...problem, tier, expected });
  const chosen = new Map<Seeker, Candidate[]>();
  for (const [row, { seeker, options }] of places.entries()) {
    const candidate = options.find(({ cab }) => columnOf[cab.number] === columnOfRow[row]);
    if (candidate) chosen.set(seeker, [...(chosen.get(seeker) ?? []), candidate]);
  }
  return chosen;
}

/** The drivers who may fill a place, in order, and which of them each is: a round that asks few of a large fleet pays for these. */
function columnsOf(places: readonly Place[], size: number): { drivers: number[]; columnOf: Int32Array } {
  const isOption = new Uint8Array(size);
  for (const { options } of places) for (const { cab } of options) isOption[cab.number] = 1;
  const drivers: number[] = [];
  const columnOf = new Int32Array(size);
  for (let number = isOption.indexOf(1); number >= 0; number = isOption.indexOf(1, number + 1))
    columnOf[number] = drivers.push(number) - 1;
  return { drivers, columnOf };
}

/** Where fewer of the rides (1.2 % of 5,000, with 15,000 drivers) looked beyond their candidates, `batch` was the optimum. */
const CROWDED_SHARE = 0.02;

function isCrowded(seekers: readonly Seeker[]): boolean {
  return seekers.filter(({ crowdedOut }) => crowdedOut).length > CROWDED_SHARE * seekers.length;
}

/** Its candidates, whom it took when the rides chose one after another, and who is allotted to it. */
function optionsOf({ ride, candidates, greedy }: Seeker, allotted: readonly number[], pool: Pool): Candidate[] {
  const options = [...candidates];
  const isNew = (number: number): boolean => options.every(({ cab }) => cab.number !== number);
  for (const taken of greedy) if (isNew(taken.cab.number)) options.push(taken);
  for (const number of allotted) {
    const candidate = isNew(number) ? pool.candidate(ride, number) : null;
    if (candidate) options.push(candidate);
  }
  return options;
}

function pairingsOf({ ride }: Seeker, chosen: readonly Candidate[]): Pairing[] {
  return chosen.toSorted(byEta).map(({ cab, etaS }) => ({
    rideId: ride.rideId,
    driverId: cab.driverId,
    pickupEtaS: etaS,
  }));
}

/**
 * Why a ride found nobody: no driver within its radius, suitable ones who went to other rides, or what kept most of
 * those near from being asked.
 */
export type NobodyFound = 'nobody_near' | 'taken' | Unsuitable;

/** Drivers looked at near each ride that found nobody. */
const NEAR_MAX = 50;

/** For each of these rides why; `lapsed` also when that keeps only some of those near, and nobody else would do. */
export function whyNobody(
  rides: readonly WaitingRide[],
  drivers: readonly DriverProfile[],
  { travelTime }: Pick<MatchingContext, 'travelTime'>,
): Map<string, NobodyFound> {
  if (rides.length === 0) return new Map();
  const tree = new DriverTree(drivers);
  return new Map(
    rides.map((ride) => {
      const near = tree.nearest(ride.pickup, ride.searchRadiusM, NEAR_MAX, () => true);
      const reasons = near.map((driver) => unsuitability(ride, driver, travelTime));
      return [ride.rideId, commonest(reasons)];
    }),
  );
}

function commonest(reasons: readonly (Unsuitable | null)[]): NobodyFound {
  if (reasons.length === 0) return 'nobody_near';
  if (reasons.includes(null)) return 'taken';
  if (reasons.includes('lapsed')) return 'lapsed';
  const counts = UNSUITABLE.map((reason) => reasons.filter((each) => each === reason).length);
  return UNSUITABLE[counts.indexOf(Math.max(...counts))]!;
}

/** How many of these rides somebody near would suit. */
export function countServable(
  rides: readonly WaitingRide[],
  drivers: readonly DriverProfile[],
  { travelTime }: Pick<MatchingContext, 'travelTime'>,
): number {
  if (rides.length === 0 || drivers.length === 0) return 0;
  const tree = new DriverTree(drivers);
  const suits = (ride: WaitingRide) => (driver: DriverProfile) => unsuitability(ride, driver, travelTime) === null;
  return rides.filter((ride) => tree.nearest(ride.pickup, ride.searchRadiusM, 1, suits(ride)).length > 0).length;
}

/** Which of these rides have as many drivers within their radius who suit them as could be candidates. */
export function haveCandidates(
  rides: readonly WaitingRide[],
  fleet: Fleet,
  context: MatchingContext,
): ReadonlySet<string> {
  const pool = new Pool(fleet, context);
  return new Set(rides.filter((ride) => pool.candidates(ride).cutOff).map(({ rideId }) => rideId));
}
