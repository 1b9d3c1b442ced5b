/**
 * Whom to ask besides the nearest. Where rides crowd together, all of them have the same few drivers near them; whoever else is
 * served is served from farther away, and it is cheapest when everybody in between moves up a little. Who that is shows from
 * above: neighbours count as one ride, or as one driver, until few are left; these are assigned. On the way down each level knows
 * its own nearest, and those behind what was best for its block one level above (a multiscale method; Schmitzer 2016).
 *
 * It only says where to look, and says it of blocks: whether a driver suits a ride is asked later.
 */
import { type Expectations, problemOf, solveAssignment } from '../assignment-problem.ts';
import type { Point } from '../geo.ts';
import type { TravelTime } from '../travel-time.ts';
import { DriverTree, nearestOfAll } from './driver-tree.ts';
import { halve } from './halves.ts';

/** A ride, or one that speaks for its neighbours. */
export interface Call {
  readonly pickup: Point;
  readonly vehicleClasses: readonly string[];
  readonly searchRadiusM: number;
}

/** A driver, or one who speaks for his neighbours. */
export interface Stand {
  readonly position: Point;
  readonly vehicleClass: string;
}

export interface Allotment {
  /** By ride: the numbers of drivers it could get. */
  readonly allotted: readonly (readonly number[])[];
  /** Of a column per driver and a row per ride. */
  readonly expected: Expectations;
}

/** So many neighbours count as one. */
const BLOCK = 3;
/** So many blocks of drivers are chosen for a block of rides. */
const CHOICES = 7;
/** Blocks of drivers that each block of rides knows by itself. */
const NEAREST = 10;
/** Where there are so few of either, nobody speaks for others. */
const FEW = 40;

/** Every call is of one ride, however many places it has. */
export function allot(calls: readonly Call[], stands: readonly Stand[], travelTime: TravelTime): Allotment {
  const callBlocks = blocksOf(
    calls.map(({ pickup }) => pickup),
    (call) => calls[call]!.vehicleClasses.toSorted().join(),
  );
  const standBlocks = blocksOf(
    stands.map(({ position }) => position),
    (stand) => stands[stand]!.vehicleClass,
  );
  const { choices, price, leftOut } = assignBlocks(
    callBlocks.map((block) => calls[spokesmanOf(block)]!),
    standBlocks.map((block) => stands[spokesmanOf(block)]!),
    travelTime,
    callBlocks.length === calls.length && standBlocks.length === stands.length,
  );
  const allotted: (readonly number[])[] = [];
  const expected = { price: new Float64Array(stands.length), leftOut: new Uint8Array(calls.length) };
  for (const [nth, block] of callBlocks.entries()) {
    const drivers = choices[nth]!.flatMap((chosen) => [...standBlocks[chosen]!]);
    for (const call of block) {
      allotted[call] = drivers;
      expected.leftOut[call] = leftOut[nth]!;
    }
  }
  for (const [nth, block] of standBlocks.entries()) for (const stand of block) expected.price[stand] = price[nth]!;
  return { allotted, expected };
}

/** Neighbours of one kind, together; each block's numbers. */
function blocksOf(points: readonly Point[], kindOf: (number: number) => string): Int32Array[] {
  const kinds = Map.groupBy(points.keys(), kindOf);
  return [...kinds.values()].flatMap((numbers) => {
    const { members } = halve(
      numbers.map((number) => points[number]!),
      BLOCK,
    );
    const inOrder = members.map((member) => numbers[member]!);
    return Array.from({ length: Math.ceil(numbers.length / BLOCK) }, (_, nth) =>
      inOrder.subarray(nth * BLOCK, (nth + 1) * BLOCK),
    );
  });
}

/** One of them, and no point between them, which might lie in a river. */
const spokesmanOf = (block: Int32Array): number => block[block.length >> 1]!;

interface Option {
  readonly stand: number;
  readonly etaS: number;
}

/**
 * For each of the calls the stands that would be best for it; who is left out; and what each stand costs.
 * `isTop`: they can't become fewer.
 */
function assignBlocks(
  calls: readonly Call[],
  stands: readonly Stand[],
  travelTime: TravelTime,
  isTop: boolean,
): Expectations & { readonly choices: number[][] } {
  const isSmall = isTop || Math.min(calls.length, stands.length) <= FEW;
  const above = isSmall ? null : allot(calls, stands, travelTime);
  // So few calls never need more than as many of the nearest.
  const nearest = nearestOf(stands, isSmall ? Math.max(calls.length, NEAREST) : NEAREST);
  const options = calls.map((call, nth) => {
    const known = new Set([...nearest(call), ...(above?.allotted[nth] ?? [])]);
    return [...known].flatMap((stand): Option[] => {
      const etaS = travelTime.etaS(stands[stand]!.position, call.pickup);
      return etaS < Infinity ? [{ stand, etaS }] : [];
    });
  });
  const problem = problemOf(
    options,
    stands.length,
    ({ stand }) => stand,
    ({ etaS }) => etaS,
  );
  const { columnOfRow, price } = solveAssignment({ ...problem, expected: above?.expected });
  const choices = options.map((ofCall, nth) => {
    // Many are equally good: whoever moves up one place can move up two. What it got comes first.
    const dearness = ({ stand, etaS }: Option): number =>
      stand === columnOfRow[nth] ? -Infinity : etaS - price[stand]!;
    const cheapest = ofCall.toSorted((a, b) => dearness(a) - dearness(b)).slice(0, CHOICES);
    return cheapest.map(({ stand }) => stand);
  });
  return { choices, price, leftOut: Uint8Array.from(columnOfRow, (column) => (column < 0 ? 1 : 0)) };
}

/** Finds the nearest stands of the classes that a call asks for. */
function nearestOf(stands: readonly Stand[], limit: number): (call: Call) => number[] {
  const numbered = stands.map(({ position, vehicleClass }, number) => ({ position, vehicleClass, number }));
  const ofClass = Map.groupBy(numbered, ({ vehicleClass }) => vehicleClass);
  const trees = new Map([...ofClass].map(([vehicleClass, some]) => [vehicleClass, new DriverTree(some)]));
  return ({ pickup, searchRadiusM, vehicleClasses }) => {
    const asked = vehicleClasses.flatMap((vehicleClass) => trees.get(vehicleClass) ?? []);
    return nearestOfAll(asked, pickup, searchRadiusM, limit, () => true).map(({ number }) => number);
  };
}
