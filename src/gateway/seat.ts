/** A connected driver, and what the gateway works with. */
import type { Socket } from 'socket.io';
import type { Authenticator } from '../auth.ts';
import type { Database } from '../database/connection.ts';
import type { Leasing } from '../leasing/leasing.ts';
import type { Standing } from '../leasing/transitions.ts';
import type { Logger } from '../ops/log.ts';
import type { Metrics } from '../ops/metrics.ts';
import type { Positions } from '../positions.ts';
import type { CallerLimiter } from '../rate-limit.ts';
import type { Regions } from '../regions.ts';
import type { Fanout } from './fanout.ts';
import type { DriverNotice } from './notices.ts';
import type { Push } from './offer-pushes.ts';

export interface GatewayDeps {
  readonly database: Database;
  readonly authenticator: Authenticator;
  readonly mayAsk: CallerLimiter;
  readonly regions: Regions;
  readonly leasing: Leasing;
  readonly positions: Positions;
  readonly metrics: Metrics;
  readonly fanout: Fanout;
  readonly log: Logger;
}

/** A connected driver. */
export interface Seat {
  readonly driverId: string;
  readonly region: number;
  readonly socket: Socket;
  readonly connectedAtMs: number;
  /** When the driver's token ends, in milliseconds since 1970. */
  readonly expiresAtMs: number;
  lastSeenAtMs: number;
  /** Of the records when it connected: a notice of an older term is late, and not shown any more. */
  fence: number;
  push: Push | null;
  /** What the device makes of all that it was told. */
  standing: Standing;
  /** How often it was told anything: what was read before the last time may be older than what it knows. */
  told: number;
  /** Notices that came before the driver was told its state, which is the first thing to be told; null: it was. */
  early: DriverNotice[] | null;
}

/** The driver was told that he doesn't have this ride any more. */
export function loseRide(seat: Seat, rideId: string): void {
  if (seat.standing === rideId) seat.standing = 'free';
}

/** Ends the connection as a broken line would: stock clients connect again by themselves, but not when they are disconnected. */
export function comeAgain({ socket }: Seat): void {
  socket.conn.close();
}
