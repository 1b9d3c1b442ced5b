// oxlint-disable typescript/no-non-null-assertion -- every index is in range by construction, in the innermost loops
import { EARTH_RADIUS_M, greatCircleM, type Point } from '../geo.ts';

const RADIANS = Math.PI / 180;
/** Halving fewer than these costs more than looking at all of them. */
const LEAF = 8;
/** Covers the rounding of distances. */
const SAFETY_M = 0.001;

/**
 * Where the drivers are: a k-d tree (Bentley 1975) of points on the unit sphere, built anew for every round. Cities are dense
 * in one place and empty in the next; a tree has as many drivers in each of its boxes everywhere. (A uniform grid was as fast on
 * the streets of Manhattan, and longer.)
 *
 * In space there is no date line and no pole, and who is nearer by the straight line through the globe is nearer by the great
 * circle. The boxes only decide whom to look at: every distance is the great circle's.
 */
export class DriverTree<Driver extends { readonly position: Point }> {
  private readonly drivers: readonly Driver[];
  /** The numbers of the drivers. A box is a run of them, and its halves are boxes. */
  private readonly members: Int32Array;
  /** By the middle of a box: the axis along which it is longest, and where it is divided there. */
  private readonly axes: Uint8Array;
  private readonly splits: Float64Array;
  /** x, y, z on the unit sphere, in the order of `members`. */
  private readonly places: Float64Array;

  constructor(drivers: readonly Driver[]) {
    this.drivers = drivers;
    this.members = Int32Array.from(drivers, (_, number) => number);
    this.axes = new Uint8Array(drivers.length);
    this.splits = new Float64Array(drivers.length);
    const places = new Float64Array(3 * drivers.length);
    for (const [number, { position }] of drivers.entries()) places.set(onUnitSphere(position), 3 * number);
    this.build(places, 0, drivers.length);
    this.places = new Float64Array(3 * drivers.length);
    for (const [at, number] of this.members.entries())
      this.places.set(places.subarray(3 * number, 3 * number + 3), 3 * at);
  }

  /**
   * The nearest drivers within `radiusM` metres of `center` that `accepts` lets pass, nearest first, equally near ones
   * in the order they were given; `limit` of them at most.
   */
  nearest(center: Point, radiusM: number, limit: number, accepts: (driver: Driver) => boolean): Driver[] {
    const found = new Nearest(limit, radiusM);
    const at = onUnitSphere(center);
    const { places, members, drivers } = this;
    const look = (from: number, to: number): void => {
      for (let member = from; member < to; member++) {
        // Nearly everyone is passed over here, by the straight line through the globe.
        const dx = places[3 * member]! - at[0];
        const dy = places[3 * member + 1]! - at[1];
        const dz = places[3 * member + 2]! - at[2];
        if (dx * dx + dy * dy + dz * dz > found.reachChord2) continue;
        const number = members[member]!;
        const driver = drivers[number]!;
        if (accepts(driver)) found.offer(number, greatCircleM(center, driver.position));
      }
    };
    // How far the centre is outside of the box under way, along each axis.
    const outside = [0, 0, 0];
    const search = (from: number, to: number, outside2: number): void => {
      if (to - from <= LEAF) return look(from, to);
      const middle = (from + to) >>> 1;
      const axis = this.axes[middle]!;
      const beyond = at[axis]! - this.splits[middle]!;
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

  private build(places: Float64Array, from: number, to: number): void {
    if (to - from <= LEAF) return;
    const middle = (from + to) >>> 1;
    const axis = longestAxis(places, this.members, from, to);
    this.axes[middle] = axis;
    divide(places, this.members, axis, from, to - 1, middle);
    this.splits[middle] = places[3 * this.members[middle]! + axis]!;
    this.build(places, from, middle);
    this.build(places, middle, to);
  }
}

function longestAxis(places: Float64Array, members: Int32Array, from: number, to: number): number {
  let longest = 0;
  let longestSpan = -1;
  for (let axis = 0; axis < 3; axis++) {
    let least = Infinity;
    let most = -Infinity;
    for (let member = from; member < to; member++) {
      const value = places[3 * members[member]! + axis]!;
      if (value < least) least = value;
      if (value > most) most = value;
    }
    if (most - least <= longestSpan) continue;
    longestSpan = most - least;
    longest = axis;
  }
  return longest;
}

/** Moves members so that the one at `middle` is where sorting would put it, with none behind it before it (Hoare 1961). */
function divide(
  places: Float64Array,
  members: Int32Array,
  axis: number,
  from: number,
  to: number,
  middle: number,
): void {
  while (from < to) {
    const pivot = places[3 * members[(from + to) >>> 1]! + axis]!;
    let low = from;
    let high = to;
    while (low <= high) {
      while (places[3 * members[low]! + axis]! < pivot) low++;
      while (places[3 * members[high]! + axis]! > pivot) high--;
      if (low > high) break;
      const member = members[low]!;
      members[low++] = members[high]!;
      members[high--] = member;
    }
    if (middle <= high) to = high;
    else if (middle >= low) from = low;
    else return;
  }
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

function onUnitSphere({ lat, lng }: Point): [x: number, y: number, z: number] {
  const inPlane = Math.cos(lat * RADIANS);
  return [inPlane * Math.cos(lng * RADIANS), inPlane * Math.sin(lng * RADIANS), Math.sin(lat * RADIANS)];
}

/** No two points of the globe within this distance are farther apart on the unit sphere. */
function chord2Of(distanceM: number): number {
  if (distanceM < 0) return -Infinity;
  const halfAngle = Math.min((distanceM + SAFETY_M) / (2 * EARTH_RADIUS_M), Math.PI / 2);
  return 4 * Math.sin(halfAngle) ** 2;
}
