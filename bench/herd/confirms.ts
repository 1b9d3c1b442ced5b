/**
 * Drivers who accept at an even rate: a thread whose heap holds nothing else. Collecting what the making of a herd left behind
 * stopped it for up to 40 ms, which were taken for the service's.
 */
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { Connections, Rest } from '../../src/client/rest.ts';

export interface Term {
  readonly offerId: string;
  readonly leaseToken: string;
}

interface Opening {
  readonly url: string;
  readonly token: string;
  readonly ratePerS: number;
}

export class Confirms implements AsyncDisposable {
  readonly #worker: Worker;

  constructor(opening: Opening) {
    this.#worker = new Worker(new URL(import.meta.url), { workerData: opening });
  }

  /** Accepts each at its time; what each took in milliseconds, from when it was due. Rejects when one is refused. */
  async run(terms: readonly Term[]): Promise<number[]> {
    const answered = once(this.#worker, 'message');
    this.#worker.postMessage(terms.map(({ offerId, leaseToken }) => ({ offerId, leaseToken })));
    const [took] = (await answered) as [number[]];
    return took;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }
}

function work({ url, token, ratePerS }: Opening): void {
  const rest = new Rest({ url, token, connections: new Connections() });
  const confirm = async ({ offerId, leaseToken }: Term, dueMs: number): Promise<number> => {
    await pause(Math.max(0, dueMs - performance.now()));
    const path = `/v1/offers/${offerId}/confirm`;
    await rest.call({ method: 'POST', path, body: { leaseToken }, repeatable: false });
    return performance.now() - dueMs;
  };
  const runAll = async (terms: readonly Term[]): Promise<void> => {
    const startMs = performance.now();
    parentPort!.postMessage(await Promise.all(terms.map((term, i) => confirm(term, startMs + (i * 1000) / ratePerS))));
  };
  // One that is refused ends the thread, and `run` rejects.
  parentPort!.on('message', (terms: readonly Term[]) => void runAll(terms));
}

if (!isMainThread) work(workerData as Opening);
