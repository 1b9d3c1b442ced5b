import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { isTest, listFiles, parseModules, readSources, ROOT } from './modules.ts';

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');
const readJson = (path: string): unknown => JSON.parse(read(path));

/** The lines of the tree that fit, as `path:line: text`. Whatever holds a zero byte isn't text. */
function linesThatFit(pattern: RegExp, paths = listFiles()): string[] {
  return paths.flatMap((path) => {
    const text = read(path);
    if (text.includes('\0')) return [];
    return text
      .split('\n')
      .flatMap((line, index) => (pattern.test(line) ? [`${path}:${index + 1}: ${line.trim()}`] : []));
  });
}

/** Folders of somebody's machine. Temporary folders may be named, but not what lies in them. */
const MACHINE_PATH = /(?<![\w.:/-])(?:\/(?:work|home|root|Users)\/\w|\/tmp\/\w)/;
/** Written apart, so that this line isn't found itself. */
const LEFT_UNDONE = new RegExp(
  `\\b(?:${[
    ['TO', 'DO'],
    ['FIX', 'ME'],
    ['XX', 'X'],
  ]
    .map((parts) => parts.join(''))
    .join('|')})\\b`,
);

describe('the tree', () => {
  it('names no path of a machine', () => {
    expect(linesThatFit(MACHINE_PATH)).toEqual([]);
  });

  it('leaves nothing to be done later', () => {
    const written = listFiles().filter((path) => !['package-lock.json', 'LICENSE'].includes(path));
    expect(linesThatFit(LEFT_UNDONE, written)).toEqual([]);
  });

  it('has no barrels: everything is imported from where it is', () => {
    const barrels = parseModules(readSources()).filter(({ isBarrel }) => isBarrel);
    expect(barrels.map(({ path }) => path)).toEqual([]);
  });

  it('has no drawer for what has no place', () => {
    const drawers = listFiles().filter((path) => /(^|\/)(utils?|helpers?|common|misc)(\/|\.ts$)/.test(path));
    expect(drawers).toEqual([]);
  });

  it('tests nothing in between: tests are below test/', () => {
    expect(listFiles().filter((path) => isTest(path) && !path.startsWith('test/'))).toEqual([]);
  });

  it('installs from the public registry alone', () => {
    const { packages } = readJson('package-lock.json') as { packages: Record<string, { resolved?: string }> };
    const elsewhere = Object.values(packages).filter(
      ({ resolved }) => resolved !== undefined && !resolved.startsWith('https://registry.npmjs.org/'),
    );
    expect(elsewhere).toEqual([]);
  });
});

describe('what these tests look for is found', () => {
  it.each([
    ['', 'work', 'main'],
    ['', 'home', 'somebody', 'notes'],
    ['', 'tmp', 'report.json'],
  ])('below /%s%s', (...parts) => {
    expect(`see "${parts.join('/')}"`).toMatch(MACHINE_PATH);
  });

  it.each(['https://example.org/home/page', './work/file', "tmpdir() or '/tmp'", 'a/root/b'])(
    'but not in %s',
    (line) => {
      expect(line).not.toMatch(MACHINE_PATH);
    },
  );

  it.each([
    [`export * from './a.ts';`, true],
    [`import { a } from './a.ts';\nexport { a };`, true],
    [`export { a } from './a.ts';\nexport type { B } from './b.ts';`, true],
    [`export { a } from './a.ts';\nexport const b = 1;`, false],
    [`import { a } from './a.ts';\na();\nexport { a };`, false],
    [`import './a.ts';`, false],
    [`export {};`, false],
  ])('and a barrel is told from a module: %j', (source, isBarrel) => {
    expect(parseModules(new Map([['src/a.ts', source]]))).toMatchObject([{ isBarrel }]);
  });
});

interface Journal {
  readonly entries: readonly { readonly idx: number; readonly when: number; readonly tag: string }[];
}

describe('the migrations', () => {
  const { entries } = readJson('migrations/meta/_journal.json') as Journal;
  const files = listFiles('migrations');

  it('are all in the journal, and all there', () => {
    const scripts = files.filter((path) => path.endsWith('.sql'));
    expect(scripts).toEqual(entries.map(({ tag }) => `migrations/${tag}.sql`));
    expect(scripts).not.toEqual([]);
  });

  it('each left a snapshot for the next to start from', () => {
    const snapshots = files.filter((path) => path.endsWith('_snapshot.json'));
    expect(snapshots).toEqual(entries.map(({ tag }) => `migrations/meta/${tag.slice(0, 4)}_snapshot.json`));
  });

  it('are numbered without a gap, and each is younger than the one before, or it would be passed over', () => {
    expect(entries.map(({ idx, tag }) => [idx, Number(tag.slice(0, 4))])).toEqual(
      entries.map((_, index) => [index, index]),
    );
    const times = entries.map(({ when }) => when);
    expect(times).toEqual([...new Set(times)].toSorted((a, b) => a - b));
  });
});
