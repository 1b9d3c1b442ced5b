import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { EQUIVALENT } from '../../scripts/equivalent-mutants.ts';
import { NAMED } from '../../scripts/named-mutants.ts';
import { generateMutants, lockMutants, nameMutant } from '../../scripts/sql-mutants.ts';
import { ROOT } from './modules.ts';

const inFunction = (body: string, name = 'f'): string => `create or replace function ${name}() as $$\n${body}\n$$;`;
const droppedFrom = (body: string, name?: string): string[] =>
  generateMutants('f.sql', inFunction(body, name)).map(({ of, text }) => `${of} ${text}`);

describe('what is dropped', () => {
  it.each([
    ['select 1 from t where a = 1 and b = 2 order by c', ['where a = 1', 'where b = 2']],
    ['select 1 from t where a = 1;', ['where a = 1']],
    [
      'select 1 from t where (a = 1 or b = 2) and c',
      ['where (a = 1 or b = 2)', 'where a = 1', 'where b = 2', 'where c'],
    ],
    ['update t set a = case when x and y then 1 end where b returning c', ['where b']],
    ["select 1 from t where a = 'where b and c' -- and d\n and e", ["where a = 'where b and c'", 'where e']],
    [
      'select 1 from t left join u on u.a = t.a and u.b where exists (select from v where w and x)',
      ['on u.a = t.a', 'on u.b', 'where exists (select from v where w and x)', 'where w', 'where x'],
    ],
    ['insert into t values (1) on conflict (a) do nothing', []],
    ['select distinct on (a) b from t where c', ['where c']],
    ['if a or not b then c; end if;', ['if a', 'if not b']],
  ])('%s', (body, dropped) => {
    expect(droppedFrom(body)).toEqual(dropped);
  });

  it('of a WHEN: only where something is judged, the whole and each part', () => {
    const body = "select case when a = 1 and b = 2 then 'x' when c or d then 'y' end";
    expect(droppedFrom(body)).toEqual([]);
    expect(droppedFrom(body, 'judge_f')).toEqual([
      'when a = 1 and b = 2',
      'when a = 1',
      'when b = 2',
      'when c or d',
      'when c',
      'when d',
    ]);
  });

  it('and nothing else: a conjunct is true then, a disjunct and a refusal are false', () => {
    const sources = (body: string) => generateMutants('f.sql', inFunction(body, 'judge_f')).map(({ source }) => source);
    expect(sources('where a and (b or c)')).toEqual(
      ['where true and (b or c)', 'where a and true', 'where a and (false or c)', 'where a and (b or false)'].map(
        (body) => inFunction(body, 'judge_f'),
      ),
    );
    expect(sources('case when a then b end')).toEqual([inFunction('case when false then b end', 'judge_f')]);
  });

  it('knows its function and its line', () => {
    const source = `${inFunction('where a', 'first')}\n${inFunction('where b\n and c', 'second')}`;
    expect(generateMutants('f.sql', source).map(({ functionName, line }) => [functionName, line])).toEqual([
      ['first', 2],
      ['second', 5],
      ['second', 6],
    ]);
  });

  it('takes each lock step in turn', () => {
    const source = inFunction('a := lock_rides(x);\nb := lock_drivers(y);');
    const bodies = lockMutants('f.sql', source, '').map((each) => each.source);
    expect(bodies).toEqual([source.replace('lock_r', 'peek_r'), source.replace('lock_d', 'peek_d')]);
  });
});

describe('the lists', () => {
  const folder = join(ROOT, 'src/leasing');
  const sources = new Map(
    readdirSync(folder)
      .filter((file) => file.endsWith('.sql'))
      .map((file) => [file, readFileSync(join(folder, file), 'utf8')]),
  );

  it('of mutations made by hand: each changes one place', () => {
    for (const each of NAMED) expect(nameMutant(each, sources.get(each.file)!).source).not.toBe(sources.get(each.file));
    expect(NAMED.length).toBeGreaterThan(10);
  });

  it('of those that take nothing away: each is one that is made, with a reason', () => {
    for (const { file, functionName, text, line, reason } of EQUIVALENT) {
      const lines = sources.get(file)!.split('\n');
      const source = sources.get(file)!;
      const made = [...generateMutants(file, source), ...lockMutants(file, source, '')].filter(
        (each) =>
          each.functionName === functionName &&
          each.text === text &&
          (line === undefined || lines[each.line - 1]!.includes(line)),
      );
      expect(made, `${file} ${functionName} ${text}`).not.toEqual([]);
      expect(reason.length).toBeGreaterThan(20);
    }
  });
});
