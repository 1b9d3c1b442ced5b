import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { cycles, wrongArrows } from './boundaries.ts';
import { parseModules, readSources, ROOT } from './modules.ts';

const sources = readSources();
const modules = parseModules(sources);
const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<string, Record<string, string>>;
const packages = {
  dependencies: new Set(Object.keys(manifest['dependencies'] ?? {})),
  devDependencies: new Set(Object.keys(manifest['devDependencies'] ?? {})),
};

/** What is wrong once `source` stands at the end of the module (or is one of its own), and wasn't before. */
function planted(path: string, source: string): string[] {
  const changed = parseModules(new Map([[path, `${sources.get(path) ?? ''}\n${source}\n`]]));
  const before = new Set(wrongArrows(modules, packages));
  const others = modules.filter((module) => module.path !== path);
  return wrongArrows([...others, ...changed], packages).filter((arrow) => !before.has(arrow));
}

describe('the boundaries', () => {
  it('are checked on every module there is', () => {
    const files = globSync('**/*.ts', {
      cwd: ROOT,
      exclude: (path) => /(^|\/)(node_modules|data|coverage|\.guide-\d+)$/.test(path),
    });
    expect(files.length).toBeGreaterThan(100);
    expect(modules.length).toBeGreaterThanOrEqual(files.length);
    for (const part of ['domain/', 'src/', 'src/client/', 'simulator/', 'test/']) {
      expect(modules.filter(({ path }) => path.startsWith(part))).not.toEqual([]);
    }
    const imports = modules.reduce((sum, module) => sum + module.imports.length, 0);
    expect(imports).toBeGreaterThan(2 * modules.length);
  });

  it('hold: arrows point down only, to what package.json names', () => {
    expect(wrongArrows(modules, packages)).toEqual([]);
  });

  it('hold: no module imports itself, however far around', () => {
    expect(cycles(modules)).toEqual([]);
  });
});

describe('a wrong arrow is found', () => {
  it.each([
    ['from the domain to the service', 'domain/geo.ts', '../src/config.ts'],
    ['from the domain to a package', 'domain/geo.ts', 'zod'],
    ['from the domain to Node', 'domain/geo.ts', 'node:crypto'],
    ['from the service to the simulator', 'src/service.ts', '../simulator/world.ts'],
    ['from the service to the tests', 'src/service.ts', '../test/support/database.ts'],
    ['from the service to a package for development', 'src/service.ts', 'fast-check'],
    ['from anywhere to a package that package.json lacks', 'src/service.ts', 'left-pad'],
    ['from the clients to the service', 'src/client/rest.ts', '../auth.ts'],
    ['from the simulator to the service', 'simulator/world.ts', '../src/service.ts'],
    ['from the simulator to the lease engine', 'simulator/world.ts', '../src/leasing/leasing.ts'],
    ['from the benchmark to the REST API', 'bench/planted.ts', '../src/api/server.ts'],
    ['from anywhere to nowhere', 'src/service.ts', './no-such-module.ts'],
  ])('%s', (_, from, to) => {
    expect(planted(from, `import '${to}';`)).toEqual([expect.stringMatching(`^${from}:\\d+ → ${to}: `)]);
  });

  it.each([
    ['a type', `import type { Config } from '../src/config.ts';`],
    ['a type among its statements', `export type Planted = import('../src/config.ts').Config;`],
    ['a value', `import { readConfig } from '../src/config.ts';`],
    ['everything', `import * as config from '../src/config.ts';`],
    ['something passed on', `export { readConfig } from '../src/config.ts';`],
    ['everything passed on', `export * from '../src/config.ts';`],
    ['while running', `await import('../src/config.ts');`],
    ['in two lines', `import {\n  readConfig,\n} from\n  '../src/config.ts';`],
  ])('when it imports %s', (_, source) => {
    expect(planted('domain/geo.ts', source)).toEqual([expect.stringContaining('→ ../src/config.ts: ')]);
  });

  it('when nobody can tell where it leads', () => {
    expect(planted('src/service.ts', `const name = './config.ts'; await import(name);`)).toHaveLength(1);
  });

  it('when its module belongs to no part of the tree', () => {
    expect(planted('helpers/planted.ts', '')).toEqual(['helpers/planted.ts: belongs to no part of the tree']);
  });

  it('when it closes a circle, also of types', () => {
    const circle = new Map([
      ['src/a.ts', `import './b.ts';`],
      ['src/b.ts', `import type { C } from './c.ts';`],
      ['src/c.ts', `export type C = string; export * from './a.ts';`],
    ]);
    expect(cycles(parseModules(circle))).toEqual(['src/a.ts → src/b.ts → src/c.ts → src/a.ts']);
  });

  it('but one that is allowed is not', () => {
    expect(planted('bench/planted.ts', `import '../src/leasing/leasing.ts';\nimport 'fast-check';`)).toEqual([]);
    expect(planted('simulator/world.ts', `import '../src/client/rest.ts';\nimport '../domain/geo.ts';`)).toEqual([]);
  });
});
