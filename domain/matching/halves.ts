// oxlint-disable typescript/no-non-null-assertion -- every index is in range by construction, in the innermost loops
import type { Point } from '../geo.ts';

const RADIANS = Math.PI / 180;

/**
 * Points so ordered that neighbours stand together: halved across the axis along which they are longest, and each half
 * again (a k-d tree, Bentley 1975), down to runs of `run` points.
 */
export interface Halves {
  /** The numbers of the points. Each half is a stretch of them, and starts at a multiple of `run`. */
  readonly members: Int32Array;
  /**
   * By where its second half starts: the axis across which a stretch is halved, and where on it. `ONE_PLACE`: all of its
   * points are at the same place, and in the order of their numbers.
   */
  readonly axes: Uint8Array;
  readonly splits: Float64Array;
  /** x, y, z on the unit sphere, in the order of `members`. */
  readonly places: Float64Array;
}

export const ONE_PLACE = 3;

/** In space there is no date line and no pole. */
export function halve(points: readonly Point[], run: number): Halves {
  const members = Int32Array.from(points, (_, number) => number);
  const axes = new Uint8Array(points.length);
  const splits = new Float64Array(points.length);
  const known = new Float64Array(3 * points.length);
  for (const [number, point] of points.entries()) known.set(onUnitSphere(point), 3 * number);
  const halveStretch = (from: number, to: number): void => {
    if (to - from <= run) return;
    const middle = middleOf(from, to, run);
    const axis = longestAxis(known, members, from, to);
    axes[middle] = axis;
    if (axis === ONE_PLACE) return void members.subarray(from, to).sort();
    divide(known, members, axis, from, to - 1, middle);
    splits[middle] = known[3 * members[middle]! + axis]!;
    halveStretch(from, middle);
    halveStretch(middle, to);
  };
  halveStretch(0, points.length);
  const places = new Float64Array(3 * points.length);
  for (const [at, number] of members.entries()) places.set(known.subarray(3 * number, 3 * number + 3), 3 * at);
  return { members, axes, splits, places };
}

/** Where the second half of a longer stretch starts. */
export function middleOf(from: number, to: number, run: number): number {
  return from + run * Math.ceil((to - from) / (2 * run));
}

export function onUnitSphere({ lat, lng }: Point): [x: number, y: number, z: number] {
  const inPlane = Math.cos(lat * RADIANS);
  return [inPlane * Math.cos(lng * RADIANS), inPlane * Math.sin(lng * RADIANS), Math.sin(lat * RADIANS)];
}

function longestAxis(places: Float64Array, members: Int32Array, from: number, to: number): number {
  let longest = ONE_PLACE;
  let longestSpan = 0;
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
