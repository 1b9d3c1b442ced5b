/**
 * A check says in SQL what must hold for each row of a source. All checks of a source are counted by one statement,
 * and so under one snapshot: a transition is committed as a whole, so a single statement never sees half of it, and
 * a database in use gives no false alarm.
 */
import type { CheckId } from './catalog.ts';
import type { Params, Reader } from './reader.ts';

const EXAMPLES_MAX = 5;

export interface Check {
  readonly id: CheckId;
  /** The rows it is about; all of them if absent. */
  readonly of?: string;
  /** What must hold for each. Null counts as broken. */
  readonly holds: string;
  /** What an example says after the row's name. */
  readonly shows?: string;
}

export interface Source {
  /** Names a row for people. */
  readonly name: string;
  /** What stands behind FROM: the tables of the statement, joined, with their conditions. */
  readonly from: string;
  readonly checks: readonly Check[];
  /** What a row adds to counts that aren't checks, by their names: a number. */
  readonly facts?: Readonly<Record<string, string>>;
}

export interface CheckTally {
  checked: number;
  violations: number;
  readonly examples: string[];
}

/** What was counted so far, over all steps. */
export class Tally<Id extends string = CheckId> {
  readonly checks: ReadonlyMap<Id, CheckTally>;
  readonly facts = new Map<string, number>();

  constructor(ids: readonly Id[]) {
    this.checks = new Map(ids.map((id) => [id, { checked: 0, violations: 0, examples: [] }]));
  }

  get checked(): number {
    return [...this.checks.values()].reduce((sum, { checked }) => sum + checked, 0);
  }

  count(id: Id, checked: number, violations: number, examples: readonly string[]): void {
    const tally = this.checks.get(id)!;
    tally.checked += checked;
    tally.violations += violations;
    tally.examples.push(...examples.slice(0, EXAMPLES_MAX - tally.examples.length));
  }

  /** Counts one thing that was looked at. */
  judge(id: Id, holds: boolean, example: () => string): void {
    if (holds) this.count(id, 1, 0, []);
    else this.count(id, 1, 1, [example()]);
  }

  addFact(name: string, count: number): void {
    this.facts.set(name, (this.facts.get(name) ?? 0) + count);
  }

  fact(name: string): number {
    return this.facts.get(name) ?? 0;
  }
}

/** What was counted of a source. */
export interface SourceRow {
  readonly nth: number;
  readonly checked: number[];
  readonly violations: number[];
  readonly examples: (string[] | null)[];
  readonly facts: Record<string, number | null>;
}

/** Runs the checks of all sources over what the parameters name. `ctes` is what they share. */
export async function runChecks(
  reader: Reader,
  tally: Tally,
  { ctes, sources }: { ctes?: string; sources: readonly Source[] },
  params: Params,
): Promise<void> {
  const statement = `${ctes === undefined ? '' : `with ${ctes}`} ${countsSql(sources)}`;
  addCounts(tally, sources, await reader.ask<SourceRow>(statement, params));
}

/** The `SourceRow`s of all sources. */
export const countsSql = (sources: readonly Source[]): string => sources.map(countingSql).join('\nunion all\n');

export function addCounts(tally: Tally, sources: readonly Source[], rows: readonly SourceRow[]): void {
  for (const row of rows) {
    const { checks } = sources[row.nth]!;
    checks.forEach(({ id }, i) => tally.count(id, row.checked[i]!, row.violations[i]!, row.examples[i] ?? []));
    for (const [name, count] of Object.entries(row.facts)) tally.addFact(name, count ?? 0);
  }
}

/**
 * Every condition is evaluated once for a row: an example is made where it is broken, and violations are counted by
 * their examples. (`offset 0` keeps the planner from evaluating it in both places: 11 µs for a ride instead of 5.)
 */
function countingSql({ name, from, checks, facts = {} }: Source, nth: number): string {
  const isChecked = ({ of }: Check): string => `(${of ?? 'true'})`;
  const example = ({ shows }: Check): string => (shows === undefined ? name : `concat(${name}, ': ', ${shows})`);
  const columns = checks.flatMap((check, i) => [
    `${isChecked(check)} as of${i}`,
    `case when ${isChecked(check)} and (${check.holds}) is not true then ${example(check)} end as broken${i}`,
  ]);
  const factColumns = Object.values(facts).map((count, i) => `${count} as fact${i}`);
  const list = (expression: (i: number) => string): string =>
    `jsonb_build_array(${checks.map((_, i) => expression(i)).join(', ')})`;
  const factList = Object.keys(facts).map((fact, i) => `'${fact}', sum(fact${i})`);
  return `(select ${nth} as nth,
    ${list((i) => `count(*) filter (where of${i})`)} as checked,
    ${list((i) => `count(broken${i})`)} as violations,
    ${list((i) => `(array_agg(broken${i}) filter (where broken${i} is not null))[1:${EXAMPLES_MAX}]`)} as examples,
    jsonb_build_object(${factList.join(', ')}) as facts
    from (select ${[...columns, ...factColumns].join(',\n')} from ${from} offset 0) judged)`;
}
