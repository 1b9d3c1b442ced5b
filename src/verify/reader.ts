/**
 * How the records are read: on one's own read-only connections, in short steps, so that no snapshot of a hot database
 * is held for longer than a second or so. A step is one statement over one range of keys.
 */
import type { Sql } from 'postgres';
import { isUnreachable } from '../database/connection.ts';
import postgres from '../database/postgres.ts';

const CONNECT_DEADLINE_MS = 5_000;
/** The server ends a step after this, although steps are sized to take far less. */
const STATEMENT_TIMEOUT_MS = 15_000;
/** A server that still owes an answer by then is given up. */
const ANSWER_DEADLINE_MS = STATEMENT_TIMEOUT_MS + 5_000;
/** Steps grow while they take less than this, and shrink when they take four times as long. */
const STEP_TARGET_MS = 400;
const FIRST_STEP_ROWS = 2_000;

/**
 * - `database_unreachable`: nobody answers, or the connection was lost
 * - `not_migrated`: the tables aren't there
 * - `step_too_slow`: one statement took longer than 15 s
 * - `region_not_found`: the database isn't that of the history
 */
export type VerifyErrorCode = 'database_unreachable' | 'not_migrated' | 'step_too_slow' | 'region_not_found';

export class VerifyError extends Error {
  override readonly name = 'VerifyError';
  readonly code: VerifyErrorCode;

  constructor(code: VerifyErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Times are given as text (`::text::timestamptz`), with the microseconds that a Date lacks. */
export type Params = readonly (string | number | null | readonly string[] | readonly number[])[];

export interface Reader extends AsyncDisposable {
  /**
   * One statement, one snapshot.
   * @throws VerifyError, or the signal's reason
   */
  ask<Row extends object>(statement: string, params: Params): Promise<Row[]>;
}

/** Opens no connection yet: the first statement does. */
export function openReader(url: string, connections: number, signal?: AbortSignal): Reader {
  const sql = postgres(url, {
    max: connections,
    connect_timeout: CONNECT_DEADLINE_MS / 1000,
    onnotice: () => {},
    connection: {
      application_name: 'cabrank verify',
      search_path: 'public',
      default_transaction_read_only: true,
      statement_timeout: STATEMENT_TIMEOUT_MS,
      plan_cache_mode: 'force_custom_plan',
      // The newest rows are beyond what the statistics know: taken for one row, a range of 20,000 was joined to
      // another in a loop, and a step of 50 ms took more than 15 s. So ranges are only hashed or merged, and single
      // rows looked up by key where a statement says so (see `lookUp`).
      enable_nestloop: 'off',
      work_mem: '64MB',
      jit: 'off',
    },
  });
  return {
    ask: (statement, params) => ask(sql, statement, params, signal),
    [Symbol.asyncDispose]: () => sql.end({ timeout: signal?.aborted === true ? 0 : 1 }),
  };
}

async function ask<Row extends object>(
  sql: Sql,
  statement: string,
  params: Params,
  signal?: AbortSignal,
): Promise<Row[]> {
  signal?.throwIfAborted();
  const deadline = AbortSignal.timeout(ANSWER_DEADLINE_MS);
  const given = Promise.withResolvers<never>();
  const giveUp = (): void => given.reject(signal?.aborted === true ? signal.reason : slow());
  const ends = signal === undefined ? [deadline] : [deadline, signal];
  for (const end of ends) end.addEventListener('abort', giveUp);
  const query = sql.unsafe<Row[]>(statement, params as never[]);
  try {
    return await Promise.race([query, given.promise]);
  } catch (error) {
    if (signal?.aborted !== true) throw explained(error);
    query.cancel();
    throw error;
  } finally {
    for (const end of ends) end.removeEventListener('abort', giveUp);
  }
}

const slow = (cause?: unknown): VerifyError =>
  new VerifyError('step_too_slow', `a step took longer than ${STATEMENT_TIMEOUT_MS / 1000} s`, { cause });

function explained(error: unknown): unknown {
  if (error instanceof VerifyError) return error;
  const code = typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined;
  if (code === '57014') return slow(error);
  if (code === '42P01' || code === '42703') {
    return new VerifyError('not_migrated', `this database isn't migrated: ${(error as Error).message}`, {
      cause: error,
    });
  }
  if (isUnreachable(error)) {
    return new VerifyError('database_unreachable', `the database can't be reached: ${(error as Error).message}`, {
      cause: error,
    });
  }
  return error;
}

/** Keys of one region: after `after` (null: from the first), up to and with `upTo` (null: to the last). */
export interface Range {
  readonly region: number;
  readonly after: string | null;
  readonly upTo: string | null;
}

export const wholeOf = (region: number): Range => ({ region, after: null, upTo: null });

export const paramsOf = ({ region, after, upTo }: Range): Params => [region, after, upTo];

/** The condition for rows in the range that a statement gets as $1, $2 and $3. */
export const inRange = (key: string, type: 'uuid' | 'text'): string =>
  `region = $1::int2 and ($2::${type} is null or ${key} > $2::${type}) and ($3::${type} is null or ${key} <= $3::${type})`;

/** The condition for rows of the keys that a statement gets as $2, in the region that it gets as $1. */
export const isAmong = (key: string): string => `region = $1::int2 and ${key} = any($2::uuid[])`;

/**
 * Joins the rows of a table that a row before it names by their key, as `alias`: one look into an index for each row,
 * whatever the planner thinks of it.
 */
export const lookUp = (table: string, alias: string, condition: string): string =>
  `left join lateral (select * from ${table} where region = $1::int2 and ${condition} offset 0) ${alias} on true`;

export interface Walk {
  readonly reader: Reader;
  /** All of a region, or a part. */
  readonly over: Range;
  readonly table: string;
  /** The column after the region in the table's primary key. */
  readonly key: string;
  readonly type: 'uuid' | 'text';
  readonly stepRowsMax: number;
  /** Steps under way at once. */
  readonly connections: number;
}

/**
 * Walks along keys in ranges that together hold every key there can be, sized by how long the last ones took. The last
 * range ends where the walk does, so that it also holds what was written meanwhile.
 */
export async function walk(
  { reader, over: { region, after: from, upTo }, table, key, type, stepRowsMax, connections }: Walk,
  step: (range: Range) => Promise<void>,
): Promise<void> {
  const find = `select ${key}::text as found from ${table}
    where ${inRange(key, type)} order by ${key} offset $4::int limit 1`;
  let rows = Math.min(FIRST_STEP_ROWS, stepRowsMax);
  const take = async (range: Range): Promise<void> => {
    const startedAtMs = performance.now();
    await step(range);
    const tookMs = performance.now() - startedAtMs;
    if (tookMs < STEP_TARGET_MS) rows = Math.min(rows * 2, stepRowsMax);
    else if (tookMs > 4 * STEP_TARGET_MS) rows = Math.max(Math.floor(rows / 2), 1);
  };
  const underWay = new Set<Promise<void>>();
  let after = from;
  try {
    for (let isOver = false; !isOver;) {
      const [end] = await reader.ask<{ found: string }>(find, [region, after, upTo, rows - 1]);
      isOver = end === undefined;
      const range: Range = { region, after, upTo: end?.found ?? upTo };
      const taken = take(range).finally(() => underWay.delete(taken));
      underWay.add(taken);
      if (underWay.size >= connections) await Promise.race(underWay);
      after = range.upTo;
    }
    await Promise.all(underWay);
  } finally {
    await Promise.allSettled(underWay);
  }
}
