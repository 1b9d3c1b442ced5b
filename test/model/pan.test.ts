/**
 * The outputs are pan's own, kept as it printed them: searches of model/lease.pml, some with too little depth or memory,
 * some that are approximations, and two of models of one line.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readPan, type PanReport } from '../../model/pan.ts';
import { mismatches, runsOf } from '../../model/runs.ts';
import { judge } from '../../model/search.ts';

const read = (name: string): string => readFileSync(new URL(`outputs/${name}.txt`, import.meta.url), 'utf8');
const report = (name: string): PanReport => readPan(read(name));
const model = readFileSync(new URL('../../model/lease.pml', import.meta.url), 'utf8');

const [safety] = runsOf(model, false);
const holds = { ...safety!, statesMin: 170_000 };
const endless = { ...holds, claim: 'leases_end' };

describe('a search of all states', () => {
  it('is believed', () => {
    expect(report('holds')).toMatchObject({
      isExhaustive: true,
      problems: [],
      violated: null,
      depth: 67,
      states: 170_434,
    });
    expect(judge(holds, report('holds'))).toEqual([]);
  });

  it('is believed about liveness', () => {
    expect(report('ends')).toMatchObject({ isExhaustive: true, problems: [], violated: null });
    expect(report('ends').checks.get('never claim')).toBe('leases_end');
    expect(judge(endless, report('ends'))).toEqual([]);
  });
});

describe('"errors: 0" is not believed', () => {
  it.each([
    ['when the search ran out of depth', 'too-deep', 'error: max search depth too small'],
    ['when it ran out of memory', 'out-of-memory', 'pan: reached -DMEMLIM bound'],
    ['when bits stood for states', 'bitstate', 'the search was not one of all states'],
    ['when hashes stood for states', 'hash-compact', 'the search was not one of all states'],
  ])('%s', (_, name, problem) => {
    expect(read(name)).toContain('errors: 0');
    expect(report(name)).toMatchObject({ isExhaustive: false, violated: null });
    expect(report(name).problems).toContain(problem);
    expect(judge(holds, report(name))).toContain('the search was not exhaustive');
  });

  it('when the report breaks off', () => {
    const output = read('holds');
    for (let end = 0; end < output.indexOf('errors: 0'); end += 7) {
      expect(readPan(output.slice(0, end))).toMatchObject({ isExhaustive: false });
    }
  });

  it('when it looked at fewer states than there were', () => {
    expect(judge({ ...holds, statesMin: 170_435 }, report('holds'))).toEqual([
      'only 170434 states, of at least 170435',
    ]);
  });

  it('when a part of the model was never reached', () => {
    expect(report('unreached')).toMatchObject({ isExhaustive: true });
    expect(judge(holds, report('unreached'))).toEqual([
      expect.stringMatching(/^never reached: Sweeper, line \d+: .*live = 0/),
    ]);
  });

  it('when something else was checked', () => {
    expect(judge(holds, report('ends'))).toEqual(['assertions were not checked']);
    expect(judge(endless, report('holds'))).toEqual([
      'leases_end was not checked',
      'cycles were not looked for under weak fairness',
    ]);
    expect(judge({ ...endless, claim: 'rides_end' }, report('ends'))).toEqual(['rides_end was not checked']);
  });
});

describe('what a search finds', () => {
  it.each([
    ['an assertion', 'violated', 'own_instance', 8],
    ['a goal', 'goal', '!(stale_release)', 8],
    ['a cycle', 'cycle', 'acceptance cycle', 93],
    ['a place that is no place', 'out-of-bounds', '- invalid array index', 0],
    ['nothing more to do', 'deadlock', 'invalid end state', 0],
  ])('is told: %s', (_, name, violated, depth) => {
    expect(report(name)).toMatchObject({ violated, depth, isExhaustive: false, problems: [] });
    expect(judge(holds, report(name))).toContain(`broken: ${violated}`);
  });

  it('counts only if it is what the mutation breaks', () => {
    const mutation = { ...holds, violates: 'own_instance', statesMin: 0 };
    expect(judge(mutation, report('violated'))).toEqual([]);
    expect(judge(mutation, report('holds'))).toEqual(['found nothing']);
    expect(judge(mutation, report('out-of-bounds'))).toEqual(['found - invalid array index']);
    expect(judge(mutation, report('out-of-memory'))).toContain('found nothing');
  });

  it('counts for liveness only under weak fairness', () => {
    const mutation = { ...endless, violates: 'acceptance cycle', statesMin: 0 };
    expect(judge(mutation, report('cycle'))).toEqual([]);
    expect(judge(mutation, report('unfair'))).toEqual(['cycles were not looked for under weak fairness']);
  });
});

it('no result is no report', () => {
  for (const output of ['', read('no-result')]) {
    expect(readPan(output)).toMatchObject({ isExhaustive: false, violated: null, states: 0 });
    expect(readPan(output).problems).toContain('pan gave no result');
  }
});

describe('the list of runs', () => {
  it('has every mutation, and one for each assertion', () => {
    expect(mismatches(model)).toEqual([]);
    expect(runsOf(model, false).filter(({ kind }) => kind === 'mutation').length).toBeGreaterThan(20);
    expect(runsOf(model, false).filter(({ kind }) => kind === 'goal').length).toBeGreaterThan(10);
  });

  it('is compared with the model', () => {
    const planted = `${model}\n#ifdef NOBODY_TRIES\n#endif\nmust(unbroken, true);`.replace('LOSERS_KEPT', 'KEPT');
    expect(mismatches(planted)).toEqual([
      'KEPT is a mutation that no run tries',
      'NOBODY_TRIES is a mutation that no run tries',
      'LOSERS_KEPT is no mutation of the model',
      'unbroken is asserted, and no mutation breaks it',
    ]);
  });
});
