import { describe, expect, test } from 'vitest';
import { defaultPolicy } from '../domain/policy.ts';
import { ConfigError, readConfig, ROLES } from '../src/config.ts';

const SECRET = 'a secret of thirty-two bytes or more';
const DATABASE_URL = 'postgres://user:word@127.0.0.1:5432/cabrank';

function problemsOf(env: Record<string, string>): readonly string[] {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

test('with no settings everything runs on the embedded database', () => {
  expect(readConfig({})).toMatchObject({
    host: '127.0.0.1',
    port: 3000,
    databaseUrl: null,
    redisUrl: null,
    authSecret: null,
    newRegionPolicy: defaultPolicy,
  });
  expect([...readConfig({}).roles]).toEqual([...ROLES]);
});

test('an empty setting is an absent one', () => {
  expect(readConfig({ DATABASE_URL: '', REDIS_URL: '', AUTH_SECRET: '', POLICY: '' })).toEqual(readConfig({}));
});

test('POLICY changes what it names and nothing else', () => {
  const { newRegionPolicy } = readConfig({ POLICY: '{"decisionTtlMs": 20000}' });
  expect(newRegionPolicy).toEqual({ ...defaultPolicy, decisionTtlMs: 20_000 });
});

describe('a setting that cannot work is named', () => {
  test.each([
    [
      'a lease term shorter than the push retry',
      { POLICY: '{"deliveryTtlMs": 500, "pushRetryMs": 1000}' },
      /^POLICY: deliveryTtlMs .*pushRetryMs/,
    ],
    ['a negative radius step', { POLICY: '{"searchRadiusStepM": -1}' }, /^POLICY: searchRadiusStepM /],
    ['an unknown policy setting', { POLICY: '{"radius": 1}' }, /^POLICY: there is no setting radius/],
    ['a policy that is no JSON', { POLICY: '{' }, /^POLICY: must be a JSON object/],
    ['a policy that is null', { POLICY: 'null' }, /^POLICY: must be a JSON object/],
    ['a policy that is a list', { POLICY: '[1]' }, /^POLICY: must be a JSON object/],
    ['a missing secret with DATABASE_URL', { DATABASE_URL }, /^AUTH_SECRET: is required with DATABASE_URL/],
    ['a short secret', { AUTH_SECRET: 'short' }, /^AUTH_SECRET: must have at least 32 bytes/],
    ['an unknown role', { ROLES: 'api,driver' }, /^ROLES: must be a list of/],
    ['no role', { ROLES: '' }, /^ROLES: /],
    ['a port out of range', { PORT: '70000' }, /^PORT: /],
    ['a port that is no number', { PORT: 'http' }, /^PORT: /],
    [
      'a database of another kind',
      { DATABASE_URL: 'mysql://h/d', AUTH_SECRET: SECRET },
      /^DATABASE_URL: must be a URL such as/,
    ],
    ['a queue of another kind', { REDIS_URL: 'http://h' }, /^REDIS_URL: must be a URL such as/],
    ['a fault rate above one', { MATCHER_FAULT_RATE: '2' }, /^MATCHER_FAULT_RATE: /],
    ['an unknown log level', { LOG_LEVEL: 'loud' }, /^LOG_LEVEL: /],
  ] as [string, Record<string, string>, RegExp][])('%s', (_what, env, named) => {
    expect(problemsOf(env)).toEqual([expect.stringMatching(named)]);
  });

  test('all at once, so that one start shows them all', () => {
    const problems = problemsOf({ PORT: '-1', ROLES: 'pilot', DATABASE_URL, POLICY: '{"searchRadiusStepM": -1}' });
    expect(problems.map((problem) => problem.split(':')[0]).sort()).toEqual(['AUTH_SECRET', 'POLICY', 'PORT', 'ROLES']);
  });
});
