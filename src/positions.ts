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
  const buffered = new Map<number, Map<string, PositionReport>>();
  let flushing: Promise<void> | null = null;

  async function flush(): Promise<void> {
    for (const [region, reports] of buffered) {
      buffered.delete(region);
      const all = [...reports.values()];
      for (let i = 0; i < all.length; i += SET_MAX) {
        await recordPositions(sql, region, all.slice(i, i + SET_MAX)).catch((error: unknown) =>
          log.warn({ err: error }, 'positions were lost'),
        );
      }
    }
  }
  const startFlush = (): void => {
    if (buffered.size === 0) return;
    flushing ??= flush().finally(() => {
      flushing = null;
    });
  };
  const timer = setInterval(startFlush, FLUSH_MS);

  return {
    report(region, report) {
      let reports = buffered.get(region);
      if (reports === undefined) buffered.set(region, (reports = new Map<string, PositionReport>()));
      // "Still there" doesn't replace a position that waits.
      if (report.position !== null || !reports.has(report.driverId)) reports.set(report.driverId, report);
    },
    stop: async () => {
      clearInterval(timer);
      await flushing;
      await flush();
    },
  };
}
