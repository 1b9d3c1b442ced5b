/**
 * Watches for a new epoch of the database: it was promoted or restored. No fence is handed out twice then, but with
 * asynchronous replication, or an old backup, what was acknowledged last may be missing, and somebody has to be told.
 */
import { isUnreachable, type Sql } from '../database/connection.ts';
import type { Logger } from './log.ts';
import { lookEvery } from './look-every.ts';
import type { Metrics } from './metrics.ts';

const LOOK_EVERY_MS = 5_000;

export interface EpochDeps {
  readonly sql: Sql;
  readonly metrics: Metrics;
  readonly log: Logger;
}

/** Starts watching; the returned function stops it and waits for the look under way. */
export function watchEpochs({ sql, metrics, log }: EpochDeps): () => Promise<void> {
  let known: number | null = null;

  const look = async (): Promise<void> => {
    const [row] = await sql<{ epoch: number }[]>`select (fence_floor() >> 32)::int as epoch`;
    const { epoch } = row!;
    metrics.epoch.set(epoch);
    if (known !== null && epoch > known)
      log.error(
        { epoch, former: known },
        'the database was promoted or restored: what was acknowledged last may be lost',
      );
    known = epoch;
  };
  return lookEvery(LOOK_EVERY_MS, look, (error) => {
    if (!isUnreachable(error)) log.warn({ err: error }, 'the look at the database’s epoch failed');
  });
}
