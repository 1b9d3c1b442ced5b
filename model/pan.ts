/**
 * What pan, the program that spin makes of a model, says about its search. "errors: 0" alone means nothing: a search that
 * ran out of depth, memory or time says so, too, and so does one that looked at hashes of states in place of states. So
 * a report is believed only if every line of it that could be a complaint is known to be none.
 */

export interface Unreached {
  readonly process: string;
  readonly line: number;
  readonly statement: string;
}

export interface PanReport {
  /** Every state within the model's bounds was looked at. False also when it stopped at an error that it found. */
  readonly isExhaustive: boolean;
  /** What keeps the report from being believed, one sentence each. A search that stopped at an error has none. */
  readonly problems: readonly string[];
  /** What didn't hold, as the model writes it; `acceptance cycle` for a liveness property; null: nothing was found. */
  readonly violated: string | null;
  /** In steps of the search. */
  readonly depth: number;
  readonly states: number;
  /** What was looked for, by pan's names: `assertion violations`, `acceptance   cycles`, `never claim`; with its note. */
  readonly checks: ReadonlyMap<string, string>;
  readonly unreached: readonly Unreached[];
}

/** Of lines that begin like a complaint. */
const HARMLESS = [
  /^pan: elapsed time [\d.e+]+ seconds$/,
  /^pan: rate\s+[\d.e+]+ states\/second$/,
  /^pan: wrote \S+\.trail$/,
  /^pan: ltl formula \w+$/,
  // Told by the violation itself.
  /^pan:1: /,
  /^Warning: Search not completed$/,
];

export function readPan(output: string): PanReport {
  const lines = output.split('\n').map((line) => line.trimEnd());
  const violated = readViolation(output);
  const errors = /^State-vector .* errors: (\d+)$/m.exec(output);
  const isFull = lines.includes('Full statespace search for:');
  const isUnfinished = lines.includes('Warning: Search not completed');
  const problems = lines.filter(
    (line) => /^(pan\b|error\b|warning\b)/i.test(line) && !HARMLESS.some((harmless) => harmless.test(line)),
  );
  if (errors === null) problems.push('pan gave no result');
  else if (Number(errors[1]) > 0 !== (violated !== null)) problems.push(`pan counts ${errors[1]} errors`);
  if (!isFull) problems.push('the search was not one of all states');
  if (isUnfinished && violated === null) problems.push('the search was not completed');
  return {
    isExhaustive: problems.length === 0 && !isUnfinished && violated === null,
    problems,
    violated,
    depth: Number(/depth reached (\d+)/.exec(output)?.[1] ?? 0),
    states: Number(/^\s*([\d.e+]+) states, stored/m.exec(output)?.[1] ?? 0),
    checks: readChecks(lines),
    unreached: readUnreached(lines),
  };
}

function readViolation(output: string): string | null {
  const found = /^pan:1: (.*) \(at depth -?\d+\)$/m.exec(output)?.[1];
  return found === undefined ? null : found.replace(/^assertion violated\s*/, '');
}

/** `\tacceptance   cycles \t+ (fairness enabled)`: only what was switched on. */
function readChecks(lines: readonly string[]): Map<string, string> {
  const switchedOn = lines.flatMap((line) => {
    const [, name, note] = /^\t(\S.*?)\s+\+(?: \((.*)\))?$/.exec(line) ?? [];
    return name === undefined ? [] : [[name.replaceAll(/\s+/g, ' '), note ?? ''] as const];
  });
  return new Map(switchedOn);
}

function readUnreached(lines: readonly string[]): Unreached[] {
  let process = '';
  return lines.flatMap((line) => {
    process = /^unreached in (?:proctype|claim|init) ?(\S*)$/.exec(line)?.[1] ?? process;
    const [, number, statement] = /^\t\S+:(\d+), state \d+, "(.*)"$/.exec(line) ?? [];
    return statement === undefined ? [] : [{ process, line: Number(number), statement }];
  });
}
