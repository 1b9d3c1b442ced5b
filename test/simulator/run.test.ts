import { describe, expect, it, vi } from 'vitest';
import { createRandom } from '../../domain/random.ts';
import { syntheticDemand } from '../../simulator/demand/synthetic.ts';
import type { Progress } from '../../simulator/progress.ts';
import { runSimulation, type SimulationOptions } from '../../simulator/run.ts';
import { FakeService } from './fake-service.ts';

const secret = 'a secret of at least thirty-two characters';
const center = { lat: -17.8, lng: 179.99 };
const city = { center, radiusM: 3_000, peakRidesPerHour: 400, fromMs: 18 * 3_600_000, minutes: 15 };
const noFaults = {
  declines: 0,
  ignores: 0,
  answersLate: 0,
  disconnects: 0,
  crashes: 0,
  answersTwice: 0,
  cancels: 0,
  slow: 0,
};

/** A quarter of an hour across the date line, in under ten seconds. */
const options = (service: FakeService, more: Partial<SimulationOptions> = {}): SimulationOptions => ({
  urls: [service.url],
  tokens: secret,
  regionId: 'fiji',
  demand: syntheticDemand(city, createRandom('city')),
  drivers: 60,
  speedup: 300,
  seed: 1,
  ...more,
});

describe.concurrent('a simulated city', () => {
  it('brings every ride to its end, and its numbers add up', async () => {
    await using service = await FakeService.listen();
    const demand = syntheticDemand(city, createRandom('city'));
    // A whole second to decide, even at this speed: a busy machine doesn't let an offer lapse.
    const policy = { decisionTtlMs: 300_000, maxLifetimeMs: 600_000 };
    const { rides, ...result } = await runSimulation(
      options(service, { demand, policy, rates: noFaults, riderCancelRate: 0 }),
    );
    expect(rides).toEqual({
      requested: demand.trips.length,
      assigned: demand.trips.length,
      completed: demand.trips.length,
      cancelled: 0,
      noDriversAvailable: 0,
      open: 0,
    });
    expect(service.rides.size).toBe(demand.trips.length);
    expect(result).toMatchObject({ unserved: 0, offersSeen: demand.trips.length, errors: {}, faults: {} });
    const { requestToOffer, requestToAssigned, confirm } = result.latencyMs;
    expect(requestToAssigned.p50).toBeGreaterThan(requestToOffer.p50 as number);
    expect(confirm.p99).toBeGreaterThan(0);
    expect(result.pickupEtaS.mean).toBeGreaterThan(10);
    expect(result.pickupEtaS.mean).toBeLessThan(900);
    expect(result.policy).toEqual(service.policy);
  });

  it('ends all the same when every driver misbehaves in every way and riders change their minds', async () => {
    await using service = await FakeService.listen();
    const rates = {
      declines: 0.1,
      ignores: 0.1,
      answersLate: 0.1,
      disconnects: 0.1,
      crashes: 0.1,
      answersTwice: 0.1,
      cancels: 0.1,
      slow: 0.3,
    };
    const { rides, faults } = await runSimulation(options(service, { rates, riderCancelRate: 0.1 }));
    expect(rides.open).toBe(0);
    expect(rides.requested).toBe(rides.completed + rides.cancelled + rides.noDriversAvailable);
    expect(rides.assigned).toBeGreaterThan(rides.requested * 0.8);
    expect(Object.keys(faults).sort()).toEqual([...Object.keys(rates), 'riderCancels'].sort());
    expect([...service.drivers.values()].filter(({ status }) => status === 'assigned')).toEqual([]);
  });

  it('loses nothing when the service is away in the middle', async () => {
    await using service = await FakeService.listen();
    const demand = syntheticDemand(city, createRandom('city'));
    let outages = 0;
    const onProgress = (progress: Progress): void => {
      if (progress.phase === 'running' && outages++ < 2) service.outage(400);
    };
    const { rides, unserved } = await runSimulation(options(service, { demand, onProgress }));
    expect(outages).toBeGreaterThan(1);
    expect(unserved).toBe(0);
    expect(rides).toMatchObject({ requested: demand.trips.length, open: 0 });
    expect(service.rides.size).toBe(demand.trips.length);
  });

  it('tells of rides for which there was nobody', async () => {
    await using service = await FakeService.listen();
    const { rides } = await runSimulation(options(service, { drivers: 3 }));
    expect(rides.noDriversAvailable).toBeGreaterThan(10);
    expect(rides.open).toBe(0);
  });

  it('ends at once when aborted, and leaves no connection', async () => {
    await using service = await FakeService.listen();
    const stop = new AbortController();
    const onProgress = ({ phase }: Progress): void => {
      if (phase === 'running') stop.abort(new Error('enough'));
    };
    await expect(runSimulation(options(service, { signal: stop.signal, onProgress }))).rejects.toThrow('enough');
    await vi.waitFor(() =>
      expect([...service.drivers.values()].filter(({ socket }) => socket?.connected === true)).toEqual([]),
    );
  });

  it('refuses options that can’t work, naming each', async () => {
    await using service = await FakeService.listen();
    const wrong = options(service, {
      drivers: 0,
      policy: { pushRetryMs: 5_000 },
      rates: { declines: 0.7, ignores: 0.6 },
    });
    await expect(runSimulation(wrong)).rejects.toThrow(
      /drivers must be.*deliveryTtlMs must be longer than pushRetryMs/,
    );
    await expect(runSimulation(wrong)).rejects.toThrow(/more than 1/);
    expect(service.policy).toBeNull();
  });
});
