/** The service, as processes start it, on a fresh test database. */
import { randomBytes } from 'node:crypto';
import { defaultPolicy, type Policy } from '../../domain/policy.ts';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { signToken, type Role as TokenRole } from '../../src/client/token.ts';
import { ROLES, type Role } from '../../src/config.ts';
import { defaultRateLimits, type RateLimits } from '../../src/rate-limit.ts';
import { startService, type Service } from '../../src/service.ts';
import { createTestDatabase } from './database.ts';

export interface TestService extends AsyncDisposable {
  readonly databaseUrl: string;
  readonly secret: string;
  /** Of each process, in the order asked. */
  readonly services: readonly Service[];
  /** The first process that has the role. */
  readonly urlOf: (role: Role) => string;
  readonly token: (role: TokenRole, sub: string) => Promise<string>;
}

export interface TestServiceOptions {
  /** The roles of each process; one process of all roles by default. */
  readonly processes?: readonly (readonly Role[])[];
  readonly policy?: Partial<Policy>;
  readonly redisUrl?: string | null;
  readonly rateLimits?: RateLimits;
}

export const CITY = { name: 'A city', center: { lat: 40.75, lng: -73.98 }, radiusM: 10_000 };

export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const processes = options.processes ?? [ROLES];
  await using stack = new AsyncDisposableStack();
  const { url: databaseUrl } = stack.use(await createTestDatabase());
  const secret = randomBytes(32).toString('base64url');
  const services: Service[] = [];
  for (const roles of processes) {
    const service = await startService({
      roles: new Set(roles),
      host: '127.0.0.1',
      port: 0,
      databaseUrl,
      redisUrl: options.redisUrl ?? null,
      isAlone: processes.length === 1,
      authSecret: secret,
      newRegionPolicy: { ...defaultPolicy, ...options.policy },
      rateLimits: options.rateLimits ?? defaultRateLimits,
      hotConnections: 4,
      matcherFaultRate: 0,
      log: { debug: () => {}, info: () => {}, warn: () => {}, error: (...said: unknown[]) => console.error(...said) },
    });
    stack.defer(() => service.drain());
    services.push(service);
  }
  const all = stack.move();
  return {
    databaseUrl,
    secret,
    services,
    urlOf: (role) => services[processes.findIndex((roles) => roles.includes(role))]!.url,
    token: (role, sub) => signToken({ secret, sub, role, ttlS: 600 }),
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
}

/** Opens the region `city` and the profiles of these drivers. */
export async function openCity(service: TestService, driverIds: readonly string[]): Promise<void> {
  const operator = new OperatorClient({ url: service.urlOf('api'), token: await service.token('ops', 'operator') });
  try {
    await operator.putRegion('city', CITY);
    for (const driverId of driverIds) await operator.putDriver(driverId, { regionId: 'city' });
  } finally {
    operator.close();
  }
}
