import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readConfig, ROLES } from '../../src/config.ts';
import { EMBEDDED_SETTINGS } from '../../src/database/embedded/settings.ts';
import { ROOT } from './modules.ts';

interface Service {
  readonly image: string;
  readonly build?: string;
  readonly command?: string | readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly deploy?: { readonly replicas?: number };
  readonly stop_grace_period?: string;
}

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const { services } = parse(read('docker-compose.yml'), { merge: true }) as { services: Record<string, Service> };
const ours = Object.entries(services).filter(([, { build }]) => build !== undefined);
const byRole = ours.filter(([, { environment }]) => environment?.['ROLES'] !== undefined);
const rolesOf = ({ environment }: Service): string[] => environment?.['ROLES']?.split(',') ?? [];

const GIVEN: Readonly<Record<string, string>> = { AUTH_SECRET: 'a secret of the test, 32 bytes or more' };

/** Compose's own substitution, as far as the file uses it: `${NAME:-default}` and `${NAME:?message}`. */
function substitute(text: string, given = GIVEN): string {
  return text.replace(/\$\{(\w+)(?::([-?])([^}]*))?\}/g, (_, name: string, kind: string | undefined, rest: string) => {
    const value = given[name];
    if (value !== undefined) return value;
    if (kind !== '-') throw new Error(`${name} is not set`);
    return rest;
  });
}

const environmentOf = ({ environment = {} }: Service): Record<string, string> =>
  Object.fromEntries(Object.entries(environment).map(([name, value]) => [name, substitute(value)]));

/** The names that the settings are read by, told by reading them. */
function settingsRead(): ReadonlySet<string> {
  const names = new Set<string>();
  const note = (name: string | symbol): void => void (typeof name === 'string' && names.add(name));
  const watched = new Proxy<Record<string, string>>(
    {},
    {
      get: (env, name) => {
        note(name);
        return Reflect.get(env, name) as unknown;
      },
      has: (env, name) => {
        note(name);
        return Reflect.has(env, name);
      },
    },
  );
  readConfig(watched);
  return names;
}

describe('docker-compose.yml', () => {
  it('runs every role, matchers more than once and beside the API, and nothing that is no role', () => {
    expect(byRole.flatMap(([, service]) => rolesOf(service)).toSorted()).toEqual([...ROLES].toSorted());
    expect(rolesOf(services['api']!)).toEqual(['api', 'matcher']);
    expect(services['api']?.deploy?.replicas).toBeGreaterThan(1);
  });

  it.each(ours)('gives %s settings that exist and can work', (name, service) => {
    const environment = environmentOf(service);
    const known = settingsRead();
    expect(known).toContain('AUTH_SECRET');
    expect(Object.keys(environment).filter((setting) => !known.has(setting))).toEqual([]);
    const config = readConfig(environment);
    expect(config).toMatchObject({ authSecret: GIVEN['AUTH_SECRET'], port: 3000 });
    expect(config.databaseUrl).toContain('@postgres:5432/');
    if (name !== 'migrate') expect([...config.roles]).toEqual(rolesOf(service));
  });

  it('has no secret of its own: without AUTH_SECRET nothing starts', () => {
    for (const [, { environment }] of ours) {
      expect(() => substitute(environment?.['AUTH_SECRET'] ?? '', {})).toThrow('AUTH_SECRET is not set');
    }
  });

  it.each(byRole)('waits for the migration before %s, asks whether it is ready, and lets it drain', (_, service) => {
    expect(service.depends_on?.['migrate']?.condition).toBe('service_completed_successfully');
    expect(service.healthcheck?.test.join(' ')).toContain('127.0.0.1:3000/readyz');
    expect(Number.parseInt(service.stop_grace_period ?? '', 10)).toBeGreaterThan(10);
  });

  it('migrates once, as soon as the database is there', () => {
    const migrate = services['migrate'];
    expect(migrate).toMatchObject({ command: ['migrate'], restart: 'on-failure' });
    expect(migrate?.depends_on).toEqual({ postgres: { condition: 'service_healthy' } });
  });

  it('depends on services that exist', () => {
    const names = Object.values(services).flatMap((service) => Object.keys(service.depends_on ?? {}));
    expect(names.filter((name) => services[name] === undefined)).toEqual([]);
  });

  it('tells PostgreSQL what the embedded database is told', () => {
    expect(services['postgres']?.image).toBe('postgres:18');
    const settings = String(services['postgres']?.command).matchAll(/ -c (\w+)=(\S+)/g);
    expect(Object.fromEntries([...settings].map(([, name, value]) => [name, value]))).toEqual(EMBEDDED_SETTINGS);
  });

  it('makes the queue look 100 times a second for what is due, and forget nothing by itself', () => {
    expect(services['valkey']?.command).toEqual(expect.arrayContaining(['--hz', '100', 'noeviction']));
  });
});

describe('the Dockerfile', () => {
  const lines = read('Dockerfile').split('\n');
  const allowed = read('.dockerignore')
    .split('\n')
    .filter((line) => line.startsWith('!'))
    .map((line) => line.slice(1));
  const copied = lines
    .filter((line) => line.startsWith('COPY ') && !line.includes('--from'))
    .flatMap((line) => line.split(' ').slice(1, -1));

  it('copies what exists, and what .dockerignore lets through', () => {
    expect(copied.filter((path) => !existsSync(join(ROOT, path)))).toEqual([]);
    expect([...new Set(copied)].toSorted()).toEqual(allowed.toSorted());
  });

  it('listens beyond the container, and not as root', () => {
    const env = lines.find((line) => line.startsWith('ENV ')) ?? '';
    const settings = Object.fromEntries(
      env
        .slice(4)
        .split(' ')
        .map((pair) => pair.split('=') as [string, string]),
    );
    expect(readConfig(settings).host).toBe('0.0.0.0');
    expect(lines).toContain('USER node');
  });
});
