import type { SimulatedDriver } from './driver.ts';
import type { RideCounts, RideLedger } from './ledger.ts';
import type { Progress, Recent } from './progress.ts';
import { percentiles, type Tally } from './tally.ts';

/** A live latency tells of now, not of the whole run. */
const RECENT_MAX = 1_000;

export interface MeterReading {
  readonly phase: Progress['phase'];
  readonly nowMs: number;
  readonly cityTimeMs: number | null;
  readonly drivers: readonly SimulatedDriver[];
  readonly trips: number;
}

/** Turns what the city knows into progress; remembers the last reading, since rates are what lies between two. */
export class Meter {
  readonly #ledger: RideLedger;
  readonly #tally: Tally;
  readonly #startedMs: number;
  #last: { atMs: number; rides: RideCounts; offersSeen: number };

  constructor(ledger: RideLedger, tally: Tally, nowMs: number) {
    this.#ledger = ledger;
    this.#tally = tally;
    this.#startedMs = nowMs;
    this.#last = { atMs: nowMs, rides: ledger.counts(), offersSeen: 0 };
  }

  read({ phase, nowMs, cityTimeMs, drivers, trips }: MeterReading): Progress {
    const tally = this.#tally;
    const rides = this.#ledger.counts();
    const rates = this.#rates(nowMs, rides);
    this.#last = { atMs: nowMs, rides, offersSeen: tally.offersSeen };
    let [onDuty, busy] = [0, 0];
    for (const driver of drivers) {
      if (driver.onDuty) onDuty++;
      if (driver.busy) busy++;
    }
    return {
      phase,
      wallS: (nowMs - this.#startedMs) / 1000,
      cityTimeMs,
      drivers: { total: drivers.length, onDuty, busy },
      trips,
      rides,
      rates,
      latencyMs: {
        requestToOffer: recent(tally.requestToOfferMs),
        requestToAssigned: recent(tally.requestToAssignedMs),
        confirm: recent(tally.confirmMs),
      },
      offersSeen: tally.offersSeen,
      faults: sum(tally.faults),
      errors: sum(tally.errors),
    };
  }

  #rates(nowMs: number, rides: RideCounts): Progress['rates'] {
    const { atMs, rides: last, offersSeen } = this.#last;
    const perSecond = (count: number): number => (nowMs > atMs ? (count * 1000) / (nowMs - atMs) : 0);
    return {
      requests: perSecond(rides.requested - last.requested),
      offers: perSecond(this.#tally.offersSeen - offersSeen),
      assigned: perSecond(rides.assignedEver - last.assignedEver),
      completed: perSecond(rides.completed - last.completed),
    };
  }
}

function recent(values: readonly number[]): Recent {
  const { p50, p99 } = percentiles(values.slice(-RECENT_MAX));
  return { p50, p99 };
}

const sum = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((all, count) => all + count, 0);
