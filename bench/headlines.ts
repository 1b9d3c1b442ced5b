/** Every benchmark in a line or two: of this machine, and of one with more cores. */
import { timesFirst } from './growth/growth.ts';
import type { AllResults } from './results.ts';
import { type Cell, show, showExcess } from './show.ts';

type Headline = readonly [what: string, of: (results: AllResults) => string | null];

const CONTENDER = 'Cabrank, sets of 50 × 8';
const ROUND = 5_000;

const HEADLINES: readonly Headline[] = [
  [
    'whole rides a second, held for a minute (times one at a time without a service)',
    ({ city }) => (city === undefined ? null : `${show(city.ridesPerSecond)} (${city.ratio})`),
  ],
  [
    'CPU ms a ride at that rate, service + database',
    ({ city }) => {
      const cpu = city?.held?.cpuMsPerRide ?? null;
      return cpu === null ? null : `${sumOf(cpu.service)} + ${cpu.database}`;
    },
  ],
  [
    'request→offer on the device at half of that rate, p50 / p99 ms',
    ({ city }) => {
      const half = city?.below[1]?.requestToOfferMs;
      return half === undefined ? null : `${half.p50} / ${half.p99}`;
    },
  ],
  [
    'lease cycles a second in sets of 50 (times one at a time)',
    ({ leases }) => {
      const sets = leases?.contenders.find(({ name }) => name === CONTENDER);
      return sets?.cyclesPerSecond == null ? null : `${show(sets.cyclesPerSecond.median)} (${sets.ratio})`;
    },
  ],
  [
    'pairs for 5,000 rides among 5,000 drivers, ms (over the optimum)',
    ({ round }) => {
      const even = round?.cases.find(({ rides, drivers }) => rides === ROUND && drivers === ROUND);
      return even?.overOptimum == null ? null : `${even.batchMs.median} (${showExcess(even.overOptimum)})`;
    },
  ],
  [
    '50,000 leases that end within a second: all free after ms (confirms’ p99, times the quiet one)',
    ({ herd }) => (herd === undefined ? null : `${show(herd.allFreeAfterMs)} (${herd.p99Ratio})`),
  ],
  [
    '10,000 drivers on one process: of a core; all back after ms',
    ({ gateway }) => (gateway?.cpu == null ? null : `${gateway.cpu.gateway}; ${show(gateway.reconnectMs.max)}`),
  ],
  [
    'two processes by roles, times one with all (while cores are free)',
    ({ growth }) => {
      if (growth === undefined) return null;
      const { processes, withFreeCores } = growth;
      const ofTwo = (deployments: typeof processes): number | null => timesFirst(deployments, deployments[1]!);
      return `${show(ofTwo(processes))} (${withFreeCores === null ? 'not measured' : show(ofTwo(withFreeCores.processes))})`;
    },
  ],
];

const sumOf = (parts: readonly number[]): number => Math.round(100 * parts.reduce((sum, part) => sum + part, 0)) / 100;

/** Rows of what, here, there. */
export const headlines = (here: AllResults, there: AllResults): Cell[][] =>
  HEADLINES.map(([what, of]) => [what, of(here), of(there)]);
