import { greatCircleM, type Point } from './geo.ts';

/** How long a driver takes from one point to another. A router's matrix fits behind it as well as an estimate. */
export interface TravelTime {
  /** Seconds, not negative. `Infinity` where there is no way: such a pair is never matched. */
  etaS(from: Point, to: Point): number;
}

/**
 * The straight line, stretched by how much longer streets are (`detourFactor`, at least 1; cities lie around 1.3–1.4)
 * and driven at an average speed that includes the stops.
 * Throws `RangeError` on a factor below 1 or a speed that isn't positive.
 */
export function greatCircleTravelTime(settings: { detourFactor: number; speedMps: number }): TravelTime {
  const { detourFactor, speedMps } = settings;
  if (!(detourFactor >= 1 && detourFactor < Infinity)) throw new RangeError(`detourFactor ${detourFactor} is below 1`);
  if (!(speedMps > 0 && speedMps < Infinity)) throw new RangeError(`speedMps ${speedMps} is not a positive speed`);
  const secondsPerMeter = detourFactor / speedMps;
  return { etaS: (from, to) => greatCircleM(from, to) * secondsPerMeter };
}
