/** What the checks of a history share: its stories, the records' region and clock, and the tally. */
import { SWEEP_MS } from '../../dispatch/sweeper.ts';
import type { HistoryCheckId } from '../catalog.ts';
import type { Tally } from '../checks.ts';
import type { Reader } from '../reader.ts';
import type { DatabaseClock, Interval } from './clock.ts';
import type { Stories } from './stories.ts';

/** What a sweep may take where nothing is broken: a period, a round, and work in hand on a busy machine. */
export const SWEEP_GRACE_MS = SWEEP_MS.most + 5_000;
/** After a fault was taken back everything may take so much longer, as in signs-of-life.ts. */
export const RECOVERY_MS = 30_000;

export interface HistoryPass {
  readonly reader: Reader;
  readonly region: number;
  readonly tally: Tally<HistoryCheckId>;
  readonly stories: Stories;
  readonly clock: DatabaseClock;
  /** The run's own time by the database's clock, at its narrowest; null when no request tells. */
  readonly scope: Interval | null;
  /** When something was broken or still recovering, by the database's clock, at its widest. */
  readonly faults: readonly Interval[];
  /** When the clock was set, in the same way. */
  readonly steps: readonly Interval[];
  /** What couldn't be judged, by check. */
  readonly unjudged: Map<HistoryCheckId, number>;
  readonly wild: Wild;
}

/** What only the records tell of how wild the load was. */
export interface Wild {
  /** Things that were done for somebody who got no answer. */
  lostReplies: number;
  /** Terms that lapsed while a confirm was under way. */
  expiriesDuringConfirm: number;
  /** Holders who still tried when their driver's next term had begun. */
  takeovers: number;
}

/** Counts what can't be judged; true when it can. */
export function canJudge<Known>({ unjudged }: HistoryPass, id: HistoryCheckId, known: Known | null): known is Known {
  if (known !== null) return true;
  unjudged.set(id, (unjudged.get(id) ?? 0) + 1);
  return false;
}

/** Whether what was recorded then belongs to the run; null: nobody knows. */
export const isInRun = ({ scope }: HistoryPass, atMs: number): boolean | null =>
  scope === null ? null : atMs >= scope.fromMs && atMs <= scope.toMs;

/** A time of the database as milliseconds since 1970, exact to a microsecond. */
export const millis = (time: string): string => `(extract(epoch from ${time}) * 1000)::float8`;
