import { greatCircleM, offsetPoint, type Point } from '../../domain/geo.ts';
import type { Random } from '../../domain/random.ts';
import type { Trip } from './demand.ts';

/** Everything that happens in a city lies within `radiusM` of its centre. */
export interface City {
  readonly center: Point;
  readonly radiusM: number;
}

/** Drivers don't stop exactly where somebody will call. */
const PARKING_SPREAD_M = 150;
/** Farther apart than this, two trips aren't the same city's: a sign or a column was mixed up. */
export const CITY_RADIUS_MAX_M = 200_000;
/** Room around the outermost trip, so that a position a little beyond it still lies within the region. */
const EDGE_M = 500;

/**
 * The smallest round region that holds all trips around their middle.
 * Throws `RangeError` without trips.
 */
export function cityOf(trips: readonly Trip[]): City {
  const center = middleOf(trips.map((trip) => trip.pickup));
  let radiusM = 0;
  for (const { pickup, dropoff } of trips) {
    radiusM = Math.max(radiusM, greatCircleM(center, pickup), greatCircleM(center, dropoff));
  }
  return { center, radiusM: Math.ceil(radiusM + EDGE_M) };
}

/**
 * The middle of a cloud of points anywhere on earth: the median of how far each lies north and east of their mean
 * direction. The median, so that one stray row doesn't move the city; directions as vectors, so that the date line
 * and the poles are places like any other.
 */
export function middleOf(points: readonly Point[]): Point {
  if (points.length === 0) throw new RangeError('no points to find the middle of');
  const mean = meanDirection(points);
  const norths: number[] = [];
  const easts: number[] = [];
  for (const point of points) {
    const distanceM = greatCircleM(mean, point);
    const bearing = bearingRad(mean, point);
    norths.push(distanceM * Math.cos(bearing));
    easts.push(distanceM * Math.sin(bearing));
  }
  const [north, east] = [median(norths), median(easts)];
  return offsetPoint(mean, Math.atan2(east, north), Math.hypot(north, east));
}

/** Where a driver waits at the start of the day: near a pick-up drawn from the demand, so that supply follows it. */
export function startPosition(trips: readonly Trip[], random: Random): Point {
  const near = random.pick(trips).pickup;
  return offsetPoint(near, random.next() * 2 * Math.PI, Math.abs(random.normal()) * PARKING_SPREAD_M);
}

const RADIANS = Math.PI / 180;

function meanDirection(points: readonly Point[]): Point {
  let [x, y, z] = [0, 0, 0];
  for (const { lat, lng } of points) {
    x += Math.cos(lat * RADIANS) * Math.cos(lng * RADIANS);
    y += Math.cos(lat * RADIANS) * Math.sin(lng * RADIANS);
    z += Math.sin(lat * RADIANS);
  }
  // Points that cancel each other out have no middle; any one of them serves.
  if (Math.hypot(x, y, z) < 1e-9 * points.length) return points[0] as Point;
  return { lat: Math.atan2(z, Math.hypot(x, y)) / RADIANS, lng: Math.atan2(y, x) / RADIANS };
}

/** Direction in which the great circle from `a` to `b` leaves, clockwise from north. */
function bearingRad(a: Point, b: Point): number {
  const turn = (b.lng - a.lng) * RADIANS;
  const [latA, latB] = [a.lat * RADIANS, b.lat * RADIANS];
  const east = Math.sin(turn) * Math.cos(latB);
  const north = Math.cos(latA) * Math.sin(latB) - Math.sin(latA) * Math.cos(latB) * Math.cos(turn);
  return Math.atan2(east, north);
}

function median(values: number[]): number {
  values.sort((a, b) => a - b);
  return values[values.length >> 1] as number;
}
