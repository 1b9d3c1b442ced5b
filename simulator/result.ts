import type { Policy } from '../domain/policy.ts';
import type { BrokenRows } from './demand/demand.ts';
import type { Percentiles } from './tally.ts';

/** What a run looked like from outside: from riders' and drivers' side of the public contract. */
export interface SimulationResult {
  readonly seed: number | string;
  readonly speedup: number;
  /** What ran: the policy as scaled. */
  readonly policy: Policy;
  readonly demand: { readonly name: string; readonly trips: number; readonly broken: BrokenRows };
  readonly drivers: number;
  /** `requested` = `completed` + `cancelled` + `noDriversAvailable` + `open`, as the service tells them at the end. */
  readonly rides: {
    readonly requested: number;
    /** Ever assigned, whatever became of it. */
    readonly assigned: number;
    readonly completed: number;
    readonly cancelled: number;
    readonly noDriversAvailable: number;
    readonly open: number;
  };
  /** Cancelled rides by who cancelled them and in which phase: `rider:assigned`. */
  readonly cancellations: Readonly<Record<string, number>>;
  /** Requests that the service refused, or never answered: no rides. */
  readonly unserved: number;
  /** Offers that drivers were shown, each counted once by each app that showed it. */
  readonly offersSeen: number;
  /**
   * Wall milliseconds. `requestToOffer`: from sending the request to the ride's first arrival on a driver's device;
   * `requestToAssigned`: to the first driver knowing that the ride is his; `confirm`: from accepting to the answer.
   */
  readonly latencyMs: {
    readonly requestToOffer: Percentiles;
    readonly requestToAssigned: Percentiles;
    readonly confirm: Percentiles;
  };
  /** City seconds from acceptance to the pick-up, of accepted offers. */
  readonly pickupEtaS: { readonly mean: number | null; readonly p50: number | null; readonly p95: number | null };
  /** Wall milliseconds by which requests were sent after their time. */
  readonly latenessMs: Percentiles;
  /** Misbehaviour by kind, as often as it was done. */
  readonly faults: Readonly<Record<string, number>>;
  /** Rides that were taken from their drivers: `stalled` (didn't come), `replaced` (a better one was found). */
  readonly taken: Readonly<Record<string, number>>;
  /** Refusals and missing answers by what was asked, `accept:lease_expired`; the faults' consequences among them. */
  readonly errors: Readonly<Record<string, number>>;
  /** From the first request's time to the last ride's end. */
  readonly wallSeconds: number;
}
