import { expect, it } from 'vitest';
import { defaultPolicy, policyProblems } from '../../domain/policy.ts';
import { createRandom } from '../../domain/random.ts';
import { defaultRates, rateProblems, ratesAt } from '../../simulator/behaviour.ts';
import { LIFELIKE_RATES, lifelikePolicy, planDriver, planRider } from '../../simulator/life.ts';

const random = createRandom('life');
const riders = Array.from({ length: 20_000 }, (_, i) => planRider(random.fork(`rider ${i}`)));
const drivers = Array.from({ length: 20_000 }, (_, i) => planDriver(random.fork(`driver ${i}`)));
const share = <T>(all: readonly T[], is: (one: T) => boolean): number => all.filter(is).length / all.length;

it('riders change their minds at every stage, and some stay away', () => {
  for (const stage of ['searching', 'assigned', 'driver_arrived'] as const)
    expect(share(riders, ({ changeOfMind }) => changeOfMind?.stage === stage)).toBeGreaterThan(0.05);
  expect(share(riders, ({ changeOfMind }) => changeOfMind !== null)).toBeCloseTo(0.62, 1);
  expect(share(riders, ({ staysAway }) => staysAway)).toBeCloseTo(0.03, 1.5);
});

it('more drivers have what is asked for than riders ask for it', () => {
  for (const attribute of ['pet', 'wheelchair'])
    expect(share(drivers, ({ profile }) => profile.attributes?.includes(attribute) === true)).toBeGreaterThan(
      5 * share(riders, ({ needs }) => needs.attributes?.includes(attribute) === true),
    );
  expect(share(drivers, ({ shiftEndsAfterMs }) => shiftEndsAfterMs !== null)).toBeCloseTo(0.3, 1);
});

it('the same seed gives the same lives', () => {
  expect(planRider(createRandom(1))).toEqual(planRider(createRandom(1)));
  expect(planDriver(createRandom(1))).toEqual(planDriver(createRandom(1)));
});

it('the policy and the rates can run', () => {
  expect(policyProblems({ ...defaultPolicy, ...lifelikePolicy })).toEqual([]);
  const rates = { ...defaultRates, ...LIFELIKE_RATES };
  for (const acceptance of [0, 0.5, 1]) expect(rateProblems({ ...rates, ...ratesAt(acceptance, rates) })).toEqual([]);
});

it('so many offers are meant to be accepted', () => {
  const rates = { ...defaultRates, ...ratesAt(0.5, defaultRates) };
  const { slow: _, ...faults } = rates;
  expect(Object.values(faults).reduce((sum, rate) => sum + rate, 0)).toBeCloseTo(0.5, 10);
});
