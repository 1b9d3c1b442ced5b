/** Connections to the database: pools with a deadline on everything that is sent, and how their errors are told apart. */
import type { Socket } from 'node:net';
import type { PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import type { Sql } from 'postgres';
import { drizzle } from './drizzle.ts';
import postgres from './postgres.ts';

export type { Sql } from 'postgres';

/** The server ends a statement after this; the transitions' own are bounded more tightly by their locks. */
const STATEMENT_TIMEOUT_MS = 5_000;
/** How long confirm, cancel and other waiting transitions wait for a row that someone else holds. */
const LOCK_TIMEOUT_MS = 2_000;
/** A connection that owes an answer for this long is discarded: longer than any statement may take. */
const ANSWER_DEADLINE_MS = STATEMENT_TIMEOUT_MS + 2_000;
const CONNECT_DEADLINE_MS = 3_000;

export interface Database extends AsyncDisposable {
  /** For the transitions: generic plans through the named indexes, whatever the statistics say. */
  readonly hot: Sql;
  /** For everything else. */
  readonly cold: Sql;
  readonly orm: PostgresJsDatabase;
  readonly url: string;
  close(): Promise<void>;
}

export interface ConnectOptions {
  /** Connections of the hot pool; a set needs one, and sets of 50 fill few. */
  readonly hotConnections?: number;
  readonly coldConnections?: number;
  /** Shown in `pg_stat_activity`. */
  readonly applicationName?: string;
}

/** Opens no connection yet: the first statement does. */
export function connectDatabase(url: string, options: ConnectOptions = {}): Database {
  const applicationName = options.applicationName ?? 'cabrank';
  const hot = connect(url, options.hotConnections ?? 8, {
    application_name: `${applicationName} hot`,
    lock_timeout: LOCK_TIMEOUT_MS,
    // Unanalysed or freshly grown tables made the planner choose scans (958 cycles/s instead of 6,955): every hot
    // statement reaches its rows through a key it names, in the order in which its joins are written, and other ways are
    // closed. A set that is joined with what its own statement returned is therefore compared row by row: carry along what
    // is needed later instead. `exists` may still read a whole region once, for all rows at a time: select one with a limit.
    plan_cache_mode: 'force_generic_plan',
    enable_seqscan: 'off',
    enable_hashjoin: 'off',
    enable_mergejoin: 'off',
    enable_material: 'off',
    join_collapse_limit: 1,
    // What is hot is in memory: looking up a key costs what it computes, and beats walking even a small region.
    random_page_cost: 0.01,
    jit: 'off',
  });
  const others = { application_name: applicationName, lock_timeout: LOCK_TIMEOUT_MS };
  const cold = connect(url, options.coldConnections ?? 4, others);
  // drizzle takes its client's parsers away: times would be text for everybody else.
  const drizzles = connect(url, options.coldConnections ?? 4, others);
  const close = async (): Promise<void> => {
    await Promise.all([hot, cold, drizzles].map((pool) => pool.end({ timeout: 2 })));
  };
  return { hot, cold, orm: drizzle(drizzles), url, close, [Symbol.asyncDispose]: close };
}

function connect(url: string, max: number, session: Record<string, string | number>): Sql {
  return postgres(url, {
    max,
    // One query at a time on each: behind one that waits for a lock others would wait, too, while connections are free,
    // and the deadline of an answer would end with the first of several.
    ...({ max_pipeline: 0 } as object),
    connect_timeout: CONNECT_DEADLINE_MS / 1000,
    // The default backoff took 17 s to bring 20 connections back, this one 31 ms.
    backoff: () => 0.1,
    connection: {
      search_path: 'public, leasing',
      statement_timeout: STATEMENT_TIMEOUT_MS,
      idle_in_transaction_session_timeout: STATEMENT_TIMEOUT_MS,
      ...session,
    },
    onnotice: () => {},
    // postgres.js has no deadline of its own (src/database/postgres.ts): the server's is nothing to a line that fell silent.
    ...({ onsocket: watchAnswers } as object),
  });
}

/** Destroys a socket on which a written request stays unanswered past the deadline. */
function watchAnswers(socket: Socket): void {
  socket.setNoDelay(true);
  let owed: NodeJS.Timeout | null = null;
  const settle = (): void => {
    if (owed !== null) clearTimeout(owed);
    owed = null;
  };
  const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
  socket.write = ((...args: unknown[]) => {
    owed ??= setTimeout(() => socket.destroy(), ANSWER_DEADLINE_MS).unref();
    return write(...args);
  }) as typeof socket.write;
  socket.on('data', settle);
  socket.once('close', settle);
}

const CONNECTION_CODES = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_DESTROYED',
  'CONNECTION_ENDED',
  'CONNECT_TIMEOUT',
  'CONNECTION_CONNECT_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'ETIMEDOUT',
  '57P01', // admin_shutdown
  '57P02', // crash_shutdown
  '57P03', // cannot_connect_now
  '53100', // disk_full
  '53200', // out_of_memory
  '53300', // too_many_connections
  '58030', // io_error
  '25006', // read_only_sql_transaction: a replica that isn't promoted yet
]);

const codeOf = (error: unknown): string | undefined =>
  typeof error === 'object' && error !== null && 'code' in error ? String(error.code) : undefined;

/** Whether it holds of an error, or of what caused it: drizzle wraps the driver's errors. */
const holds = (error: unknown, test: (code: string) => boolean): boolean =>
  test(codeOf(error) ?? '') || (error instanceof Error && error.cause !== undefined && holds(error.cause, test));

/** The database couldn't be reached, went away or has run out of something: nothing is known of what was asked, and it may be asked again. */
export function isUnreachable(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isUnreachable);
  return holds(error, (code) => CONNECTION_CODES.has(code));
}

const LOCK_CODES = new Set(['55P03', '40P01', '57014']);

/** A row stayed locked past the deadline, or the wait was part of a deadlock: nothing was done. */
export const isLockTimeout = (error: unknown): boolean => holds(error, (code) => LOCK_CODES.has(code));

/** A column that numbers its rows has no number left. */
export const isSequenceExhausted = (error: unknown): boolean => holds(error, (code) => code === '2200H');
