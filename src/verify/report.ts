/** A verification as text for a terminal: each check with what it counted, what was found wrong, and one last line. */
import { historyInvariants, invariants, type Invariant } from './catalog.ts';
import { isTooTame, type HistoryVerification } from './history/check.ts';
import type { CheckResult, Verification } from './verify.ts';

const grouped = new Intl.NumberFormat('en-US');
const NUMBER_WIDTH = 14;

export function formatVerification(verification: Verification): string {
  const lines = formatChecks(invariants, verification.invariants);
  return [...lines, ...formatFacts(verification), lastLine(verification)].join('\n');
}

export function formatHistory(history: HistoryVerification): string {
  const { run, wildness, unjudged, demands, checked, violations } = history;
  const counts = Object.entries<number>({ ...wildness }).map(([name, count]) => `${grouped.format(count)} ${name}`);
  const open = Object.entries(unjudged).map(([id, count]) => `${grouped.format(count)} of ${id}`);
  const verdict = violations === 0 && isTooTame(history) ? ', too tame' : '';
  return [
    ...formatChecks(historyInvariants, history.invariants, 'H'),
    `history: ${run.name} (seed ${run.seed}), ${grouped.format(run.lines)} lines; ${counts.join(', ')}`,
    `not judged, for want of the database’s clock: ${open.join(', ') || 'none'}`,
    ...demands.map(
      ({ name, atLeast, found }) =>
        `demanded: ${name} ${grouped.format(found)} of ${grouped.format(atLeast)}${found < atLeast ? ': TOO TAME' : ''}`,
    ),
    `verify --history: ${grouped.format(checked)} lines and rows in ${history.invariants.length} checks, ${grouped.format(violations)} violations${verdict}`,
  ].join('\n');
}

function formatChecks(catalog: readonly Invariant[], found: readonly CheckResult<string>[], prefix = ''): string[] {
  const results = new Map(found.map((result) => [result.id, result]));
  return catalog.flatMap(({ number, title, checks }) => [
    `${prefix}${number}. ${title}`,
    ...Object.keys(checks).flatMap((id) => formatCheck(results.get(id)!)),
  ]);
}

function formatCheck({ id, title, checked, violations, examples }: CheckResult<string>): string[] {
  const verdict = violations === 0 ? 'ok' : `${grouped.format(violations)} VIOLATIONS`;
  return [
    `   ${id} ${grouped.format(checked).padStart(NUMBER_WIDTH)}  ${title}: ${verdict}`,
    ...examples.map((example) => `       ${example}`),
  ];
}

function formatFacts({ facts }: Verification): string[] {
  const counts = (of: Readonly<Record<string, number>>): string =>
    Object.entries(of)
      .filter(([, count]) => count > 0)
      .map(([name, count]) => `${grouped.format(count)} ${name}`)
      .join(', ') || 'none';
  const ms = (value: number | null): string => (value === null ? '–' : `${grouped.format(value)} ms`);
  return [
    `rides: ${counts(facts.rides)}; ${grouped.format(facts.ridesEverAssigned)} ever assigned`,
    `offers: ${counts(facts.offers)}; ${grouped.format(facts.leasesGranted)} leases granted`,
    `assignments: ${counts(facts.assignments)}; ${grouped.format(facts.events)} events`,
    `lease hold: p50 ${ms(facts.holdMs.p50)}, p95 ${ms(facts.holdMs.p95)}, p99 ${ms(facts.holdMs.p99)}; ` +
      `freed after its end: p50 ${ms(facts.sweeperLagMs.p50)}, p99 ${ms(facts.sweeperLagMs.p99)}`,
  ];
}

function lastLine({ checked, violations, empty, invariants: results }: Verification): string {
  if (empty && violations === 0) return 'verify: the history is empty, nothing was verified';
  const rows = `${grouped.format(checked)} rows in ${results.length} checks`;
  return `verify: ${rows}, ${grouped.format(violations)} violations`;
}
