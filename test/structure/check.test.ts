import { describe, expect, it } from 'vitest';
import { countTests, type TestReport } from '../../scripts/test-count.ts';

const passing: TestReport = {
  success: true,
  numPassedTests: 3,
  numFailedTests: 0,
  numPendingTests: 0,
  numTodoTests: 0,
  testResults: [{ name: 'a.test.ts', status: 'passed', message: '', assertionResults: [{ status: 'passed' }] }],
};

describe('the count of the check', () => {
  it('is that of the report', () => {
    expect(countTests(passing)).toEqual({ ok: true, line: '3 passed, 0 failed', problems: [] });
  });

  it('tells the skipped ones, which fail nothing', () => {
    const report = { ...passing, numPendingTests: 1, numTodoTests: 1 };
    expect(countTests(report)).toEqual({ ok: true, line: '3 passed, 0 failed, 2 skipped', problems: [] });
  });

  it('fails with a failed test', () => {
    expect(countTests({ ...passing, success: false, numFailedTests: 1 })).toMatchObject({
      ok: false,
      line: '3 passed, 1 failed',
    });
  });

  it('fails when nothing was executed, though the runner is content', () => {
    const report = { ...passing, numPassedTests: 0, numPendingTests: 3 };
    expect(countTests(report)).toEqual({
      ok: false,
      line: '0 passed, 0 failed, 3 skipped',
      problems: ['no test was executed'],
    });
  });

  it('fails when the runner left no report', () => {
    expect(countTests(null)).toMatchObject({ ok: false, line: '0 passed, 0 failed' });
  });

  it('counts a file that could not be loaded as failed, and names it', () => {
    const broken = { name: 'b.test.ts', status: 'failed', message: 'SyntaxError: x\n at y', assertionResults: [] };
    const report = { ...passing, success: false, testResults: [...passing.testResults, broken] };
    expect(countTests(report)).toEqual({
      ok: false,
      line: '3 passed, 1 failed',
      problems: ['b.test.ts failed outside of its tests: SyntaxError: x'],
    });
  });

  it('fails when the runner failed though no test did', () => {
    const { ok, problems } = countTests({ ...passing, success: false });
    expect(ok).toBe(false);
    expect(problems).toHaveLength(1);
  });
});
