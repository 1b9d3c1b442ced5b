/** Structured logs through fastify's own logger; everything that logs takes this much of it. */
import type { FastifyBaseLogger } from 'fastify';

export type Logger = Pick<FastifyBaseLogger, 'debug' | 'info' | 'warn' | 'error'>;
