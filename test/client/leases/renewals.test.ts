import { afterEach, expect, it, vi } from 'vitest';
import type { LeaseClaim, LeaseService, Renewed } from '../../../src/client/leases/contract.ts';
import { Lease } from '../../../src/client/leases/lease.ts';
import { type FromThread, Renewals } from '../../../src/client/leases/renewals.ts';
import { monotonicMs, Trust, trustedUntilMs } from '../../../src/client/leases/trust.ts';
import { Unreachable } from '../../../src/client/problem.ts';

/** A service whose answers the test gives, call by call. */
class ScriptedService implements Pick<LeaseService, 'renew' | 'release'> {
  readonly calls: {
    readonly claims: readonly LeaseClaim[];
    readonly answer: (renewed: Renewed) => void;
    readonly fail: () => void;
  }[] = [];
  readonly released: LeaseClaim[] = [];

  renew(claims: readonly LeaseClaim[]): Promise<Renewed[]> {
    const { promise, resolve, reject } = Promise.withResolvers<Renewed[]>();
    this.calls.push({
      claims,
      answer: (renewed) => resolve(claims.map(() => renewed)),
      fail: () => reject(new Unreachable('nobody there')),
    });
    return promise;
  }

  async release(claims: readonly LeaseClaim[]) {
    this.released.push(...claims);
    return claims.map(() => ({ refused: null }) as const);
  }
}

const ended: (() => void)[] = [];
afterEach(() => {
  vi.useRealTimers();
  for (const end of ended.splice(0)) end();
});

function start() {
  const service = new ScriptedService();
  const told: FromThread[] = [];
  const renewals = new Renewals(service as unknown as LeaseService, (message) => told.push(message));
  const hold = (id: number, untilMs: number, renewInMs: number): Trust => {
    const trust = Trust.until(monotonicMs() + untilMs);
    const claims = [{ resource: `r${id}`, token: `t${id}` }];
    renewals.take({ kind: 'hold', id, claims, trust: trust.memory, renewAtMs: monotonicMs() + renewInMs });
    ended.push(() => renewals.take({ kind: 'drop', id }));
    return trust;
  };
  return { service, told, renewals, hold };
}

const renewed = (expiresInMs: number): Renewed => ({
  refused: null,
  fence: 1,
  expiresInMs,
  renewAfterMs: expiresInMs / 3,
});
const called = (service: ScriptedService, times: number) =>
  vi.waitFor(() => expect(service.calls.length).toBeGreaterThanOrEqual(times), { timeout: 10_000, interval: 5 });

it('what is due together shares a call', async () => {
  const { service, hold } = start();
  for (let id = 1; id <= 30; id++) hold(id, 60_000, 50 + id / 10);
  await called(service, 1);
  expect(service.calls[0]!.claims).toHaveLength(30);
});

it('trust begins where the try began: a slow success doesn’t stretch it', async () => {
  const { service, hold, told } = start();
  const trust = hold(1, 3_000, 0);
  const beforeMs = monotonicMs();
  await called(service, 1);
  await new Promise((resolve) => setTimeout(resolve, 300));
  service.calls[0]!.answer(renewed(10_000));
  await vi.waitFor(() => expect(told).toHaveLength(1));
  expect(monotonicMs() + trust.leftMs()).toBeLessThanOrEqual(trustedUntilMs(beforeMs + 50, 10_000));
});

it('an answer that comes after local expiry revives nothing', async () => {
  const { service, hold, told } = start();
  const trust = hold(1, 150, 0);
  await called(service, 1);
  await vi.waitFor(() => expect(trust.leftMs()).toBe(0), { interval: 5 });
  service.calls[0]!.answer(renewed(60_000));
  await new Promise((resolve) => setImmediate(resolve));
  expect(trust.leftMs()).toBe(0);
  expect(told).toEqual([]);
});

it('a try without an answer is followed by others while there is trust, and by none after it', async () => {
  const { service, hold } = start();
  const trust = hold(1, 800, 0);
  await called(service, 3);
  expect(trust.leftMs()).toBeGreaterThan(0);
  await vi.waitFor(() => expect(trust.leftMs()).toBe(0), { interval: 5 });
  const tries = service.calls.length;
  expect(tries).toBeLessThan(30);
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(service.calls.length).toBeLessThanOrEqual(tries + 1);
});

it('tries that fail at once are bounded too, and one success puts things right', async () => {
  const { service, hold, told } = start();
  const trust = hold(1, 2_000, 0);
  for (let tries = 1; tries <= 4; tries++) {
    await called(service, tries);
    service.calls[tries - 1]!.fail();
  }
  await called(service, 5);
  expect(told.filter(({ kind }) => kind === 'failed')).toHaveLength(4);
  service.calls[4]!.answer(renewed(60_000));
  await vi.waitFor(() => expect(trust.leftMs()).toBeGreaterThan(50_000));
});

it.each(['lease_lost', 'lease_expired'] as const)(
  'refused with %s, it is lost at once and never renewed again',
  async (refused) => {
    const { service, hold, told } = start();
    const trust = hold(1, 60_000, 0);
    await called(service, 1);
    service.calls[0]!.answer({ refused });
    await vi.waitFor(() => expect(told).toEqual([{ kind: 'lost', id: 1, refused }]));
    expect(trust.leftMs()).toBe(0);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(service.calls).toHaveLength(1);
  },
);

it('the wall clock may be set by an hour either way: nothing depends on it', async () => {
  const { service, hold } = start();
  const trust = hold(1, 60_000, 0);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_600_000 });
  expect(trust.leftMs()).toBeGreaterThan(59_000);
  await called(service, 1);
  vi.setSystemTime(Date.now() - 7_200_000);
  service.calls[0]!.answer(renewed(120_000));
  await vi.waitFor(() => expect(trust.leftMs()).toBeGreaterThan(100_000));
  expect(trust.leftMs()).toBeLessThan(120_000);
});

it('the end of the process releases what it is told to', async () => {
  const { service, renewals, hold } = start();
  hold(1, 60_000, 50_000);
  const done = new SharedArrayBuffer(4);
  renewals.take({ kind: 'exit', claims: [{ resource: 'r1', token: 't1' }], done });
  await vi.waitFor(() => expect(Atomics.load(new Int32Array(done), 0)).toBe(1));
  expect(service.released).toEqual([{ resource: 'r1', token: 't1' }]);
});

const keeper = {
  renew: async () => {},
  confirm: async () => ({ refused: 'lease_lost' }) as const,
  release: async () => {},
};
const grant = { resource: 'r', holder: 'h', token: 't', fence: 1, expiresInMs: 400, renewAfterMs: 100 };

it('the signal fires at local expiry by itself, after a warning, and says that nobody answered', async () => {
  const lease = new Lease(1, [grant], Trust.until(monotonicMs() + 400), keeper);
  await vi.waitFor(() => expect(lease.atRisk.aborted).toBe(true), { interval: 5 });
  expect(lease.signal.aborted).toBe(false);
  await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), { interval: 5 });
  expect(lease.signal.reason).toMatchObject({ name: 'LeaseLost', outcome: 'unreachable', resources: ['r'] });
});

it('a lease that was at risk and then renewed isn’t any more', async () => {
  const lease = new Lease(1, [grant], Trust.until(monotonicMs() + 400), keeper);
  await vi.waitFor(() => expect(lease.atRisk.aborted).toBe(true), { interval: 5 });
  lease.extend(monotonicMs() + 60_000, 60_000);
  expect(lease.atRisk.aborted).toBe(false);
  lease.assertHeld();
  await lease.release();
});

it('a process that was stopped knows at the next look, though no timer has run', () => {
  const lease = new Lease(1, [grant], Trust.until(monotonicMs() + 30), keeper);
  const fired = vi.fn<() => void>();
  lease.signal.addEventListener('abort', fired);
  const untilMs = monotonicMs() + 60;
  while (monotonicMs() < untilMs);
  expect(() => lease.assertHeld()).toThrow('its time ran out');
  expect(fired).toHaveBeenCalledOnce();
});
