/** What a figure was measured on. */
import { availableParallelism, cpus, release, totalmem, type } from 'node:os';

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGb: number;
  readonly node: string;
  readonly os: string;
}

export const describeMachine = (): Machine => ({
  cpu: cpus()[0]?.model ?? 'unknown processor',
  cores: availableParallelism(),
  memoryGb: Math.round(totalmem() / 2 ** 30),
  node: process.version.slice(1),
  os: `${type()} ${release()}`,
});
