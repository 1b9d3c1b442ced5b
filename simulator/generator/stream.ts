import { DAY_MS, type Trip } from '../demand/demand.ts';

export interface StreamedTrip extends Trip {
  /** Of all trips there ever are, this one: whoever asks for it a second time asks for the same. */
  readonly key: string;
}

/** An endless demand: one day's trips, again every day. Times are city milliseconds since the epoch. */
export class TripStream {
  readonly #day: readonly Trip[];

  /** A day's trips, ordered by request time from midnight. */
  constructor(day: readonly Trip[]) {
    this.#day = day;
  }

  /** What is asked for after `fromMs` until `toMs`, in order. */
  *between(fromMs: number, toMs: number): Generator<StreamedTrip> {
    for (let day = Math.floor(fromMs / DAY_MS); day <= Math.floor(toMs / DAY_MS); day++) {
      const midnightMs = day * DAY_MS;
      for (let index = this.#firstAfter(fromMs - midnightMs); index < this.#day.length; index++) {
        const trip = this.#day[index] as Trip;
        if (midnightMs + trip.requestMs > toMs) return;
        yield { ...trip, key: `${day}-${index}` };
      }
    }
  }

  #firstAfter(timeMs: number): number {
    let [low, high] = [0, this.#day.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#day[middle] as Trip).requestMs > timeMs) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}
