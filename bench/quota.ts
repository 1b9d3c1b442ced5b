/** Processes held to a part of a core, so that some stay free on a machine that has few: Linux control groups of either version. */
import { existsSync, mkdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const V1 = '/sys/fs/cgroup/cpu';
const V2 = '/sys/fs/cgroup';
/** Short: a process that has used up its part waits for the next period. */
const PERIOD_US = 10_000;

export class CpuQuota implements Disposable {
  readonly #folder: string;

  /** Throws where the system has no such groups, or they aren't ours to make. */
  constructor(name: string, cores: number) {
    const isV1 = existsSync(join(V1, 'cpu.cfs_quota_us'));
    this.#folder = join(isV1 ? V1 : V2, `cabrank-bench-${process.pid}-${name}`);
    mkdirSync(this.#folder);
    const quotaUs = Math.round(cores * PERIOD_US);
    try {
      if (isV1) {
        this.#set('cpu.cfs_period_us', PERIOD_US);
        this.#set('cpu.cfs_quota_us', quotaUs);
      } else this.#set('cpu.max', `${quotaUs} ${PERIOD_US}`);
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    }
  }

  /** With all its threads, and what they start from now on. */
  hold(pid: number): void {
    this.#set('cgroup.procs', pid);
  }

  /** Into a file that is there already: a group without a quota has none. */
  #set(file: string, value: number | string): void {
    writeFileSync(join(this.#folder, file), String(value), { flag: 'r+' });
  }

  /** Once its processes have ended. */
  [Symbol.dispose](): void {
    rmdirSync(this.#folder);
  }
}

export function canHoldProcesses(): boolean {
  try {
    new CpuQuota('try', 1)[Symbol.dispose]();
    return true;
  } catch {
    return false;
  }
}
