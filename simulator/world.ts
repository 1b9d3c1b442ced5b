import type { Policy } from '../domain/policy.ts';
import type { TravelTime } from '../domain/travel-time.ts';
import type { Ride } from '../src/client/contract.ts';
import type { DriverClient, DriverEvents } from '../src/client/driver-client.ts';
import type { FaultRates } from './behaviour.ts';
import type { RideLedger } from './ledger.ts';
import type { Scheduler } from './scheduler.ts';
import type { Tally } from './tally.ts';

/** What everybody in the city shares. */
export interface World {
  readonly scheduler: Scheduler;
  readonly ledger: RideLedger;
  readonly tally: Tally;
  readonly speedup: number;
  /** As the service runs it: scaled. */
  readonly policy: Policy;
  /** In wall seconds: its speed is scaled too. */
  readonly travel: TravelTime;
  readonly rates: FaultRates;
  readonly openClient: (driverId: string, events: DriverEvents) => DriverClient;
  readonly readRide: (rideId: string) => Promise<Ride>;
  /** Takes a mistake of the simulator's own, which ends the run. */
  readonly failed: (error: unknown) => void;
}
