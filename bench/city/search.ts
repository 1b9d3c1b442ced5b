/** Finding the highest rate that holds, by trying. */

/** Of a short try. */
export const PROBE_S = 5;
/** A short try climbs by this factor until one fails; then the gap is halved until it is this narrow. */
const CLIMB = 1.5;
const NARROW = 1.06;
/** What held for a few seconds may not hold for long: then a little less is tried, so often. */
const STEP_DOWN = 0.93;
const HOLDS_MAX = 8;
/** No machine gets here; the search has to end on a rate function that always holds, too. */
const RATE_MAX = 1_000_000;

export interface Trial<Outcome> {
  readonly held: boolean;
  readonly outcome: Outcome;
}

/**
 * The highest rate, per second, for which `hold` (the long trial) holds, found with the help of `probe` (a short one).
 * Null when not even the slowest of the rates tried held.
 */
export async function findHighestHeld<Outcome>(
  startRate: number,
  probe: (rate: number) => Promise<Trial<Outcome>>,
  hold: (rate: number) => Promise<Trial<Outcome>>,
): Promise<{ rate: number; outcome: Outcome } | null> {
  let rate = Math.floor(await highestProbed(startRate, async (tried) => (await probe(tried)).held));
  for (let holds = 0; holds < HOLDS_MAX && rate >= 1; holds++) {
    const { held, outcome } = await hold(rate);
    if (held) return { rate, outcome };
    rate = Math.floor(rate * STEP_DOWN);
  }
  return null;
}

async function highestProbed(startRate: number, holds: (rate: number) => Promise<boolean>): Promise<number> {
  let low = startRate;
  while (low >= 1 && !(await holds(low))) low /= 2;
  let high = low * CLIMB;
  while (high <= RATE_MAX && (await holds(high))) [low, high] = [high, high * CLIMB];
  while (high / low > NARROW) {
    const middle = Math.sqrt(low * high);
    if (await holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}
