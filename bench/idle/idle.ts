/** The idle benchmark: what a service costs that has nothing to do. */
import { setTimeout as pause } from 'node:timers/promises';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { openCity, POLICY } from '../city/trial.ts';
import { coresUsed, cpuSeconds, wakeUps } from '../cpu.ts';
import { type Member, startMember } from '../member.ts';

export interface IdleOptions {
  readonly drivers: number;
  readonly seconds: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface Idle {
  /** Shares of one core; null where the system doesn't tell. */
  readonly cpu: { readonly service: number; readonly database: number } | null;
  readonly transactionsPerSecond: number;
  /** Of the service. */
  readonly wakeUpsPerSecond: number | null;
}

export interface IdleFigures {
  readonly drivers: number;
  readonly seconds: number;
  /** Nobody connected. */
  readonly alone: Idle;
  /** Connected, with nothing to say. */
  readonly silent: Idle;
  /** Connected, with a position every `positionIntervalMs`. */
  readonly positions: Idle;
  readonly positionIntervalMs: number;
}

const SILENT_MS = 600_000;
/** Caches are warm, and a backend of PostgreSQL that has nothing to do has told what it did before: it takes 10 s for that. */
const SETTLE_MS = 12_000;

export async function benchIdle({ drivers, seconds, say, signal }: IdleOptions): Promise<IdleFigures> {
  const part = async (what: string, positionIntervalMs: number | null): Promise<Idle> => {
    signal.throwIfAborted();
    await using service = await startMember(['serve', '--temporary']);
    await using database = connectDatabase(service.databaseUrl, { hotConnections: 1, coldConnections: 1 });
    const policy = {
      ...POLICY,
      positionIntervalMs: positionIntervalMs ?? POLICY.positionIntervalMs,
      positionStaleMs: 2 * SILENT_MS,
      presenceGraceMs: 2 * SILENT_MS,
    };
    await using open = new AsyncDisposableStack();
    if (positionIntervalMs !== null) open.use(await openCity(service, { drivers, workers: 1, policy }));
    await pause(SETTLE_MS, undefined, { signal });
    const idle = await measure(service, database.cold, seconds, signal);
    say(`  ${what}: ${JSON.stringify(idle)}`);
    return idle;
  };
  return {
    drivers,
    seconds,
    alone: await part('nobody connected', null),
    silent: await part(`${drivers} silent drivers`, SILENT_MS),
    positions: await part(`${drivers} drivers with positions`, POLICY.positionIntervalMs),
    positionIntervalMs: POLICY.positionIntervalMs,
  };
}

async function measure({ pid }: Member, sql: Sql, seconds: number, signal: AbortSignal): Promise<Idle> {
  const transactions = async (): Promise<number> => {
    const [row] = await sql<{ n: number }[]>`
      select (xact_commit + xact_rollback)::float8 as n from pg_stat_database where datname = current_database()`;
    return row!.n;
  };
  const before = { cpu: cpuSeconds(pid), wakes: wakeUps(pid), transactions: await transactions() };
  await pause(seconds * 1000, undefined, { signal });
  const cpu = coresUsed(before.cpu, cpuSeconds(pid), seconds);
  const wakes = wakeUps(pid);
  return {
    cpu: cpu === null ? null : { service: cpu.own, database: cpu.children },
    transactionsPerSecond: Math.round((10 * ((await transactions()) - before.transactions)) / seconds) / 10,
    wakeUpsPerSecond: wakes === null || before.wakes === null ? null : Math.round((wakes - before.wakes) / seconds),
  };
}

export function formatIdle({ drivers, alone, silent, positions, positionIntervalMs }: IdleFigures): string {
  const line = (what: string, { cpu, transactionsPerSecond, wakeUpsPerSecond }: Idle): string =>
    `idle   ${what}: ${cpu?.service ?? '?'} + ${cpu?.database ?? '?'} of a core (service + database), ${transactionsPerSecond} transactions/s, ${wakeUpsPerSecond ?? '?'} wake-ups/s`;
  return [
    line('nobody connected', alone),
    line(`${drivers} silent drivers`, silent),
    line(`${drivers} drivers, a position every ${positionIntervalMs} ms`, positions),
  ].join('\n');
}
