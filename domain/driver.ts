/** A driver as a state machine: offline, available, leased, assigned. The fence is +1 at each lease, and only there. */
import { applied, refused, repeated, type Verdict } from './verdict.ts';

export interface LeaseTerm {
  readonly offerId: string;
  readonly rideId: string;
  readonly grantedAtMs: number;
  readonly expiresAtMs: number;
  /** The device has the offer. */
  readonly isReceived: boolean;
}

interface Counters {
  readonly id: string;
  readonly fence: number;
  readonly version: number;
}

export type Driver = Counters &
  (
    | { readonly status: 'offline' | 'available' }
    | { readonly status: 'leased'; readonly term: LeaseTerm }
    | { readonly status: 'assigned'; readonly offerId: string; readonly rideId: string }
  );

export const registerDriver = (id: string): Driver => ({ id, status: 'offline', fence: 0, version: 1 });

const counters = ({ id, fence, version }: Driver): Counters => ({ id, fence, version: version + 1 });

export const bringOnline = (driver: Driver): Verdict<Driver> =>
  driver.status === 'offline' ? applied({ ...counters(driver), status: 'available' }) : repeated;

/** Of a leased driver the open offer has to be ended first. */
export function takeOffline(driver: Driver): Verdict<Driver, 'driver_assigned'> {
  if (driver.status === 'offline') return repeated;
  if (driver.status === 'assigned') return refused('driver_assigned');
  return applied({ ...counters(driver), status: 'offline' });
}

export function leaseDriver(driver: Driver, term: LeaseTerm): Verdict<Driver, 'driver_unavailable'> {
  if (driver.status !== 'available') return refused('driver_unavailable');
  return applied({ ...counters(driver), fence: driver.fence + 1, status: 'leased', term });
}

/** Renewed to the decision window, never shortened, and never past the lifetime. */
export function renewTerm(driver: Driver & { status: 'leased' }, untilMs: number, lifetimeEndsAtMs: number): Driver {
  const expiresAtMs = Math.max(driver.term.expiresAtMs, Math.min(untilMs, lifetimeEndsAtMs));
  return { ...counters(driver), status: 'leased', term: { ...driver.term, isReceived: true, expiresAtMs } };
}

export const assignDriver = (driver: Driver & { status: 'leased' }): Driver => ({
  ...counters(driver),
  status: 'assigned',
  offerId: driver.term.offerId,
  rideId: driver.term.rideId,
});

export const freeDriver = (driver: Driver): Driver => ({ ...counters(driver), status: 'available' });
