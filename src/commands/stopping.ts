/** How a long-running command ends: by SIGTERM or SIGINT, in order, and within a bound. */
export const DRAIN_DEADLINE_MS = 10_000;
/** For the last words to be written. */
const LEAVE_MS = 500;

/** Resolves when the process is asked to stop, and keeps it alive until then. A parent that goes away counts, if it talks to us. */
export async function askedToStop(): Promise<string> {
  const alive = setInterval(() => {}, 2 ** 30);
  const asked = await new Promise<string>((resolve) => {
    process.once('SIGTERM', () => resolve('SIGTERM'));
    process.once('SIGINT', () => resolve('SIGINT'));
    process.once('disconnect', () => resolve('the parent is gone'));
  });
  clearInterval(alive);
  return asked;
}

/**
 * Runs `drain`, and has the process end soon after it; one that can't finish it within the deadline ends with exit code 1. What `drain` had
 * to leave open ends with it: clients of a Redis that is away try to reach it for ever.
 */
export async function drainWithin(drain: () => Promise<void>, say: (text: string) => void): Promise<void> {
  const overdue = setTimeout(() => {
    say(`not drained within ${DRAIN_DEADLINE_MS / 1000} s: leaving`);
    process.exit(1);
  }, DRAIN_DEADLINE_MS);
  await drain();
  clearTimeout(overdue);
  setTimeout(() => process.exit(), LEAVE_MS).unref();
}
