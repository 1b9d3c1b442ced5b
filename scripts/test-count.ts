/** What vitest's JSON report says about a run of the tests. */

interface TestFile {
  readonly name: string;
  readonly status: string;
  /** Why the file failed outside of its tests; empty when it didn't. */
  readonly message: string;
  readonly assertionResults: readonly { readonly status: string }[];
}

export interface TestReport {
  readonly success: boolean;
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly TestFile[];
}

export interface TestCount {
  /** Nothing failed, and something was executed. */
  readonly ok: boolean;
  /** `N passed, N failed`, and `, N skipped` if any were. */
  readonly line: string;
  /** What is wrong beside failed tests, one sentence each. */
  readonly problems: readonly string[];
}

/**
 * Counts the tests. A file that failed without a failed test of its own (it couldn't be loaded, a hook threw) has run
 * none of what it holds, and counts as one failed. Null: the runner left no report.
 */
export function countTests(report: TestReport | null): TestCount {
  if (report === null) return { ok: false, line: '0 passed, 0 failed', problems: ['the runner left no report'] };
  const broken = report.testResults.filter(
    ({ status, assertionResults }) =>
      status === 'failed' && !assertionResults.some((result) => result.status === 'failed'),
  );
  const passed = report.numPassedTests;
  const failed = report.numFailedTests + broken.length;
  const skipped = report.numPendingTests + report.numTodoTests;
  const problems = broken.map(({ name, message }) => `${name} failed outside of its tests: ${firstLine(message)}`);
  if (passed + failed === 0) problems.push('no test was executed');
  else if (!report.success && failed === 0) problems.push('the runner failed, though no test did: see its output');
  return {
    ok: report.success && failed === 0 && passed > 0,
    line: `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`,
    problems,
  };
}

const firstLine = (text: string): string => text.trim().split('\n', 1)[0] ?? '';
