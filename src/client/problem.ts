/**
 * The service understood and said no, over REST (an RFC 9457 problem) or over the socket. `code` is stable and is
 * what to decide on; `message` is for people.
 */
export class Problem extends Error {
  readonly code: string;
  /** What is to be said of this one besides, for people. */
  readonly detail: string | undefined;
  /** The HTTP status; null when it came over the socket. */
  readonly status: number | null;
  /** How long to wait before asking again, when the service said so. */
  readonly retryAfterMs: number | null;
  /** The problem document, with what a code tells besides; empty when there is none. */
  readonly members: Readonly<Record<string, unknown>>;

  constructor(problem: {
    code: string;
    detail?: string | undefined;
    status?: number | null;
    retryAfterMs?: number | null;
    members?: Readonly<Record<string, unknown>>;
  }) {
    super(problem.detail === undefined ? problem.code : `${problem.code}: ${problem.detail}`);
    this.name = 'Problem';
    this.code = problem.code;
    this.detail = problem.detail;
    this.status = problem.status ?? null;
    this.retryAfterMs = problem.retryAfterMs ?? null;
    this.members = problem.members ?? {};
  }
}

/** No answer: nobody there, the line broke, or the deadline passed. Whether the request took effect is not known. */
export class Unreachable extends Error {
  readonly code = 'unreachable';

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'Unreachable';
  }
}

const transientStatuses: ReadonlySet<number> = new Set([429, 500, 502, 503, 504]);
/** Over the socket there is no status. */
const transientCodes: ReadonlySet<string> = new Set([
  'busy',
  'database_unavailable',
  'internal_error',
  'overloaded',
  'too_many_requests',
  'unavailable',
]);

/** Whether asking again may get another answer. It is safe to, for requests that may be repeated. */
export function isTransient(error: unknown): boolean {
  if (error instanceof Unreachable) return true;
  if (!(error instanceof Problem)) return false;
  return transientCodes.has(error.code) || (error.status !== null && transientStatuses.has(error.status));
}

/** How long to wait before attempt `attempt` (from 1): anything up to a doubling bound, so that clients spread out. */
export function fullJitterMs(attempt: number, baseMs: number, maxMs: number): number {
  return Math.random() * Math.min(maxMs, baseMs * 2 ** (attempt - 1));
}
