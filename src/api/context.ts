/** What the routes are given, and what they declare about themselves. */
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { ZodType } from 'zod';
import type { Policy } from '../../domain/policy.ts';
import type { Authenticator, Identity, Role } from '../auth.ts';
import type { Database } from '../database/connection.ts';
import type { Leasing } from '../leasing/leasing.ts';
import type { PositionReport } from '../leasing/transitions.ts';
import type { Readiness } from '../ops/health.ts';
import type { Logger } from '../ops/log.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { CallerLimiter } from '../rate-limit.ts';
import type { Region, Regions } from '../regions.ts';
import type { DatabaseLeases } from '../resource-leases/database-leases.ts';
import { ApiProblem, type ProblemCode } from './problem.ts';

export interface ApiDeps {
  /** `ops`: a process without the api role answers for its health and metrics alone. */
  readonly routes: 'all' | 'ops';
  readonly database: Database;
  readonly regions: Regions;
  readonly leasing: Leasing;
  readonly resourceLeases: DatabaseLeases;
  readonly authenticator: Authenticator;
  readonly mayAsk: CallerLimiter;
  readonly metrics: Metrics;
  /** Takes a position to be written with others soon. */
  readonly presence: { report(region: number, report: PositionReport): void };
  readonly readiness: () => Promise<Readiness>;
  /** What a new region runs under. */
  readonly newRegionPolicy: Policy;
  readonly log: Logger;
}

export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  ZodTypeProvider
>;

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Who may call the route. Every route below /v1 must say so. */
    roles?: readonly Role[];
    /** How the route refuses, beside what every route may answer. */
    problems?: readonly ProblemCode[];
    /** The route takes an `Idempotency-Key`. */
    idempotent?: boolean;
    /** The route may wait for others, for up to a minute. */
    waits?: boolean;
    /** The route's answers by status, as the description wants them; kept by whoever compiles the serialisers. */
    answers?: Readonly<Record<string, ZodType>>;
  }
  interface FastifyRequest {
    /** Set before anything else of a request below /v1 is looked at. */
    identity: Identity;
  }
}

export async function regionById(regions: Regions, id: string): Promise<Region> {
  const region = await regions.byId(id);
  if (region === null) throw new ApiProblem('region_not_found');
  return region;
}

/** The region that a ride's or offer's id names; `missing` is what to say when there is none. */
export async function regionByNumber(
  regions: Regions,
  number: number | null,
  missing: 'ride_not_found' | 'offer_not_found' | 'driver_not_found',
): Promise<Region> {
  const region = number === null ? null : await regions.byNumber(number);
  if (region === null) throw new ApiProblem(missing);
  return region;
}
