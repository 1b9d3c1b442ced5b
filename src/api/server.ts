/** The REST service: fastify, the routes of each resource, and what holds for all of them. */
import type { IncomingMessage } from 'node:http';
import fastify, { type FastifyReply, type FastifyRequest, type RouteOptions } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { defaultPolicy } from '../../domain/policy.ts';
import { createAuthenticator } from '../auth.ts';
import { leaseBounds } from '../client/leases/contract.ts';
import { connectDatabase } from '../database/connection.ts';
import { createLeasing } from '../leasing/leasing.ts';
import { createMetrics } from '../ops/metrics.ts';
import { Regions } from '../regions.ts';
import { DatabaseLeases } from '../resource-leases/database-leases.ts';
import { blockRoutes } from './blocks.ts';
import type { ApiDeps, App } from './context.ts';
import { driverRoutes } from './drivers.ts';
import { leaseRoutes } from './leases.ts';
import { answerBrokenRequest, createErrorHandler } from './errors.ts';
import { offerRoutes } from './offers.ts';
import { describeRoutes } from './openapi.ts';
import { ApiProblem } from './problem.ts';
import { regionRoutes } from './regions.ts';
import { guard, validatorCompiler } from './requests.ts';
import { rideOperationRoutes } from './ride-operations.ts';
import { rideRoutes } from './rides.ts';
import { documentationRoutes, opsRoutes } from './service.ts';
import { webhookRoutes } from './webhooks.ts';
import { workRoutes } from './work.ts';

const BODY_MAX_BYTES = 16 * 1024;
/** Ids of any length get as far as being told that they have the wrong form. */
const PARAM_MAX_CHARS = 1_024;
/** A slow sender is cut off only with the first below the second, and looked for this often. */
const HEADERS_DEADLINE_MS = 5_000;
const REQUEST_DEADLINE_MS = 10_000;
const DEADLINES_CHECKED_EVERY_MS = 1_000;
/** Longer than proxies and clients keep a connection, so that the end is theirs: ours would cross a request. */
const KEEP_ALIVE_MS = 72_000;
/** Longer than the database's own deadlines; what queues for it longer than this is answered all the same. */
const ANSWER_DEADLINE_MS = 10_000;
/** Requests that may wait for an answer at a time; more are refused at once. */
const IN_FLIGHT_MAX = 5_000;
/** Those that wait for others' leases: their clients' wait, and the deadline of everything after it. */
const WAIT_DEADLINE_MS = leaseBounds.waitMs.max + ANSWER_DEADLINE_MS;
const WAITING_MAX = 10_000;

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const;

/** Registers everything; listening and closing are the caller's. Closing finishes what is in hand. */
export async function createApi(deps: ApiDeps): Promise<App> {
  const app: App = fastify({
    // What is wrong on our side is logged by the error handler; nothing else is, on a path this hot.
    logger: false,
    bodyLimit: BODY_MAX_BYTES,
    routerOptions: { maxParamLength: PARAM_MAX_CHARS },
    requestTimeout: REQUEST_DEADLINE_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    http: {
      headersTimeout: HEADERS_DEADLINE_MS,
      connectionsCheckingInterval: DEADLINES_CHECKED_EVERY_MS,
      // Left to itself, Node hands every upgrade over once somebody listens for websockets.
      shouldUpgradeCallback: (request) => app.server.listenerCount('upgrade') > 0 && asksForWebsocket(request),
    },
    forceCloseConnections: 'idle',
    // A request that crosses our closing is served, and its connection closed after it.
    return503OnClosing: false,
    clientErrorHandler: answerBrokenRequest,
    frameworkErrors: (error, request, reply) => void handleError(error, request, reply as FastifyReply),
  }).withTypeProvider<ZodTypeProvider>();
  const handleError = createErrorHandler(deps.log);

  app.setErrorHandler(handleError);
  app.setValidatorCompiler(validatorCompiler);
  app.decorateRequest('identity');
  readBodies(app);
  holdForAll(app);
  const methodsByUrl = collectMethods(app);
  if (deps.routes === 'all') {
    await describeRoutes(app);
    await app.register(async (v1: App) => versionOne(v1, deps), { prefix: '/v1' });
    await documentationRoutes(app);
  }
  opsRoutes(app, deps);
  refuseOtherMethods(app, methodsByUrl);
  return app;
}

/** Any other upgrade is an offer that may be ignored (RFC 9110, 7.8): clients that would rather speak HTTP/2 send one. */
const asksForWebsocket = ({ headers }: IncomingMessage): boolean => headers.upgrade?.toLowerCase() === 'websocket';

function versionOne(v1: App, deps: ApiDeps): void {
  boundRequests(v1);
  v1.addHook('onRoute', (route) => guardRoute(route, deps));
  regionRoutes(v1, deps);
  rideRoutes(v1, deps);
  rideOperationRoutes(v1, deps);
  driverRoutes(v1, deps);
  blockRoutes(v1, deps);
  offerRoutes(v1, deps);
  leaseRoutes(v1, deps);
  webhookRoutes(v1, deps);
  workRoutes(v1, deps);
}

/** The API's description without a service around it; nothing is connected to. */
export async function openApiDocument(): Promise<object> {
  await using database = connectDatabase('postgres://nobody@localhost/none');
  const metrics = createMetrics();
  const app = await createApi({
    routes: 'all',
    database,
    metrics,
    regions: new Regions(database),
    leasing: createLeasing(database, metrics, { tell: () => {}, wake: () => {}, regionId: String }),
    resourceLeases: new DatabaseLeases({ database, secret: '' }),
    authenticator: createAuthenticator('describing an API takes no secret'),
    mayAsk: () => true,
    presence: { report: () => {} },
    readiness: async () => ({ ok: true, checks: {} }),
    newRegionPolicy: defaultPolicy,
    log: { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} },
  });
  await app.ready();
  const document = app.swagger();
  await app.close();
  return document;
}

/** JSON only. An empty body is none at all: clients name its type all the same. */
function readBodies(app: App): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') return done(null, undefined);
    void parse(request, body as string, (error: Error | null, value?: unknown) => {
      // Further on, null is how fastify says that there was no body.
      done(error ?? (value === null ? notAnObject() : null), value);
    });
  });
}

const notAnObject = (): ApiProblem =>
  new ApiProblem('invalid_request', { errors: [{ path: 'body', message: 'must be an object' }] });

function holdForAll(app: App): void {
  // Fastify tells only the requests that come after its closing began to let go of their connections. Those in hand
  // would be kept alive by clients with nothing more to ask, and the drain would wait for them in vain.
  let isClosing = false;
  app.addHook('preClose', (done) => {
    isClosing = true;
    done();
  });
  app.addHook('onSend', (_request: FastifyRequest, reply: FastifyReply, payload, done) => {
    if (isClosing) reply.header('connection', 'close');
    done(null, payload);
  });
  app.addHook('onRequest', (request: FastifyRequest, reply: FastifyReply, done) => {
    reply.header('x-content-type-options', 'nosniff').header('cache-control', 'no-store');
    done(request.is404 ? new ApiProblem('route_not_found') : undefined);
  });
  app.addHook('onRoute', serialiseBySchema);
}

/**
 * No more than so many requests wait for an answer, and none for ever; whoever asks for health is answered all the
 * same. The waiting are looked through once a second: fastify's own timer for each, with its signal, cost a tenth of
 * a request.
 */
function boundRequests(v1: App): void {
  const working = inFlight(IN_FLIGHT_MAX, ANSWER_DEADLINE_MS);
  const queueing = inFlight(WAITING_MAX, WAIT_DEADLINE_MS);
  const group = ({ routeOptions }: FastifyRequest): InFlight =>
    routeOptions.config.waits === true ? queueing : working;
  v1.addHook('onRequest', (request: FastifyRequest, reply: FastifyReply, done) => {
    done(group(request).enter(reply) ? undefined : new ApiProblem('overloaded'));
  });
  v1.addHook('preValidation', (request: FastifyRequest, reply: FastifyReply, done) => {
    group(request).hasArrived(reply);
    done();
  });
  const looking = setInterval(() => {
    working.endOverdue();
    queueing.endOverdue();
  }, DEADLINES_CHECKED_EVERY_MS).unref();
  v1.addHook('onClose', () => clearInterval(looking));
}

/** Of a request whose end is still on its way: how long that may take is Node's to watch. */
const STILL_ARRIVING = Infinity;

type InFlight = ReturnType<typeof inFlight>;

function inFlight(max: number, deadlineMs: number) {
  const arrivals = new Map<FastifyReply, number>();
  return {
    enter(reply: FastifyReply): boolean {
      if (arrivals.size >= max) return false;
      arrivals.set(reply, STILL_ARRIVING);
      reply.raw.once('close', () => arrivals.delete(reply));
      return true;
    },
    hasArrived(reply: FastifyReply): void {
      if (arrivals.delete(reply)) arrivals.set(reply, performance.now());
    },
    endOverdue(): void {
      const sinceMs = performance.now() - deadlineMs;
      // Of those that have arrived, the ones that have waited longest come first.
      for (const [reply, arrivedAtMs] of arrivals) {
        if (arrivedAtMs === STILL_ARRIVING) continue;
        if (arrivedAtMs > sinceMs) break;
        if (!reply.sent) reply.send(new ApiProblem('no_answer_in_time'));
      }
    },
  };
}

/** Whoever adds a route below /v1 says for whom it is. */
function guardRoute(route: RouteOptions, deps: ApiDeps): void {
  const roles = route.config?.roles;
  if (roles === undefined) throw new Error(`${route.url} doesn’t say for which roles it is`);
  route.onRequest = guard(deps, roles);
}

/**
 * Answers are serialised by fastify's own serialiser, compiled from the schema: only fields that it names go out.
 * For a ride that took 2.7 µs, JSON.stringify 2.0, zod's encoding before it 5.0. The description is made from zod's.
 */
function serialiseBySchema(route: RouteOptions): void {
  const answers = route.schema?.response as Record<string, z.ZodType> | undefined;
  if (answers === undefined || !Object.values(answers).every((answer) => answer instanceof z.ZodType)) return;
  const response = Object.entries(answers).map(([status, answer]) => [status, z.toJSONSchema(answer, SERIALISED)]);
  route.config = { ...route.config, answers };
  route.schema = { ...route.schema, response: Object.fromEntries(response) };
}

/** A serialiser needs to know the fields and their types; forms were checked on the way in, and cost it half as much again. */
const SERIALISED: z.core.ToJSONSchemaParams = {
  target: 'draft-7',
  metadata: z.registry(),
  override({ jsonSchema }) {
    delete jsonSchema.format;
    delete jsonSchema.pattern;
  },
};

function collectMethods(app: App): Map<string, Set<string>> {
  const methodsByUrl = new Map<string, Set<string>>();
  app.addHook('onRoute', ({ url, method, schema }) => {
    // Those of a page that comes with a plugin are the plugin's.
    if (schema?.operationId === undefined) return;
    const methods = methodsByUrl.get(url) ?? new Set();
    methodsByUrl.set(url, methods);
    for (const each of [method].flat()) methods.add(each);
  });
  return methodsByUrl;
}

function refuseOtherMethods(app: App, methodsByUrl: ReadonlyMap<string, ReadonlySet<string>>): void {
  for (const [url, known] of methodsByUrl) {
    const others = METHODS.filter((method) => !known.has(method));
    const refuse = (_request: FastifyRequest, _reply: FastifyReply, done: (error: Error) => void): void =>
      done(new ApiProblem('method_not_allowed', { headers: { allow: [...known].join(', ') } }));
    app.route({ method: others, url, schema: { hide: true }, onRequest: refuse, handler: () => {} });
  }
}
