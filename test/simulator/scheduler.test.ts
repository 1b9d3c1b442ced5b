import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createRandom } from '../../domain/random.ts';
import { Scheduler } from '../../simulator/scheduler.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

function scheduler() {
  const failures: unknown[] = [];
  const made = new Scheduler({ now: () => performance.now(), failed: (error) => failures.push(error) });
  return Object.assign(made, { failures });
}

describe('the scheduler', () => {
  it('runs tasks in the order of their times, and of their making at equal times', () => {
    const city = scheduler();
    const random = createRandom(7);
    const ran: { dueMs: number; made: number }[] = [];
    for (let made = 0; made < 2_000; made++) {
      const dueMs = performance.now() + random.int(0, 300);
      city.at(dueMs, () => ran.push({ dueMs, made }));
    }
    vi.advanceTimersByTime(400);
    expect(ran).toHaveLength(2_000);
    expect(ran).toEqual(ran.toSorted((a, b) => a.dueMs - b.dueMs || a.made - b.made));
  });

  it('never runs a task before its time, nor more than a tick after it', () => {
    const city = scheduler();
    const startMs = performance.now();
    const ranAtMs: number[] = [];
    for (const delayMs of [0, 1, 5, 17, 17.5, 100])
      city.after(delayMs, () => ranAtMs.push(performance.now() - startMs - delayMs));
    for (let ms = 0; ms < 150; ms++) vi.advanceTimersByTime(1);
    expect(ranAtMs).toHaveLength(6);
    for (const lateMs of ranAtMs) expect(lateMs).toBeGreaterThanOrEqual(0);
    for (const lateMs of ranAtMs) expect(lateMs).toBeLessThanOrEqual(9);
  });

  it('needs one timer for any number of tasks', () => {
    const city = scheduler();
    for (let task = 0; task < 10_000; task++) city.after(1_000 + task, () => {});
    expect(vi.getTimerCount()).toBe(1);
    city.after(10, () => {});
    expect(vi.getTimerCount()).toBe(1);
  });

  it('forgets what is cancelled, and everything when it stops', () => {
    const city = scheduler();
    const ran: string[] = [];
    city.after(10, () => ran.push('cancelled')).cancel();
    city.after(10, () => ran.push('kept'));
    city.after(50, () => ran.push('after the stop'));
    vi.advanceTimersByTime(20);
    city.stop();
    city.after(1, () => ran.push('too late'));
    vi.advanceTimersByTime(100);
    expect(ran).toEqual(['kept']);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('lets the rest of the process have its turn though a task always puts in another', () => {
    const city = scheduler();
    let runs = 0;
    const again = (): void => {
      runs++;
      city.after(0, again);
    };
    again();
    vi.advanceTimersByTime(40);
    expect(runs).toBeGreaterThan(1);
    expect(runs).toBeLessThan(15);
  });

  it('reports a task that throws, and runs the others', () => {
    const city = scheduler();
    const ran: string[] = [];
    city.after(1, () => {
      throw new Error('mine');
    });
    city.after(1, () => ran.push('other'));
    vi.advanceTimersByTime(10);
    expect(city.failures).toEqual([new Error('mine')]);
    expect(ran).toEqual(['other']);
  });
});
