/**
 * Drivers' positions on their way to the database: the newest of each driver, written in sets. A report that is lost
 * is followed by another within seconds, so nothing waits for them.
 */
import type { Sql } from './database/connection.ts';
import { recordPositions, type PositionReport } from './leasing/transitions.ts';
import type { Logger } from './ops/log.ts';

const FLUSH_MS = 200;
const SET_MAX = 500;

export interface Positions {
  readonly report: (region: number, report: PositionReport) => void;
  /** Writes what is buffered and stops. */
  readonly stop: () => Promise<void>;
}

export function startPositions({ sql, log }: { readonly sql: Sql; readonly log: Logger }): Positions {
  let buffered = new Map<number, Map<string, PositionReport>>();
  let flushing: Promise<void> | undefined;
  /** Of the next flush, or the one under way; none while there is nothing to write. */
  let timer: NodeJS.Timeout | undefined;
  let isStopped = false;

  async function flush(): Promise<void> {
    // What is reported meanwhile is for the next flush: with it this one would go on for as long as drivers move.
    const due = buffered;
    buffered = new Map();
    for (const [region, reports] of due) {
      const all = [...reports.values()];
      for (let i = 0; i < all.length; i += SET_MAX) {
        await recordPositions(sql, region, all.slice(i, i + SET_MAX)).catch((error: unknown) =>
          log.warn({ err: error }, 'positions were lost'),
        );
      }
    }
  }
  function flushSoon(): void {
    if (isStopped) return;
    timer ??= setTimeout(() => {
      flushing = flush().then(() => {
        timer = undefined;
        if (buffered.size > 0) flushSoon();
      });
    }, FLUSH_MS);
  }

  return {
    report(region, report) {
      let reports = buffered.get(region);
      if (reports === undefined) buffered.set(region, (reports = new Map<string, PositionReport>()));
      // "Still there" doesn't replace a position that waits.
      if (report.position !== null || !reports.has(report.driverId)) reports.set(report.driverId, report);
      flushSoon();
    },
    stop: async () => {
      isStopped = true;
      clearTimeout(timer);
      await flushing;
      await flush();
    },
  };
}
