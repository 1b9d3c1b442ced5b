import type { Point } from '../../domain/geo.ts';

/** One rider's wish, as the city knows it before the service does. */
export interface Trip {
  /** City milliseconds since the demand's own start. */
  readonly requestMs: number;
  readonly pickup: Point;
  readonly dropoff: Point;
  /** How long the drive took, in city milliseconds; null when the source doesn't say. */
  readonly driveMs: number | null;
}

/** What a city asks for over a stretch of time, ordered by request time. */
export interface Demand {
  /** For people: where it came from. */
  readonly name: string;
  readonly trips: readonly Trip[];
  /** Local time of day at which the demand starts, in milliseconds since midnight. */
  readonly startsAtMs: number;
  /** From the start to the end of the window, city milliseconds. */
  readonly durationMs: number;
  /** Rows of the source that were skipped, with the first few named; none when there is no source to be wrong. */
  readonly broken: BrokenRows;
}

export interface BrokenRows {
  /** Rows seen, good and broken. */
  readonly rows: number;
  readonly count: number;
  /** The first ones: `line 17: pu_lat "abc" is not a number`. */
  readonly examples: readonly string[];
}

export type DemandErrorCode = 'unreadable' | 'missing_columns' | 'too_many_broken_rows' | 'no_trips' | 'too_large';

/** The demand can't be used: a mistake in the input, told to its author (the command exits with 2). */
export class DemandError extends Error {
  readonly code: DemandErrorCode;

  constructor(code: DemandErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'DemandError';
    this.code = code;
  }
}

export const DAY_MS = 86_400_000;

/** `HH:MM` as milliseconds since midnight, or null when it isn't a time of day. */
export function timeOfDayMs(text: string): number | null {
  const match = /^(\d{1,2}):(\d{2})$/.exec(text);
  if (match === null) return null;
  const [hours, minutes] = [Number(match[1]), Number(match[2])];
  return hours < 24 && minutes < 60 ? (hours * 60 + minutes) * 60_000 : null;
}

/** `2013-09-01 18:00`, of a wall clock's milliseconds. */
export const clockTime = (atMs: number): string => new Date(atMs).toISOString().slice(0, 16).replace('T', ' ');
