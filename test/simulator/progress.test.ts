import { describe, expect, it } from 'vitest';
import { type Progress, progressLine, progressPanel, ProgressView } from '../../simulator/progress.ts';

const progress: Progress = {
  phase: 'running',
  wallS: 12.4,
  cityTimeMs: 18.5 * 3_600_000,
  drivers: { total: 1_800, onDuty: 1_795, busy: 900 },
  trips: 6_289,
  rides: {
    requested: 1_200,
    waiting: 3,
    offered: 7,
    underWay: 880,
    assignedEver: 1_180,
    completed: 300,
    cancelled: 4,
    noDriversAvailable: 6,
  },
  rates: { requests: 101.4, offers: 108, assigned: 99.6, completed: 88 },
  latencyMs: {
    requestToOffer: { p50: 21.4, p99: 180 },
    requestToAssigned: { p50: 75, p99: 402 },
    confirm: { p50: null, p99: null },
  },
  offersSeen: 1_260,
  faults: 170,
  errors: 12,
};

/** As a terminal would show it. */
const visible = (text: string): string => text.replaceAll(/\x1b\[[0-9;]*[A-Za-z]/g, '');

function screen(more: { isTTY?: boolean; columns?: number }) {
  const written: string[] = [];
  return { written, write: (text: string) => written.push(text), ...more };
}

describe('on a pipe', () => {
  it('progress is one line with every number', () => {
    expect(progressLine(progress)).toBe(
      '  12 s 18:30:00 | drivers 1795/1800 busy 900 | requested 1200/6289 (101/s) | waiting 3 leased 7 assigned 880 | ' +
        'done 300 (88/s) cancelled 4 no-drivers 6 | offers 1260 (108/s) | offer 21/180 assigned 75/402 confirm –/– ms | faults 170 errors 12',
    );
  });

  it('is plain text, a line each time', () => {
    const pipe = screen({});
    const view = new ProgressView(pipe);
    view.show(progress);
    view.show(progress);
    expect(pipe.written).toEqual([`${progressLine(progress)}\n`, `${progressLine(progress)}\n`]);
    expect(pipe.written.join('')).not.toContain('\x1b');
  });

  it('shows no city time before the city’s day has begun', () => {
    expect(progressLine({ ...progress, cityTimeMs: null })).toContain('--:--:--');
  });
});

describe('on a terminal', () => {
  it('the panel is never wider than the screen', () => {
    for (const columns of [20, 40, 80, 200]) {
      for (const line of progressPanel(progress, columns)) expect(visible(line).length).toBeLessThanOrEqual(columns);
    }
  });

  it('the panel is drawn over the one before', () => {
    const terminal = screen({ isTTY: true, columns: 100 });
    const view = new ProgressView(terminal);
    view.show(progress);
    view.show(progress);
    const [first = '', second = ''] = terminal.written;
    const height = first.split('\n').length - 1;
    expect(first).not.toContain('\x1b[8A');
    expect(second.startsWith(`\x1b[${height}A\r\x1b[J`)).toBe(true);
    expect(visible(first)).toContain('leased 7');
  });

  it('has 80 columns when it doesn’t know', () => {
    const terminal = screen({ isTTY: true, columns: 0 });
    new ProgressView(terminal).show(progress);
    expect(visible(terminal.written[0] ?? '')).toContain('waiting 3   leased 7   assigned 880');
  });
});
