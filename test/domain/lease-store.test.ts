import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LeaseStore } from '../../domain/lease-store.ts';
import { defaultPolicy } from '../../domain/policy.ts';
import type { RideStep } from '../../domain/ride.ts';

const TERMS = {
  ...defaultPolicy,
  parallelOffers: 2,
  offersMax: 5,
  deliveryTtlMs: 10,
  decisionTtlMs: 30,
  maxLifetimeMs: 50,
};
const RIDES = ['r1', 'r2', 'r3'];
const DRIVERS = ['d1', 'd2', 'd3'];

/** Numbers that each command reads as it likes: which ride, driver, offer, and how much time goes by before. */
const commands = fc.array(fc.tuple(fc.nat(10), fc.nat(2), fc.nat(2), fc.nat(5), fc.nat(12)), { maxLength: 60 });

/** Runs commands one by one; `look` sees the store after each. */
function play(
  list: [number, number, number, number, number][],
  look: (store: LeaseStore, nowMs: number) => void,
): void {
  const store = new LeaseStore();
  for (const id of RIDES) store.requestRide(id, 'rider', 500);
  for (const id of DRIVERS) store.registerDriver(id);
  const offers: string[] = [];
  let nowMs = 0;
  for (const [kind, r, d, o, ms] of list) {
    nowMs += ms;
    const [rideId, driverId] = [RIDES[r]!, DRIVERS[d]!];
    const offerId = offers[o % Math.max(1, offers.length)] ?? 'none';
    const claim = { offerId, token: `token of ${offerId}`, driverId: null };
    const steps: readonly RideStep[] = ['driver_arrived', 'in_progress', 'completed'];
    if (kind <= 2) {
      const next = `o${offers.length}`;
      const answer = store.lease({ rideId, driverId, offerId: next, token: `token of ${next}` }, TERMS, nowMs);
      if (answer.applied) offers.push(next);
    } else if (kind === 3) store.receive(claim, nowMs);
    else if (kind === 4) store.confirm(claim, nowMs);
    else if (kind === 5) store.giveBackOffer(claim, o % 2 === 0 ? 'declined' : 'withdrawn', nowMs);
    else if (kind === 6) store.expire(nowMs);
    else if (kind === 7) store.cancel(rideId, null);
    else if (kind === 8) store.driverCancel(rideId, driverId, nowMs, { patienceMs: 100, givebacksMax: 2 });
    else if (kind === 9) store.advance(rideId, driverId, steps[o % 3]!);
    else if (o < 4) store.bringOnline(driverId);
    else store.takeOffline(driverId);
    look(store, nowMs);
  }
}

describe('whatever is asked, in any order', () => {
  it('a driver holds one ride at most, and a ride one driver', () => {
    fc.assert(
      fc.property(commands, (list) =>
        play(list, ({ rides, drivers, offers }) => {
          const pending = [...offers.values()].filter(({ status }) => status === 'pending');
          for (const driver of drivers.values()) {
            const own = pending.filter(({ driverId }) => driverId === driver.id);
            expect(own.map(({ id }) => id)).toEqual(driver.status === 'leased' ? [driver.term.offerId] : []);
            if (driver.status !== 'assigned') continue;
            const ride = rides.get(driver.rideId)!;
            expect(ride.assignment).toEqual({ driverId: driver.id, offerId: driver.offerId });
            expect(['assigned', 'driver_arrived', 'in_progress']).toContain(ride.status);
          }
          for (const ride of rides.values()) {
            const open = pending.filter(({ rideId }) => rideId === ride.id);
            expect(open).toHaveLength(ride.status === 'searching' ? ride.liveOffers : 0);
            expect(open.length).toBeLessThanOrEqual(TERMS.parallelOffers);
            const holders = [...drivers.values()].filter(
              (each) => each.status === 'assigned' && each.rideId === ride.id,
            );
            const isHeld = ['assigned', 'driver_arrived', 'in_progress'].includes(ride.status);
            expect(holders).toHaveLength(isHeld ? 1 : 0);
          }
        }),
      ),
      { numRuns: 2_000 },
    );
  });

  it('versions and fences only rise, and an offer that has ended stays as it ended', () => {
    fc.assert(
      fc.property(commands, (list) => {
        const fences = new Map<string, number>();
        const versions = new Map<string, number>();
        const ends = new Map<string, string>();
        play(list, ({ rides, drivers, offers }) => {
          for (const { id, fence, version } of drivers.values()) {
            expect(fence - (fences.get(id) ?? 0)).toBeGreaterThanOrEqual(0);
            expect(fence - (fences.get(id) ?? 0)).toBeLessThanOrEqual(1);
            fences.set(id, fence);
            expect(version).toBeGreaterThanOrEqual(versions.get(id) ?? 0);
            versions.set(id, version);
          }
          for (const { id, version } of rides.values()) {
            expect(version).toBeGreaterThanOrEqual(versions.get(id) ?? 0);
            versions.set(id, version);
          }
          for (const { id, status } of offers.values()) {
            if (ends.has(id)) expect(status).toBe(ends.get(id));
            if (status !== 'pending') ends.set(id, status);
          }
        });
      }),
      { numRuns: 2_000 },
    );
  });

  it('a confirm that was granted is granted again, for ever; one that was refused for its end never is', () => {
    fc.assert(
      fc.property(commands, (list) => {
        const said = new Map<string, boolean>();
        play(list, (store, nowMs) => {
          for (const { id, token } of [...store.offers.values()].filter(({ status }) => status !== 'pending')) {
            const { refused, applied } = store.confirm({ offerId: id, token, driverId: null }, nowMs);
            expect(applied).toBe(false);
            if (said.has(id)) expect(refused === null).toBe(said.get(id));
            said.set(id, refused === null);
          }
        });
      }),
      { numRuns: 1_000 },
    );
  });
});
