import { globSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { OFFER_STATUSES, RIDE_EVENT_TYPES } from '../../src/records.ts';
import { ROOT } from '../structure/modules.ts';

const statements = globSync('src/**/*.sql', { cwd: ROOT }).flatMap((path) =>
  readFileSync(`${ROOT}/${path}`, 'utf8').split('insert into ride_events').slice(1),
);

/** The fourth of what is selected, behind region, ride and number. */
function typeOf(statement: string): string {
  const selected = statement.slice(statement.indexOf('select ') + 'select '.length);
  let depth = 0;
  let nth = 0;
  let type = '';
  for (const letter of selected) {
    if (letter === '(') depth += 1;
    if (letter === ')') depth -= 1;
    if (letter === ',' && depth === 0) nth += 1;
    else if (nth === 3) type += letter;
  }
  return type;
}

/** What it may come to. */
function typesOf(expression: string): string[] {
  const [, prefix] = /^\s*'(\w+_)' \|\| e\.status$/.exec(expression) ?? [];
  // An offer that was accepted tells it in a statement of its own.
  if (prefix !== undefined)
    return OFFER_STATUSES.filter((status) => !['pending', 'accepted'].includes(status)).map((end) => prefix + end);
  return [...expression.replaceAll(/when '\w+'/g, '').matchAll(/'(\w+)'/g)].map(([, type]) => type!);
}

it('the types of events are those that the transitions tell, and no other', () => {
  expect(statements.length).toBeGreaterThan(10);
  const told = statements.map((statement) => typesOf(typeOf(statement)));
  expect(told.filter((types) => types.length === 0)).toEqual([]);
  expect([...new Set(told.flat())].toSorted()).toEqual(RIDE_EVENT_TYPES.toSorted());
});
