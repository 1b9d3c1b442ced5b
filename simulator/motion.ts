import { type Point, wrapLng } from '../domain/geo.ts';

/** A stretch of driving, on the scheduler's clock. */
export interface Leg {
  readonly from: Point;
  readonly to: Point;
  readonly departMs: number;
  readonly arriveMs: number;
}

export const parkedAt = (place: Point): Leg => ({ from: place, to: place, departMs: 0, arriveMs: 0 });

/** Where a driver is: on the straight line, at an even speed, across the date line too. */
export function positionAt(leg: Leg, nowMs: number): Point {
  if (nowMs >= leg.arriveMs) return leg.to;
  const share = Math.max(0, (nowMs - leg.departMs) / (leg.arriveMs - leg.departMs));
  return {
    lat: leg.from.lat + share * (leg.to.lat - leg.from.lat),
    lng: wrapLng(leg.from.lng + share * wrapLng(leg.to.lng - leg.from.lng)),
  };
}
