/** Which way the arrows point, and what is wrong with a set of modules. */
import { resolve, type Module } from './modules.ts';

interface Part {
  /** A path, or how a path starts; the first part that fits a module is its own. */
  readonly of: string;
  /** Paths, or how they start, that it may import beside itself. */
  readonly imports: readonly string[];
  /** `none`: not even Node's own modules. `development`: also packages that are only installed to work on the project. */
  readonly packages: 'none' | 'production' | 'development';
}

const EVERYTHING = '';

/** Processes started by path (the simulator and the benchmark by `cabrank`) are no arrows: they share no code. */
const PARTS: readonly Part[] = [
  { of: 'domain/', imports: [], packages: 'none' },
  { of: 'src/client/', imports: ['domain/'], packages: 'production' },
  { of: 'src/', imports: ['domain/', 'package.json'], packages: 'production' },
  { of: 'simulator/', imports: ['domain/', 'src/client/'], packages: 'production' },
  // The benchmark's floor is the transitions without the service around them; its rounds have the simulator's trips.
  {
    of: 'bench/',
    imports: ['domain/', 'src/client/', 'src/leasing/', 'src/resource-leases/', 'src/database/', 'simulator/demand/'],
    packages: 'development',
  },
  // What it breaks are processes; it shares the history's format with the checker, and the embedded server with the service.
  {
    of: 'chaos/',
    imports: ['domain/', 'src/client/', 'src/verify/history.ts', 'src/database/embedded.ts', 'bench/machine.ts'],
    packages: 'production',
  },
  { of: 'model/', imports: [], packages: 'development' },
  // The mutations of the SQL are judged by the tests, on databases of theirs.
  { of: 'scripts/', imports: ['src/database/', 'test/leasing/', 'test/support/'], packages: 'development' },
  { of: 'test/', imports: [EVERYTHING], packages: 'development' },
  { of: 'drizzle.config.ts', imports: [], packages: 'development' },
  { of: 'vitest.config.ts', imports: [], packages: 'development' },
];

export interface Packages {
  readonly dependencies: ReadonlySet<string>;
  readonly devDependencies: ReadonlySet<string>;
}

/** Every arrow that may not be, as `from:line → to: why`. */
export function wrongArrows(modules: readonly Module[], packages: Packages): string[] {
  const paths = new Set(modules.map(({ path }) => path));
  return modules.flatMap(({ path, imports }) => {
    const part = PARTS.find(({ of }) => path.startsWith(of));
    if (part === undefined) return [`${path}: belongs to no part of the tree`];
    return imports.flatMap(({ line, specifier }) => {
      const problem = specifier === null ? 'is computed, so nobody can check it' : judge(part, path, specifier);
      return problem === null ? [] : [`${path}:${line} → ${specifier ?? 'import(…)'}: ${problem}`];
    });
  });

  function judge(part: Part, path: string, specifier: string): string | null {
    const target = resolve(path, specifier);
    if (target.kind === 'module') return judgeModule(part, target.path);
    if (part.packages === 'none') return `${part.of} imports nothing outside itself`;
    return target.kind === 'builtin' ? null : judgePackage(part, target.name, packages);
  }

  function judgeModule(part: Part, path: string): string | null {
    const allowed = [part.of, ...part.imports];
    if (!allowed.some((start) => path.startsWith(start))) return `${part.of} may import ${allowed.join(', ')} only`;
    return paths.has(path) || path.endsWith('.json') ? null : 'there is no such module';
  }
}

function judgePackage(part: Part, name: string, { dependencies, devDependencies }: Packages): string | null {
  if (dependencies.has(name)) return null;
  if (!devDependencies.has(name)) return 'package.json has no such dependency';
  return part.packages === 'development' ? null : 'is a dependency for development alone';
}

/** Every cycle that a search meets, as the modules along it. Imports of types count: they tangle readers all the same. */
export function cycles(modules: readonly Module[]): string[] {
  const byPath = new Map(modules.map((module) => [module.path, module]));
  const done = new Set<string>();
  const found: string[] = [];
  const visit = (path: string, trail: readonly string[]): void => {
    const seenAt = trail.indexOf(path);
    if (seenAt >= 0) found.push([...trail.slice(seenAt), path].join(' → '));
    if (seenAt >= 0 || done.has(path)) return;
    for (const { specifier } of byPath.get(path)?.imports ?? []) {
      const target = specifier === null ? null : resolve(path, specifier);
      if (target?.kind === 'module') visit(target.path, [...trail, path]);
    }
    done.add(path);
  };
  for (const path of byPath.keys()) visit(path, []);
  return found;
}
