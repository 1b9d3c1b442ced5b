/** What the cycle leaves on disk: WAL, HOT updates, dead rows. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Sql } from '../../src/database/connection.ts';
import type { Run, Session } from './contender.ts';

export interface DiskFigures {
  readonly walBytesPerCycle: number;
  /** Of the updates of `driver_state`. */
  readonly hotShare: number;
}

export interface SoakFigures {
  readonly seconds: number;
  readonly cyclesPerSecond: number;
  readonly deadRows: Readonly<Record<string, number>>;
  readonly driverStateMb: number;
}

const HOT_TABLES = ['driver_state', 'rides', 'offers', 'assignments', 'ride_events'];
/** The server's counters are written up to a second after the fact. */
const COUNTERS_MS = 1_500;
const SOAK_BURST_MS = 1_000;
const SOAK_REST_MS = 4_000;

async function counters(sql: Sql) {
  await pause(COUNTERS_MS);
  await sql`select pg_stat_clear_snapshot()`;
  const [row] = await sql<{ wal: number; updates: number; hot: number }[]>`
    select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 as wal, n_tup_upd::float8 as updates,
      n_tup_hot_upd::float8 as hot from pg_stat_user_tables where relname = 'driver_state'`;
  return row!;
}

/** Of one run; the rides it makes ready are counted too. */
export async function measureDisk(sql: Sql, run: () => Promise<Run>): Promise<DiskFigures> {
  const before = await counters(sql);
  const { cycles } = await run();
  const after = await counters(sql);
  return {
    walBytesPerCycle: Math.round((after.wal - before.wal) / cycles),
    hotShare: Math.round((1e4 * (after.hot - before.hot)) / (after.updates - before.updates)) / 1e4,
  };
}

/** Bursts of cycles with rests between, as vacuum meets them in service; then what it has left. */
export async function soak(sql: Sql, session: Session, seconds: number, signal: AbortSignal): Promise<SoakFigures> {
  const startedMs = performance.now();
  let cycles = 0;
  while (performance.now() - startedMs < seconds * 1000) {
    signal.throwIfAborted();
    cycles += (await session.run(SOAK_BURST_MS)).cycles;
    await pause(Math.min(SOAK_REST_MS, Math.max(0, startedMs + seconds * 1000 - performance.now())), undefined, {
      signal,
    });
  }
  const took = (performance.now() - startedMs) / 1000;
  await counters(sql);
  const tables = await sql<{ name: string; dead: number }[]>`
    select relname as name, n_dead_tup::float8 as dead from pg_stat_user_tables where relname = any(${HOT_TABLES}) order by 1`;
  const [size] = await sql<{ mb: number }[]>`select pg_table_size('driver_state')::float8 / 1048576 as mb`;
  return {
    seconds: Math.round(took),
    cyclesPerSecond: Math.round(cycles / took),
    deadRows: Object.fromEntries(tables.map(({ name, dead }) => [name, dead])),
    driverStateMb: Math.round(size!.mb),
  };
}
