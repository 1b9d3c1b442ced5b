// oxlint-disable typescript/no-non-null-assertion -- every index is in range by construction, in the innermost loops
import { EARTH_RADIUS_M, greatCircleM, type Point } from '../geo.ts';
import { halve, type Halves, middleOf, ONE_PLACE, onUnitSphere } from './halves.ts';

/** Halving fewer than these costs more than looking at all of them. */
const LEAF = 8;
/** Covers the rounding of distances. */
const SAFETY_M = 0.001;

/**
 * Where the drivers are: a k-d tree (halves.ts) of points on the unit sphere. Cities are
 * dense in one place and empty in the next; a tree has as many drivers in each of its boxes everywhere. (A uniform grid
 * was as fast on the streets of Manhattan, and longer.)
 *
 * Who is nearer by the straight line through the globe is nearer by the great circle. The boxes only decide whom to look at: every distance is the great circle's.
 */
export class DriverTree<Driver extends { readonly position: Point }> {
  private readonly drivers: readonly Driver[];
  private readonly halves: Halves;

  constructor(drivers: readonly Driver[]) {
    this.drivers = drivers;
    this.halves = halve(
      drivers.map(({ position }) => position),
      LEAF,
    );
  }

  /**
   * The nearest drivers within `radiusM` metres of `center` that `accepts` lets pass, nearest first, equally near ones
   * in the order they were given; `limit` of them at most.
   */
  nearest(center: Point, radiusM: number, limit: number, accepts: (driver: Driver) => boolean): Driver[] {
    const found = new Nearest(limit, radiusM);
    const at = onUnitSphere(center);
    const { drivers } = this;
    const { places, members, axes, splits } = this.halves;
    const look = (from: number, to: number, most: number): void => {
      for (let member = from, left = most; member < to && left > 0; member++) {
        // Nearly everyone is passed over here, by the straight line through the globe.
        const dx = places[3 * member]! - at[0];
        const dy = places[3 * member + 1]! - at[1];
        const dz = places[3 * member + 2]! - at[2];
        if (dx * dx + dy * dy + dz * dz > found.reachChord2) continue;
        const number = members[member]!;
        const driver = drivers[number]!;
        if (!accepts(driver)) continue;
        found.offer(number, greatCircleM(center, driver.position));
        left--;
      }
    };
    // How far the centre is outside of the box under way, along each axis.
    const outside = [0, 0, 0];
    const search = (from: number, to: number, outside2: number): void => {
      if (to - from <= LEAF) return look(from, to, LEAF);
      const middle = middleOf(from, to, LEAF);
      const axis = axes[middle]!;
      // Equally far, and those behind come after them.
      if (axis === ONE_PLACE) return look(from, to, limit);
      const beyond = at[axis]! - splits[middle]!;
      if (beyond < 0) search(from, middle, outside2);
      else search(middle, to, outside2);
      const before = outside[axis]!;
      const further2 = outside2 - before * before + beyond * beyond;
      if (further2 > found.reachChord2) return;
      outside[axis] = beyond;
      if (beyond < 0) search(middle, to, further2);
      else search(from, middle, further2);
      outside[axis] = before;
    };
    search(0, members.length, 0);
    return found.numbers.map((number) => drivers[number]!);
  }
}

/**
 * The nearest of all these trees together, by the same conditions; equally near ones in the order of their numbers, in which
 * each tree was given its own.
 */
export function nearestOfAll<Driver extends { readonly position: Point; readonly number: number }>(
  trees: readonly DriverTree<Driver>[],
  center: Point,
  radiusM: number,
  limit: number,
  accepts: (driver: Driver) => boolean,
): Driver[] {
  const found = trees.flatMap((tree) => tree.nearest(center, radiusM, limit, accepts));
  if (trees.length < 2) return found;
  const byDistance = found.map((driver) => ({ driver, distanceM: greatCircleM(center, driver.position) }));
  byDistance.sort((a, b) => a.distanceM - b.distanceM || a.driver.number - b.driver.number);
  return byDistance.slice(0, limit).map(({ driver }) => driver);
}

/** The nearest drivers so far, by their numbers, nearest first. */
class Nearest {
  readonly numbers: number[] = [];
  /** Only drivers as near as this are still of interest. */
  reachM: number;
  /** The same as the square of a chord of the unit sphere, and a little more. */
  reachChord2: number;
  private readonly distancesM: number[] = [];
  private readonly limit: number;

  constructor(limit: number, radiusM: number) {
    this.limit = limit;
    this.reachM = limit > 0 ? radiusM : -Infinity;
    this.reachChord2 = chord2Of(this.reachM);
  }

  offer(number: number, distanceM: number): void {
    if (!(distanceM <= this.reachM)) return;
    const { numbers, distancesM, limit } = this;
    let place = numbers.length;
    if (place === limit) {
      if (!this.comesBefore(number, distanceM, --place)) return;
    }
    for (; place > 0 && this.comesBefore(number, distanceM, place - 1); place--) {
      numbers[place] = numbers[place - 1]!;
      distancesM[place] = distancesM[place - 1]!;
    }
    numbers[place] = number;
    distancesM[place] = distanceM;
    if (numbers.length < limit) return;
    this.reachM = distancesM[limit - 1]!;
    this.reachChord2 = chord2Of(this.reachM);
  }

  private comesBefore(number: number, distanceM: number, place: number): boolean {
    const other = this.distancesM[place]!;
    return distanceM < other || (distanceM === other && number < this.numbers[place]!);
  }
}

/** No two points of the globe within this distance are farther apart on the unit sphere. */
function chord2Of(distanceM: number): number {
  if (distanceM < 0) return -Infinity;
  const halfAngle = Math.min((distanceM + SAFETY_M) / (2 * EARTH_RADIUS_M), Math.PI / 2);
  return 4 * Math.sin(halfAngle) ** 2;
}
