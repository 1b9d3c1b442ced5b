import { expect, it } from 'vitest';
import { findHighestHeld } from '../../bench/city/search.ts';

/** A service that holds up to `probeMax` for a short time and up to `holdMax` for long. */
function trials(probeMax: number, holdMax: number) {
  const tried: number[] = [];
  const trial = (max: number) => async (rate: number) => {
    tried.push(rate);
    return { held: rate <= max, outcome: rate };
  };
  return { tried, probe: trial(probeMax), hold: trial(holdMax) };
}

it.each([3, 37, 199, 200, 1_000, 12_345])('a limit of %i a second is found to within a tenth', async (limit) => {
  const { probe, hold } = trials(limit, limit);
  const found = await findHighestHeld(200, probe, hold);
  expect(found!.rate).toBeLessThanOrEqual(limit);
  expect(found!.rate).toBeGreaterThan(limit * 0.9 - 1);
});

it('what holds for a moment and not for long is not the answer', async () => {
  const { probe, hold } = trials(1_000, 800);
  const found = await findHighestHeld(200, probe, hold);
  expect(found!.rate).toBeLessThanOrEqual(800);
  expect(found!.outcome).toBe(found!.rate);
});

it('a service that holds nothing has no rate', async () => {
  const { probe, hold } = trials(0, 0);
  expect(await findHighestHeld(200, probe, hold)).toBeNull();
});

it('the search ends, too, where every rate holds', async () => {
  const { tried, probe, hold } = trials(Infinity, Infinity);
  await findHighestHeld(200, probe, hold);
  expect(tried.length).toBeLessThan(50);
});
