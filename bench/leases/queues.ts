/** What a job queue takes part with: added in bulk, taken and completed by workers, with a bounded backlog. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Run } from './contender.ts';

const ADD_SET = 500;
const BACKLOG_MAX = 5_000;
const DRAIN_MAX_MS = 60_000;

/** Adds for so long, keeping the workers busy, and waits until all that was added has been handled. */
export async function throughQueue(
  ms: number,
  add: (count: number) => Promise<void>,
  handled: () => number,
): Promise<Run> {
  const startedMs = performance.now();
  const before = handled();
  let added = 0;
  const done = (): number => handled() - before;
  while (performance.now() - startedMs < ms) {
    if (added - done() > BACKLOG_MAX - ADD_SET) await pause(1);
    else {
      await add(ADD_SET);
      added += ADD_SET;
    }
  }
  while (done() < added) {
    if (performance.now() - startedMs > ms + DRAIN_MAX_MS) throw new Error(`${added - done()} jobs weren't handled`);
    await pause(1);
  }
  return { cycles: added, seconds: (performance.now() - startedMs) / 1000 };
}
