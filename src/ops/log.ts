/** Structured logs, JSON lines on stdout; everything that logs takes this much of it. */
import type { FastifyBaseLogger } from 'fastify';
import { pino } from 'pino';

export type Logger = Pick<FastifyBaseLogger, 'debug' | 'info' | 'warn' | 'error'>;

/** The database's errors arrive wrapped; no chain is longer than this. */
const CAUSES_MAX = 5;

export const createLog = (level: string): Logger => pino({ level, serializers: { err: loggedError } });

/**
 * What may be read of an error: its kind, its words, where it came from. Not its other members: PostgreSQL's `detail`
 * quotes the row that failed, and a driver's row holds its lease token, a webhook's its secret.
 */
export function loggedError(error: unknown, causesLeft = CAUSES_MAX): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const { code } = error as { code?: unknown };
  return {
    type: error.constructor.name,
    message: error.message,
    ...(typeof code === 'string' && { code }),
    stack: error.stack,
    ...(error.cause !== undefined && causesLeft > 0 && { cause: loggedError(error.cause, causesLeft - 1) }),
  };
}
