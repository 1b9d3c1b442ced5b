/** The modules of the tree and what they import, read by a real parser: types, re-exports and dynamic imports included. */
import { readdirSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { basename, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync, Visitor } from 'oxc-parser';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A test that runs at the same time has the guide's programs there. */
const GUIDE = /^\.guide-\d+$/;
/** What is never part of the sources, as .gitignore says: installed, measured, or kept by a running service. */
const PASSED_OVER = new Set(['node_modules', '.git', 'data', 'coverage', 'report.json', '.env']);

export interface Import {
  readonly line: number;
  /** Null: computed while running, so that nobody can tell what it imports. */
  readonly specifier: string | null;
}

export interface Module {
  /** From the root of the tree. */
  readonly path: string;
  readonly imports: readonly Import[];
  /** It has statements, and each of them passes on what another module exports. */
  readonly isBarrel: boolean;
}

/** Every file of the tree, as paths from its root, in order. */
export function listFiles(folder = ''): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true })
    .filter(({ name }) => !PASSED_OVER.has(name) && !GUIDE.test(name) && !name.endsWith('.cpuprofile'))
    .flatMap((entry) => {
      const path = posix.join(folder, entry.name);
      if (entry.isDirectory()) return listFiles(path);
      return entry.isFile() ? [path] : [];
    })
    .toSorted();
}

/** The text of every TypeScript file, by its path. */
export function readSources(): ReadonlyMap<string, string> {
  const paths = listFiles().filter((path) => /\.[cm]?tsx?$/.test(path));
  return new Map(paths.map((path) => [path, readFileSync(join(ROOT, path), 'utf8')]));
}

/** Throws when a file can't be parsed: an unread module would be one nobody checked. */
export function parseModules(sources: ReadonlyMap<string, string>): Module[] {
  return [...sources].map(([path, source]) => parseModule(path, source));
}

function parseModule(path: string, source: string): Module {
  const { program, errors } = parseSync(path, source);
  if (errors.length > 0) throw new Error(`${path} can't be parsed: ${errors.map(({ message }) => message).join('; ')}`);
  const imports: Import[] = [];
  const add = (node: { start: number }, specifier: string | null): void => {
    imports.push({ line: source.slice(0, node.start).split('\n').length, specifier });
  };
  new Visitor({
    ImportDeclaration: (node) => add(node, node.source.value),
    ExportAllDeclaration: (node) => add(node, node.source.value),
    ExportNamedDeclaration: (node) => {
      if (node.source !== null) add(node, node.source.value);
    },
    ImportExpression: (node) => {
      const value = node.source.type === 'Literal' ? node.source.value : null;
      add(node, typeof value === 'string' ? value : null);
    },
    TSImportType: (node) => add(node, node.source.value),
  }).visit(program);
  return { path, imports, isBarrel: passesOnAlone(program.body) };
}

type Statement = ReturnType<typeof parseSync>['program']['body'][number];

/** `export … from`, or an import together with an `export {…}` of it. */
function passesOnAlone(statements: readonly Statement[]): boolean {
  const passedOn = statements.filter(
    (statement) =>
      statement.type === 'ExportAllDeclaration' ||
      (statement.type === 'ExportNamedDeclaration' &&
        statement.declaration === null &&
        statement.specifiers.length > 0),
  );
  const imported = statements.filter(({ type }) => type === 'ImportDeclaration');
  return passedOn.length > 0 && passedOn.length + imported.length === statements.length;
}

export type Target =
  | { readonly kind: 'module'; readonly path: string }
  | { readonly kind: 'package'; readonly name: string }
  | { readonly kind: 'builtin' };

/** Where a specifier leads; relative ones to a path from the root, whether there is a file or not. */
export function resolve(from: string, specifier: string): Target {
  if (/^\.{1,2}(\/|$)/.test(specifier)) {
    return { kind: 'module', path: posix.normalize(posix.join(posix.dirname(from), specifier)) };
  }
  if (isBuiltin(specifier)) return { kind: 'builtin' };
  const [scope = '', name = ''] = specifier.split('/');
  return { kind: 'package', name: specifier.startsWith('@') ? `${scope}/${name}` : scope };
}

export const isTest = (path: string): boolean => path.startsWith('test/') || basename(path).includes('.test.');
