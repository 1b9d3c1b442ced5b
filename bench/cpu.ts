/** CPU time and memory of processes, from /proc; null where there is none. */
import { readdirSync, readFileSync } from 'node:fs';

const TICKS_PER_S = 100;

interface Usage {
  readonly parent: number;
  readonly seconds: number;
  /** Of processes that it started and that have ended since. */
  readonly endedSeconds: number;
}

/** What a process has in memory of its own: the pages that it shares with others aren't counted. */
export function memoryMb(pid: number): number | null {
  try {
    const kilobytes = /^Pss_Anon:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1];
    return kilobytes === undefined ? null : Math.round(Number(kilobytes) / 1024);
  } catch {
    return null;
  }
}

function usageOf(pid: number): Usage | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is a name in parentheses, which may hold anything.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = (first: number): number => Number(fields[first]) + Number(fields[first + 1]);
    return { parent: Number(fields[1]), seconds: ticks(11) / TICKS_PER_S, endedSeconds: ticks(13) / TICKS_PER_S };
  } catch {
    return null;
  }
}

export interface CpuSeconds {
  readonly own: number;
  /** Of the processes it started, such as the embedded database's. */
  readonly children: number;
}

/** So far; processes that have ended are counted with whoever waited for them. */
export function cpuSeconds(pid: number): CpuSeconds | null {
  const own = usageOf(pid);
  if (own === null) return null;
  const all = new Map<number, Usage>();
  for (const name of readdirSync('/proc')) {
    const usage = /^\d+$/.test(name) ? usageOf(Number(name)) : null;
    if (usage !== null) all.set(Number(name), usage);
  }
  const isBelow = (usage: Usage): boolean =>
    usage.parent === pid || (all.has(usage.parent) && isBelow(all.get(usage.parent)!));
  const children = [...all.values()]
    .filter(isBelow)
    .reduce((sum, { seconds, endedSeconds }) => sum + seconds + endedSeconds, 0);
  return { own: own.seconds, children };
}

/** Shares of one core over a stretch of time. */
export function coresUsed(before: CpuSeconds | null, after: CpuSeconds | null, seconds: number): CpuSeconds | null {
  if (before === null || after === null) return null;
  const share = (from: number, to: number): number => Math.round((1000 * (to - from)) / seconds) / 1000;
  return { own: share(before.own, after.own), children: share(before.children, after.children) };
}

/** How often a process has gone to sleep so far, all its threads together; null where the system doesn't tell. */
export function wakeUps(pid: number): number | null {
  try {
    return readdirSync(`/proc/${pid}/task`).reduce((sum, thread) => {
      const status = readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8');
      return sum + Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(status)?.[1] ?? 0);
    }, 0);
  } catch {
    return null;
  }
}
