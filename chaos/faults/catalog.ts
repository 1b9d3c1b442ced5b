/** Every fault there is, by name. */
import { clockFaults } from './clocks.ts';
import { contentionFaults } from './contention.ts';
import type { Fault } from './fault.ts';
import { lineFaults } from './lines.ts';
import { processFaults } from './processes.ts';
import { redisFaults } from './redis.ts';
import { storageFaults } from './storage.ts';

export const FAULTS: readonly Fault[] = [
  ...processFaults,
  ...lineFaults,
  ...contentionFaults,
  ...clockFaults,
  ...storageFaults,
  ...redisFaults,
];

export function faultNamed(name: string): Fault | undefined {
  return FAULTS.find((fault) => fault.name === name);
}
