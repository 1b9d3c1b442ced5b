import { greatCircleM, offsetPoint, type Point } from '../../domain/geo.ts';
import type { Random } from '../../domain/random.ts';
import { DAY_MS, type Demand, type Trip } from './demand.ts';

export interface SyntheticCity {
  readonly center: Point;
  /** All trips start and end within it. */
  readonly radiusM: number;
  /** Requests in the busiest hour; the profile scales the other hours. */
  readonly peakRidesPerHour: number;
  /** Time of day at which the demand starts, in milliseconds since midnight. */
  readonly fromMs: number;
  readonly minutes: number;
}

/**
 * Each hour's demand against the busiest one, midnight first: a weekday's two rushes, the higher one in the evening,
 * and a night that doesn't quite end.
 */
const dailyProfile = [
  0.42, 0.3, 0.2, 0.13, 0.11, 0.17, 0.36, 0.62, 0.82, 0.78, 0.68, 0.67, 0.71, 0.7, 0.72, 0.74, 0.78, 0.9, 1, 0.98, 0.88,
  0.8, 0.72, 0.58,
];

/** Stations, squares, nightlife: where most trips start or end. The rest of the city is one wide, thin spot. */
interface HotSpot {
  readonly center: Point;
  readonly spreadM: number;
  readonly weight: number;
}

const HOT_SPOTS = 8;
/** Share of trip ends that lie at a hot spot. */
const HOT_SHARE = 0.65;
/** A city's spots differ in size: the weights fall as a harmonic series, as populations of places do. */
const weightOf = (rank: number): number => 1 / (rank + 1);
/** Nobody takes a cab around the corner; pairs closer than this are drawn again, a few times. */
const SHORT_TRIP_M = 400;
const REDRAWS_MAX = 8;

/**
 * A made-up city's demand: requests come as a Poisson process whose rate follows the daily profile. The same settings
 * and the same stream give the same trips.
 */
export function syntheticDemand(city: SyntheticCity, random: Random): Demand {
  const spots = hotSpots(city, random.fork('hot spots'));
  const places = random.fork('places');
  const trips = requestTimes(city, random.fork('times')).map((requestMs): Trip => {
    const pickup = placeIn(city, spots, places);
    return { requestMs, pickup, dropoff: awayFrom(pickup, city, spots, places), driveMs: null };
  });
  return {
    name: 'synthetic city',
    trips,
    startsAtMs: city.fromMs % DAY_MS,
    durationMs: city.minutes * 60_000,
    broken: { rows: trips.length, count: 0, examples: [] },
  };
}

/** Thinning: a stream at the peak's rate, of which each request stays with its hour's share. */
function requestTimes(city: SyntheticCity, random: Random): number[] {
  const meanGapMs = 3_600_000 / city.peakRidesPerHour;
  const times: number[] = [];
  for (let atMs = random.exponential(meanGapMs); atMs < city.minutes * 60_000; atMs += random.exponential(meanGapMs)) {
    if (random.chance(shareOfPeak(city.fromMs + atMs))) times.push(Math.floor(atMs));
  }
  return times;
}

/** Between two hours' middles the demand changes steadily. */
function shareOfPeak(timeOfDayMs: number): number {
  const hours = timeOfDayMs / 3_600_000 + 23.5;
  const before = dailyProfile[Math.floor(hours) % 24] as number;
  const after = dailyProfile[Math.floor(hours + 1) % 24] as number;
  return before + (after - before) * (hours % 1);
}

function hotSpots(city: SyntheticCity, random: Random): HotSpot[] {
  return Array.from({ length: HOT_SPOTS }, (_, rank) => ({
    center: pointWithin(city.center, city.radiusM * 0.8, random),
    spreadM: city.radiusM * (0.03 + 0.07 * random.next()),
    weight: weightOf(rank),
  }));
}

function placeIn(city: SyntheticCity, spots: readonly HotSpot[], random: Random): Point {
  if (!random.chance(HOT_SHARE)) return pointWithin(city.center, city.radiusM, random);
  const spot = pickWeighted(spots, random);
  // Two spreads at most: with a spot's centre at 0.8 of the radius and a spread of 0.1 that stays inside the city.
  const distanceM = Math.min(Math.abs(random.normal()), 2) * spot.spreadM;
  return offsetPoint(spot.center, random.next() * 2 * Math.PI, distanceM);
}

function awayFrom(pickup: Point, city: SyntheticCity, spots: readonly HotSpot[], random: Random): Point {
  let dropoff = placeIn(city, spots, random);
  for (let redraw = 0; redraw < REDRAWS_MAX && greatCircleM(pickup, dropoff) < SHORT_TRIP_M; redraw++) {
    dropoff = placeIn(city, spots, random);
  }
  return dropoff;
}

/** Evenly over the disc, hence the root. */
function pointWithin(center: Point, radiusM: number, random: Random): Point {
  return offsetPoint(center, random.next() * 2 * Math.PI, Math.sqrt(random.next()) * radiusM);
}

function pickWeighted(spots: readonly HotSpot[], random: Random): HotSpot {
  const total = spots.reduce((sum, spot) => sum + spot.weight, 0);
  let left = random.next() * total;
  return spots.find((spot) => (left -= spot.weight) < 0) ?? (spots.at(-1) as HotSpot);
}
