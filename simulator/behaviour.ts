import type { Random } from '../domain/random.ts';

/** How often, per offer, a driver does something else than accept in good time. Probabilities; together at most 1. */
export interface FaultRates {
  readonly declines: number;
  /** Leaves the phone in the pocket: the offer lapses. */
  readonly ignores: number;
  /** Accepts after the window has closed. */
  readonly answersLate: number;
  /** Loses the connection, before the answer or between the answer and its receipt, and comes back. */
  readonly disconnects: number;
  /** The app dies with the offer in hand, and is started again a while later, knowing nothing. */
  readonly crashes: number;
  readonly answersTwice: number;
  /** Accepts, and gives the ride back on the way to the pick-up. */
  readonly cancels: number;
  /** Accepts, and sets out much later. */
  readonly dawdles: number;
  /** On top of any of these: the answer comes late because something between driver and service was slow. */
  readonly slow: number;
}

/** 5 % of offers meet a failure, 10 % a latency spike. */
export const defaultRates: FaultRates = {
  declines: 0.01,
  ignores: 0.01,
  answersLate: 0.0075,
  disconnects: 0.0075,
  crashes: 0.005,
  answersTwice: 0.005,
  cancels: 0.005,
  dawdles: 0,
  slow: 0.1,
};

/** Of the offers that aren't accepted, so many are declined; the others lapse. */
const DECLINED_SHARE = 0.7;

/** The rates of drivers who mean to accept so many of their offers, with what goes wrong besides. */
export function ratesAt(acceptance: number, rates: FaultRates): Partial<FaultRates> {
  const others = faults.reduce((sum, fault) => sum + rates[fault], 0) - rates.declines - rates.ignores;
  const refused = Math.max(0, 1 - acceptance - others);
  return { declines: DECLINED_SHARE * refused, ignores: (1 - DECLINED_SHARE) * refused };
}

export type Fault = Exclude<keyof FaultRates, 'slow'>;

export const faults: readonly Fault[] = [
  'declines',
  'ignores',
  'answersLate',
  'disconnects',
  'crashes',
  'answersTwice',
  'cancels',
  'dawdles',
];

/** What a driver will do with one offer. Times are city milliseconds. */
export interface AnswerPlan {
  readonly fault: Fault | null;
  readonly slow: boolean;
  /** From receipt to the answer; bounded later by the window the offer really has. */
  readonly thinkMs: number;
  /** How long a driver who loses connection or app is gone, and one who dawdles stands still. */
  readonly awayMs: number;
  /** A number in [0, 1) for whatever the fault leaves open: when it strikes. */
  readonly when: number;
}

/** A glance, a thought, a tap: log-normal as response times are. */
const THINK_MEDIAN_MS = 3_000;
const THINK_SIGMA = 0.4;
const SPIKE_MEAN_MS = 4_000;
const TUNNEL_MEAN_MS = 5_000;
const RESTART_MEAN_MS = 60_000;
const DAWDLE_MEAN_MS = 300_000;
/** Nobody stays away for ever: the ride in their hands has to end within the run. */
const AWAY_MAX_MEANS = 4;

/** Every plan costs the same number of draws, so that a driver's nth plan doesn't depend on the rates. */
export function planAnswer(rates: FaultRates, random: Random): AnswerPlan {
  const fault = faultAt(rates, random.next());
  const slow = random.chance(rates.slow);
  const spikeMs = random.exponential(SPIKE_MEAN_MS);
  const thinkMs = random.logNormal(THINK_MEDIAN_MS, THINK_SIGMA) + (slow ? spikeMs : 0);
  const awayMeanMs = meanMs(fault);
  const awayMs = Math.min(random.exponential(awayMeanMs), AWAY_MAX_MEANS * awayMeanMs);
  return { fault, slow, thinkMs, awayMs, when: random.next() };
}

function meanMs(fault: Fault | null): number {
  if (fault === 'crashes') return RESTART_MEAN_MS;
  return fault === 'dawdles' ? DAWDLE_MEAN_MS : TUNNEL_MEAN_MS;
}

/** Everything wrong with rates, in words; empty when they may be used. */
export function rateProblems(rates: FaultRates): string[] {
  const names = Object.keys(rates) as (keyof FaultRates)[];
  const problems = names
    .filter((name) => !(rates[name] >= 0 && rates[name] <= 1))
    .map((name) => `${name} must be from 0 to 1`);
  const total = faults.reduce((sum, fault) => sum + rates[fault], 0);
  if (total > 1) problems.push(`the faults' rates add up to ${total}, more than 1`);
  return problems;
}

/** Lays the rates end to end on [0, 1): what is left over is good behaviour. */
function faultAt(rates: FaultRates, draw: number): Fault | null {
  let left = draw;
  return faults.find((fault) => (left -= rates[fault]) < 0) ?? null;
}
