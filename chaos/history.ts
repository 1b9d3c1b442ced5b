/** Writes a run's history, line by line, and keeps the counts that a run is judged by. */
import { createWriteStream, type WriteStream } from 'node:fs';
import { once } from 'node:events';
import type { HistoryCommand, HistoryFault, HistoryLine, HistoryRun, HistoryShown } from '../src/verify/history.ts';

/** The machine's monotonic clock: the same for every process on it, and no fault of ours moves it. */
export const nowMs = (): number => Number(process.hrtime.bigint() / 1_000n) / 1_000;

export interface Tally {
  operations: number;
  /** `confirm ok`, `confirm lease_expired`, `request unknown ECONNRESET`, … */
  readonly answers: Map<string, number>;
  /** Confirms asked after their term, by the client's own clock. */
  stale: number;
  /** Confirms that went unanswered, and were asked again. */
  lostConfirms: number;
  serverErrors: number;
}

export class History {
  readonly tally: Tally = { operations: 0, answers: new Map(), stale: 0, lostConfirms: 0, serverErrors: 0 };
  readonly #file: WriteStream;
  readonly #served = new Set<(command: HistoryCommand) => void>();
  #ids = 0;

  constructor(path: string, run: Omit<HistoryRun, 'kind'>) {
    this.#file = createWriteStream(path);
    this.#write({ kind: 'run', ...run });
  }

  nextId(): string {
    this.#ids += 1;
    return `c${this.#ids}`;
  }

  command(command: Omit<HistoryCommand, 'kind'>): void {
    const line: HistoryCommand = { kind: 'command', ...command };
    this.#write(line);
    this.#count(line);
    for (const hear of this.#served) hear(line);
  }

  shown(shown: Omit<HistoryShown, 'kind'>): void {
    this.#write({ kind: 'shown', ...shown });
  }

  fault(fault: Omit<HistoryFault, 'kind'>): void {
    this.#write({ kind: 'fault', ...fault });
  }

  /** Told of every answered command until the returned function is called. */
  onCommand(hear: (command: HistoryCommand) => void): () => void {
    this.#served.add(hear);
    return () => void this.#served.delete(hear);
  }

  async end(healedAtMs: number): Promise<void> {
    this.#write({ kind: 'end', atMs: nowMs(), healedAtMs });
    this.#file.end();
    await once(this.#file, 'close');
  }

  #count({ command, outcome, code, status, isStale, repeats }: HistoryCommand): void {
    const { tally } = this;
    tally.operations += 1;
    const answer = [command, outcome, ...(code === undefined ? [] : [code])].join(' ');
    tally.answers.set(answer, (tally.answers.get(answer) ?? 0) + 1);
    if (isStale === true && command === 'confirm') tally.stale += 1;
    if (command === 'confirm' && outcome === 'unknown' && repeats === undefined) tally.lostConfirms += 1;
    if (status === 500 || code === 'internal_error') tally.serverErrors += 1;
  }

  /** What is heard after the end isn't part of it. */
  #write(line: HistoryLine): void {
    if (this.#file.writableEnded) return;
    this.#file.write(`${JSON.stringify(line)}\n`);
  }
}
