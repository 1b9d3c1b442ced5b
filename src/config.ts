/** Every setting of a process, read from the environment and checked at once: what is wrong is named before anything starts. */
import { z } from 'zod';
import { defaultPolicy, policyProblems, type Policy } from '../domain/policy.ts';
import { DEFAULT_DATA_DIR } from './data-folder.ts';
import { defaultRateLimits, type RateLimits } from './rate-limit.ts';

export const ROLES = ['api', 'gateway', 'matcher', 'sweeper', 'outbox'] as const;
export type Role = (typeof ROLES)[number];

export interface Config {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly roles: ReadonlySet<Role>;
  /** Null: the embedded database of `dataDir`. */
  readonly databaseUrl: string | null;
  readonly dataDir: string;
  readonly redisUrl: string | null;
  /** Null: made once and kept in the data folder. */
  readonly authSecret: string | null;
  /** What a new region runs under. */
  readonly newRegionPolicy: Policy;
  readonly rateLimits: RateLimits;
  readonly hotConnections: number;
  /** Share of match rounds that fail on purpose, for rehearsals. */
  readonly matcherFaultRate: number;
  readonly logLevel: string;
}

/** Everything that is wrong with the settings, one line each. */
export class ConfigError extends Error {
  override name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`the settings can't work:\n${problems.map((problem) => `  ${problem}`).join('\n')}`);
    this.problems = problems;
  }
}

const SECRET_MIN_BYTES = 32;

const url = (protocols: RegExp, example: string) =>
  z.url({ protocol: protocols, error: `must be a URL such as ${example}` });
const rate = z.coerce.number().int().min(1).max(1_000_000);
const emptyIsAbsent = (value: unknown): unknown => (value === '' ? undefined : value);

const environment = z.object({
  HOST: z.string().min(1).default('127.0.0.1'),
  PORT: z.coerce.number().int().min(0).max(65_535).default(3000),
  ROLES: z
    .string()
    .default(ROLES.join(','))
    .transform((list) => list.split(',').map((role) => role.trim()))
    .pipe(z.array(z.enum(ROLES, { error: `must be a list of ${ROLES.join(', ')}` })).min(1)),
  DATABASE_URL: z.preprocess(
    emptyIsAbsent,
    url(/^postgres(ql)?$/, 'postgres://user:password@host:5432/cabrank').optional(),
  ),
  REDIS_URL: z.preprocess(emptyIsAbsent, url(/^rediss?$/, 'redis://host:6379').optional()),
  DATA_DIR: z.string().min(1).default(DEFAULT_DATA_DIR),
  AUTH_SECRET: z.preprocess(
    emptyIsAbsent,
    z
      .string()
      .refine((secret) => Buffer.byteLength(secret) >= SECRET_MIN_BYTES, {
        error: `must have at least ${SECRET_MIN_BYTES} bytes (openssl rand -base64 32)`,
      })
      .optional(),
  ),
  POLICY: z.preprocess(emptyIsAbsent, z.string().optional()),
  HOT_CONNECTIONS: z.coerce.number().int().min(4).max(200).default(10),
  DEVICE_REQUESTS_PER_S: rate.default(defaultRateLimits.devicePerS),
  SERVICE_REQUESTS_PER_S: rate.default(defaultRateLimits.servicePerS),
  MATCHER_FAULT_RATE: z.coerce.number().min(0).max(1).default(0),
  LOG_LEVEL: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
});

/** Reads the settings; throws ConfigError that names each one that can't work. */
export function readConfig(env: Readonly<Record<string, string | undefined>>): Config {
  const parsed = environment.safeParse(env);
  const problems = parsed.success
    ? []
    : parsed.error.issues.map((issue) => `${issue.path[0] as string}: ${issue.message}`);
  const policy = readPolicy(env['POLICY'], problems);
  if (env['DATABASE_URL'] && !env['AUTH_SECRET']) {
    problems.push('AUTH_SECRET: is required with DATABASE_URL, so that every process checks the same tokens');
  }
  if (!parsed.success || problems.length > 0) throw new ConfigError(problems);
  const settings = parsed.data;
  return {
    host: settings.HOST,
    port: settings.PORT,
    roles: new Set(settings.ROLES),
    databaseUrl: settings.DATABASE_URL ?? null,
    dataDir: settings.DATA_DIR,
    redisUrl: settings.REDIS_URL ?? null,
    authSecret: settings.AUTH_SECRET ?? null,
    newRegionPolicy: policy,
    rateLimits: { devicePerS: settings.DEVICE_REQUESTS_PER_S, servicePerS: settings.SERVICE_REQUESTS_PER_S },
    hotConnections: settings.HOT_CONNECTIONS,
    matcherFaultRate: settings.MATCHER_FAULT_RATE,
    logLevel: settings.LOG_LEVEL,
  };
}

/** `POLICY` is a JSON object of the policy's settings that shall differ from the defaults. */
function readPolicy(text: string | undefined, problems: string[]): Policy {
  if (text === undefined || text === '') return defaultPolicy;
  const changes = parseObject(text);
  if (changes === null) {
    problems.push('POLICY: must be a JSON object such as {"decisionTtlMs": 20000}');
    return defaultPolicy;
  }
  const unknown = Object.keys(changes).filter((setting) => !(setting in defaultPolicy));
  for (const setting of unknown) problems.push(`POLICY: there is no setting ${setting}`);
  const policy = { ...defaultPolicy, ...changes };
  for (const { setting, problem } of policyProblems(policy)) problems.push(`POLICY: ${setting} ${problem}`);
  return policy;
}

function parseObject(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
