/** What the benchmark and the processes that make its load say to each other. */
import type { Point } from '../../domain/geo.ts';

/** Milliseconds of the machine's monotonic clock, which all its processes share. */
export const sharedNowMs = (): number => Number(process.hrtime.bigint()) / 1e6;

export type Order =
  | { readonly kind: 'open'; readonly open: Opening }
  | { readonly kind: 'request'; readonly ratePerS: number; readonly seconds: number; readonly startAtMs: number }
  | { readonly kind: 'collect' }
  /** From now on drivers let offers stand. */
  | { readonly kind: 'hold' }
  /** Answered when each driver was told its state again; `cut`: every socket is cut first, at once. */
  | { readonly kind: 'reconnect'; readonly cut: boolean };

export interface Opening {
  readonly url: string;
  /** Of the gateway. */
  readonly socketUrl: string;
  readonly authSecret: string;
  readonly regionId: string;
  readonly center: Point;
  readonly radiusM: number;
  readonly drivers: readonly string[];
  readonly positionIntervalMs: number;
  readonly seed: string;
  readonly drivenBy: DrivenBy;
}

/** `frames`: as little of the machine as can be. `app`: the drivers' own client, which connects again by itself. */
export type DrivenBy = 'frames' | 'app';

export type Answer =
  | { readonly kind: 'opened' }
  | { readonly kind: 'requested'; readonly seen: Seen }
  | { readonly kind: 'collected'; readonly seen: Seen }
  | { readonly kind: 'held' }
  /** When each driver had its own state and offer again, in shared milliseconds. */
  | { readonly kind: 'reconnected'; readonly atMs: readonly number[]; readonly offers: number }
  | { readonly kind: 'failed'; readonly why: string };

/** What a load process saw since it was last asked; times in shared milliseconds. */
export interface Seen {
  /** Rides with the time at which they were due to be requested. */
  requested: [rideId: string, dueAtMs: number][];
  /** Offers on a device. */
  offered: [rideId: string, atMs: number][];
  completed: [rideId: string, atMs: number][];
  confirmMs: number[];
  /** How late requests were sent. */
  lateMs: number[];
  /** By what was asked and why it failed. */
  failures: Record<string, number>;
}

export const seenNothing = (): Seen => ({
  requested: [],
  offered: [],
  completed: [],
  confirmMs: [],
  lateMs: [],
  failures: {},
});
