/** The processes that make the load, as one. */
import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { stopChild } from '../member.ts';
import { type Answer, type Opening, type Order, type Seen, seenNothing, sharedNowMs } from './messages.ts';

const LOAD = fileURLToPath(new URL('load.ts', import.meta.url));
const OPEN_DEADLINE_MS = 120_000;
/** Beyond the time that requests are sent for; the clients have deadlines of their own. */
const ANSWER_DEADLINE_MS = 60_000;
/** Time for the order to reach every process before the first request is due. */
const LEAD_MS = 50;

/** Where a service is; its sockets may be elsewhere. */
export interface Served {
  readonly url: string;
  readonly socketUrl: string;
}

export class Workers implements AsyncDisposable {
  readonly #children: readonly ChildProcess[];

  private constructor(children: readonly ChildProcess[]) {
    this.#children = children;
  }

  /** Starts `count` processes and shares drivers and services out among them; resolves when all drivers are online. */
  static async start(
    count: number,
    opening: Omit<Opening, keyof Served>,
    services: readonly Served[],
  ): Promise<Workers> {
    const children = Array.from({ length: count }, () =>
      fork(LOAD, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'], detached: true }),
    );
    const workers = new Workers(children);
    try {
      await workers.#ask(OPEN_DEADLINE_MS, (index) => ({
        kind: 'open',
        open: {
          ...opening,
          ...services[index % services.length]!,
          drivers: opening.drivers.filter((_, driver) => driver % count === index),
          seed: `${opening.seed} ${index}`,
        },
      }));
      return workers;
    } catch (error) {
      await workers[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Sends requests at the rate, and resolves with what was seen until the last of them was answered. */
  async request(ratePerS: number, seconds: number): Promise<Seen> {
    const startAtMs = sharedNowMs() + LEAD_MS;
    const each = ratePerS / this.#children.length;
    return merge(
      await this.#ask(seconds * 1000 + ANSWER_DEADLINE_MS, (index) => ({
        kind: 'request',
        ratePerS: each,
        seconds,
        // Taking turns, so that the whole is as even as each part.
        startAtMs: startAtMs + (index * 1000) / ratePerS,
      })),
    );
  }

  get pids(): number[] {
    return this.#children.map(({ pid }) => pid!);
  }

  /** From now on drivers let offers stand. */
  async hold(): Promise<void> {
    await this.#ask(ANSWER_DEADLINE_MS, () => ({ kind: 'hold' }));
  }

  /**
   * When each driver was told its own state again, in shared milliseconds, and how many of them hold offers; rejects when
   * one is told another. `cut`: every socket is cut first.
   */
  async reconnect(deadlineMs: number, { cut }: { cut: boolean }): Promise<{ atMs: number[]; offers: number }> {
    const all = { atMs: [] as number[], offers: 0 };
    for (const answer of await this.#ask(deadlineMs, () => ({ kind: 'reconnect', cut }))) {
      if (answer.kind !== 'reconnected') continue;
      all.atMs.push(...answer.atMs);
      all.offers += answer.offers;
    }
    return all;
  }

  async collect(): Promise<Seen> {
    return merge(await this.#ask(ANSWER_DEADLINE_MS, () => ({ kind: 'collect' })));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#children.map(stopChild));
  }

  async #ask(deadlineMs: number, orderOf: (index: number) => Order): Promise<Answer[]> {
    return Promise.all(
      this.#children.map(async (child, index) => {
        const heard = Promise.withResolvers<Answer>();
        const gone = (code: number | null): void => heard.reject(new Error(`a load process ended (${code})`));
        const overdue = setTimeout(() => heard.reject(new Error('a load process doesn’t answer')), deadlineMs);
        child.once('message', heard.resolve).once('exit', gone);
        child.send(orderOf(index));
        const answer = await heard.promise.finally(() => {
          clearTimeout(overdue);
          child.off('message', heard.resolve).off('exit', gone);
        });
        if (answer.kind === 'failed') throw new Error(`a load process failed: ${answer.why}`);
        return answer;
      }),
    );
  }
}

function merge(answers: readonly Answer[]): Seen {
  const all = seenNothing();
  for (const answer of answers) if ('seen' in answer) addTo(all, answer.seen);
  return all;
}

export function addTo(all: Seen, more: Seen): void {
  for (const list of ['requested', 'offered', 'completed', 'confirmMs', 'lateMs'] as const)
    for (const item of more[list]) (all[list] as unknown[]).push(item);
  for (const [what, count] of Object.entries(more.failures)) all.failures[what] = (all.failures[what] ?? 0) + count;
}
