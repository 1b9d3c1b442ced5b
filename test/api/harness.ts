/** The whole REST service on a database of its own, called in-process; every answer is held against the OpenAPI document. */
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { expect } from 'vitest';
import { z } from 'zod';
import { defaultPolicy, type Policy } from '../../domain/policy.ts';
import { createApi } from '../../src/api/server.ts';
import { createAuthenticator, mintToken, type Role } from '../../src/auth.ts';
import { connectDatabase, type Database } from '../../src/database/connection.ts';
import type { DriverNotice } from '../../src/gateway/notices.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import { DatabaseLeases } from '../../src/resource-leases/database-leases.ts';
import { recordPositions } from '../../src/leasing/transitions.ts';
import { createReadiness, databaseCheck } from '../../src/ops/health.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import type { CallerLimiter } from '../../src/rate-limit.ts';
import { Regions } from '../../src/regions.ts';
import { createTestDatabase } from '../support/database.ts';

export const SECRET = 'a secret of the tests, long enough for HS256';

/** Nothing lapses by itself while a test looks. */
export const calmPolicy: Policy = {
  ...defaultPolicy,
  deliveryTtlMs: 120_000,
  decisionTtlMs: 300_000,
  maxLifetimeMs: 600_000,
};

export interface Answer {
  readonly status: number;
  readonly headers: Record<string, unknown>;
  // Tests look into answers of every shape.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly body: any;
}

export interface Call {
  readonly as?: `${Role}:${string}`;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

export type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'DELETE' | 'PATCH';

export interface TestApi extends AsyncDisposable {
  readonly database: Database;
  /** What drivers were told. */
  readonly notices: DriverNotice[];
  /** Every position reported so far is in the records. */
  positionsWritten(): Promise<void>;
  /** Over real sockets as well; answers with the port. */
  listen(): Promise<number>;
  call(method: Method, path: string, call?: Call): Promise<Answer>;
}

export async function startTestApi(options: { policy?: Policy; mayAsk?: CallerLimiter } = {}): Promise<TestApi> {
  await using stack = new AsyncDisposableStack();
  const { url } = stack.use(await createTestDatabase());
  return await createTestApi({ ...options, url, stack: stack.move() });
}

/** On a database that nobody listens for any more. */
export async function startApiWithoutDatabase(): Promise<TestApi> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  const url = `postgres://nobody:secret-word@127.0.0.1:${port}/none`;
  return createTestApi({ url, stack: new AsyncDisposableStack() });
}

async function createTestApi(options: {
  readonly url: string;
  readonly policy?: Policy;
  readonly mayAsk?: CallerLimiter;
  readonly stack: AsyncDisposableStack;
}): Promise<TestApi> {
  const { stack } = options;
  const database = stack.use(connectDatabase(options.url, { hotConnections: 4, coldConnections: 4 }));
  const metrics = createMetrics();
  const notices: DriverNotice[] = [];
  const positions: Promise<void>[] = [];
  const app = await createApi({
    routes: 'all',
    database,
    metrics,
    regions: new Regions(database),
    resourceLeases: new DatabaseLeases({ database, secret: SECRET }),
    leasing: createLeasing(database, metrics, {
      tell: (_region, told) => void notices.push(...told),
      wake: () => {},
      regionId: String,
    }),
    authenticator: createAuthenticator(SECRET),
    mayAsk: options.mayAsk ?? (() => true),
    presence: { report: (region, report) => void positions.push(recordPositions(database.hot, region, [report])) },
    readiness: createReadiness({ database: databaseCheck(database) }),
    newRegionPolicy: options.policy ?? calmPolicy,
    log: { debug: () => {}, info: () => {}, warn: () => {}, error: (...said: unknown[]) => console.error(...said) },
  });
  stack.defer(() => app.close());
  await app.ready();
  const contract = contractOf(app.swagger() as unknown as OpenApi);

  return {
    database,
    notices,
    listen: async () => Number(new URL(await app.listen({ host: '127.0.0.1', port: 0 })).port),
    positionsWritten: async () => void (await Promise.all(positions)),
    async call(method, path, { as, body, headers = {} } = {}) {
      const auth = as === undefined ? {} : { authorization: `Bearer ${await tokenOf(as)}` };
      const sent = body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) };
      const type = body === undefined ? {} : { 'content-type': 'application/json' };
      const response = await app.inject({ method, url: path, headers: { ...type, ...auth, ...headers }, ...sent });
      const isJson = method !== 'HEAD' && String(response.headers['content-type']).includes('json');
      const answer = {
        status: response.statusCode,
        headers: response.headers,
        body: isJson ? (JSON.parse(response.body) as unknown) : response.body,
      };
      contract(method, path, answer);
      return answer;
    },
    [Symbol.asyncDispose]: () => stack.disposeAsync(),
  };
}

const tokens = new Map<string, Promise<string>>();

function tokenOf(as: string): Promise<string> {
  const [role, sub] = as.split(':') as [Role, string];
  if (!tokens.has(as)) tokens.set(as, mintToken(SECRET, { sub, role, ttlS: 3600 }));
  return tokens.get(as)!;
}

interface OpenApi {
  readonly paths: Record<string, Record<string, { responses: Record<string, { $ref?: string; content?: Contents }> }>>;
  readonly components: { schemas: Record<string, object>; responses: Record<string, { content: Contents }> };
}
type Contents = Record<string, { schema: object }>;

/** Fails the test when an answer isn't one that the document promises. */
function contractOf({ paths, components }: OpenApi): (method: Method, path: string, answer: Answer) => void {
  const templates = Object.keys(paths).map(
    (path) => [new RegExp(`^${path.replaceAll(/\{[^}]+\}/g, '[^/]+')}$`), paths[path]!] as const,
  );
  const compiled = new Map<object, z.ZodType>();
  const compile = (schema: object): z.ZodType => {
    const bundled = JSON.stringify({ ...schema, $defs: components.schemas });
    return z.fromJSONSchema(
      JSON.parse(bundled.replaceAll('#/components/schemas/', '#/$defs/')) as z.core.JSONSchema.JSONSchema,
    );
  };
  return (method, path, { status, headers, body }) => {
    const operations = templates.find(([template]) => template.test(path.split('?')[0]!))?.[1];
    const operation = operations?.[method.toLowerCase()];
    if (operation === undefined) return;
    const documented = operation.responses[status];
    expect(documented, `${method} ${path} answered ${status}, which isn't documented`).toBeDefined();
    const { content } =
      documented!.$ref === undefined ? documented! : components.responses[documented!.$ref.split('/').at(-1)!]!;
    const schema = content?.[String(headers['content-type']).split(';')[0]!]?.schema;
    expect(schema, `${method} ${path} ${status}: ${String(headers['content-type'])} isn't documented`).toBeDefined();
    if (!compiled.has(schema!)) compiled.set(schema!, compile(schema!));
    const checked = compiled.get(schema!)!.safeParse(body);
    if (!checked.success)
      expect.unreachable(`${method} ${path} ${status}: ${z.prettifyError(checked.error)} ${JSON.stringify(body)}`);
  };
}

export const CENTER = { lat: 40.75, lng: -73.98 };
export const NEARBY = { lat: 40.76, lng: -73.97 };
export const OPS = { as: 'ops:operator' } as const;
export const SERVICE = { as: 'service:backend' } as const;

export async function openRegion(api: Pick<TestApi, 'call'>, id = 'city'): Promise<void> {
  const region = { name: 'A city', center: CENTER, radiusM: 10_000 };
  expect((await api.call('PUT', `/v1/regions/${id}`, { ...OPS, body: region })).status).toBe(201);
}

/** A driver who is available, at the center. */
export async function openDriver(
  api: Pick<TestApi, 'call' | 'positionsWritten'>,
  id: string,
  regionId = 'city',
): Promise<void> {
  const as = `driver:${id}` as const;
  await must(api.call('PUT', `/v1/drivers/${id}`, { as, body: { regionId } }));
  await must(api.call('POST', `/v1/drivers/${id}/online`, { as }));
  await must(api.call('POST', `/v1/drivers/${id}/location`, { as, body: CENTER }));
  await api.positionsWritten();
}

export const rideBody = (riderId: string, regionId = 'city') => ({
  regionId,
  riderId,
  pickup: NEARBY,
  dropoff: CENTER,
});

export async function requestRide(api: Pick<TestApi, 'call'>, riderId = 'rider-1', regionId = 'city'): Promise<string> {
  const { body } = await must(
    api.call('POST', '/v1/rides', { as: `rider:${riderId}`, body: rideBody(riderId, regionId) }),
  );
  return (body as { id: string }).id;
}

export interface MadeOffer {
  readonly id: string;
  readonly leaseToken: string;
}

export async function makeOffer(api: Pick<TestApi, 'call'>, rideId: string, driverId: string): Promise<MadeOffer> {
  const { body } = await must(api.call('POST', `/v1/rides/${rideId}/offers`, { ...SERVICE, body: { driverId } }));
  return body as MadeOffer;
}

/** A ride with an accepted offer. */
export async function assignRide(
  api: Pick<TestApi, 'call'>,
  driverId: string,
  riderId = 'rider-1',
  regionId = 'city',
): Promise<{ rideId: string; offer: MadeOffer }> {
  const rideId = await requestRide(api, riderId, regionId);
  const offer = await makeOffer(api, rideId, driverId);
  const { leaseToken } = offer;
  await must(api.call('POST', `/v1/offers/${offer.id}/confirm`, { as: `driver:${driverId}`, body: { leaseToken } }));
  return { rideId, offer };
}

export async function must(asked: Promise<Answer>): Promise<Answer> {
  const answer = await asked;
  expect(answer.status, JSON.stringify(answer.body)).toBeOneOf([200, 201]);
  return answer;
}

/** Moves a driver's term into the past, as if that much time had gone by. */
export async function age({ database }: TestApi, driverId: string, bySeconds: number): Promise<void> {
  await database.cold`update driver_state set
      lease_granted_at = lease_granted_at - make_interval(secs => ${bySeconds}),
      lease_expires_at = lease_expires_at - make_interval(secs => ${bySeconds})
    where driver_id = ${driverId} and status = 'leased'`;
}
