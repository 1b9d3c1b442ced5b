import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { defaultPolicy } from '../../domain/policy.ts';
import { createRandom } from '../../domain/random.ts';
import { greatCircleTravelTime } from '../../domain/travel-time.ts';
import { defaultRates } from '../../simulator/behaviour.ts';
import { SimulatedDriver } from '../../simulator/driver.ts';
import { RideLedger } from '../../simulator/ledger.ts';
import { Scheduler } from '../../simulator/scheduler.ts';
import { Tally } from '../../simulator/tally.ts';
import type { Assignment } from '../../src/client/contract.ts';
import type { AssignedRide, DriverClient, DriverEvents } from '../../src/client/driver-client.ts';

const HERE = { lat: 40.75, lng: -73.98 };
const NEAR = { lat: 40.751, lng: -73.98 };
const LONG_ENOUGH_MS = 3_600_000;

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

const assigned = (fence: number): AssignedRide => ({
  rideId: `ride ${fence}`,
  driverId: 'driver',
  offerId: `offer ${fence}`,
  fence,
  assignedAt: '2026-01-01T00:00:00.000Z',
  pickup: NEAR,
  dropoff: HERE,
});

/** A driver whose accept is answered when the test says, and whose other commands are granted at once. */
async function openDriver() {
  const accepted = Promise.withResolvers<Assignment>();
  const steps: string[] = [];
  const told = Promise.withResolvers<DriverEvents>();
  const step = (command: string) => async (rideId: string) => void steps.push(`${command} ${rideId}`);
  const client = {
    connect() {},
    close() {},
    trackLocation() {},
    async online() {},
    async location() {},
    accept: () => accepted.promise,
    arrive: step('arrive'),
    start: step('start'),
    complete: step('complete'),
  };
  const now = (): number => performance.now();
  const failed = (error: unknown): never => {
    throw error;
  };
  const tally = new Tally();
  const driver = new SimulatedDriver('driver', HERE, createRandom(1), {
    scheduler: new Scheduler({ now, failed }),
    ledger: new RideLedger(now, tally),
    tally,
    speedup: 1,
    policy: defaultPolicy,
    travel: greatCircleTravelTime(defaultPolicy),
    rates: Object.fromEntries(Object.keys(defaultRates).map((fault) => [fault, 0])) as unknown as typeof defaultRates,
    openClient: (_, events) => {
      told.resolve(events);
      return client as unknown as DriverClient;
    },
    readRide: () => Promise.reject(new Error('nobody asks')),
    failed,
  });
  await driver.begin();
  return { accepted, steps, events: await told.promise };
}

it('an old accept that is answered at last doesn’t begin a ride that others have followed', async () => {
  const { accepted, steps, events } = await openDriver();
  const offer = { ...assigned(1), leaseToken: 'token', expiresInMs: 60_000, pickupEtaS: 10 };
  events.offer!({ ...offer, decideByMs: performance.now() + offer.expiresInMs });
  await vi.advanceTimersByTimeAsync(offer.expiresInMs);
  for (const fence of [1, 2]) {
    events.assignment!(assigned(fence));
    events.rideCancelled!({ rideId: `ride ${fence}`, reasonCode: 'changed_mind', source: 'rider' });
  }
  events.assignment!(assigned(3));
  accepted.resolve(assigned(1));
  await vi.advanceTimersByTimeAsync(LONG_ENOUGH_MS);
  expect(steps).toEqual(['arrive ride 3', 'start ride 3', 'complete ride 3']);
});
