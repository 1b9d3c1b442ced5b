/** What an answer says of what was asked. */
import type { HistoryCommand } from '../history.ts';

/**
 * - `done`: it happened, now or when it was asked before
 * - `open`: it may have happened
 * - `no`: this ask did nothing, and others may do it
 * - `never`: nobody who asks the same will ever get it
 */
export type Meaning = 'done' | 'open' | 'no' | 'never';

/** Answers of those who couldn't, or can't tell whether they did. */
const OPEN_CODES: ReadonlySet<string> = new Set([
  'busy',
  'overloaded',
  'too_many_requests',
  'unavailable',
  'database_unavailable',
  'internal_error',
  'request_timeout',
]);
const FIRST_OPEN_STATUS = 500;
const TOO_MANY_STATUS = 429;

/** A term that is over never comes back. The codes in the order of domain/refusals.ts. */
const TERM_OVER: ReadonlySet<string> = new Set([
  'offer_not_found',
  'wrong_token',
  'ride_cancelled',
  'ride_taken',
  'lease_lost',
  'lease_expired',
]);
const RIDE_GONE: ReadonlySet<string> = new Set(['ride_not_found', 'ride_in_progress', 'ride_over']);
const NOTHING: ReadonlySet<string> = new Set();

const finalCodes: Readonly<Record<HistoryCommand['command'], ReadonlySet<string>>> = {
  request: NOTHING,
  cancel: RIDE_GONE,
  offer: NOTHING,
  online: NOTHING,
  offline: NOTHING,
  received: TERM_OVER,
  confirm: TERM_OVER,
  decline: TERM_OVER,
  release: TERM_OVER,
  arrive: NOTHING,
  start: NOTHING,
  complete: NOTHING,
};

export function meaningOf({ command, outcome, code = '', status = 0 }: HistoryCommand): Meaning {
  if (outcome === 'ok') return 'done';
  if (outcome === 'unknown' || OPEN_CODES.has(code)) return 'open';
  if (finalCodes[command].has(code)) return 'never';
  return status >= FIRST_OPEN_STATUS || status === TOO_MANY_STATUS ? 'open' : 'no';
}
