import { setMaxListeners } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { Agent, errors } from 'undici';
import { fullJitterMs, isTransient, Problem, Unreachable } from './problem.ts';
import type { TokenSource } from './token.ts';

export interface RestOptions {
  /** The service's base URL; of several, another is tried when one doesn't answer. */
  readonly url: string | readonly string[];
  readonly token: string | TokenSource;
  /** Connections to share with other clients; without it the client has its own and `close` ends them. */
  readonly connections?: Connections;
  /** A call with all its repetitions takes no longer. */
  readonly deadlineMs?: number;
}

export interface Call {
  readonly method: 'GET' | 'PUT' | 'POST';
  readonly path: string;
  readonly body?: object;
  readonly idempotencyKey?: string;
  /** A second time does no more than the first: it may be sent again when its answer got lost. */
  readonly repeatable: boolean;
  /** The service may let the call wait for others: so much longer than usual its answer may take. */
  readonly waitMs?: number;
  /** Ends the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

const DEADLINE_MS = 15_000;
/** One attempt's share of the deadline: a process that died without a word costs no more than this. */
const ATTEMPT_MS = 5_000;
const BACKOFF_BASE_MS = 100;
const BACKOFF_MAX_MS = 2_000;
/** The longest answers are pages of a list. */
const ANSWER_MAX_BYTES = 8 * 1024 * 1024;

/** Kept-alive connections. Of undici, because a call over node:http took three times the CPU (0.16 against 0.05 ms), and fetch more. */
export class Connections {
  readonly agent: Agent;
  readonly #closing = new AbortController();

  constructor({ maxPerHost = 64 }: { maxPerHost?: number } = {}) {
    this.agent = new Agent({
      connections: maxPerHost,
      // A connection that is just being made would otherwise keep the process alive until it is, or isn't.
      connect: { timeout: ATTEMPT_MS, signal: this.closing },
      // Over TLS a server may offer HTTP/2; 1.1 is what the service speaks and the faults are tried with.
      allowH2: false,
      maxResponseSize: ANSWER_MAX_BYTES,
      // Each attempt has a deadline for all of it.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    // Every call that pauses before it is repeated listens.
    setMaxListeners(0, this.closing);
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Ends the calls under way too: they fail as `Unreachable`. */
  close(): void {
    this.#closing.abort();
    void this.agent.destroy();
  }
}

/** What the REST clients share: tokens, deadlines, and bounded repetition where it is safe. */
export class Rest {
  readonly #urls: readonly URL[];
  readonly #token: TokenSource;
  readonly #connections: Connections;
  readonly #ownsConnections: boolean;
  readonly #deadlineMs: number;
  #at = 0;

  constructor(options: RestOptions) {
    const { url, token } = options;
    this.#urls = (typeof url === 'string' ? [url] : url).map((each) => new URL(each));
    if (this.#urls.length === 0) throw new RangeError('a client needs at least one URL');
    this.#token = typeof token === 'string' ? () => token : token;
    this.#connections = options.connections ?? new Connections();
    this.#ownsConnections = options.connections === undefined;
    this.#deadlineMs = options.deadlineMs ?? DEADLINE_MS;
  }

  /**
   * The answer's body. Throws `Problem` when the service refuses, and `Unreachable` when there is no answer within the
   * deadline, or the connections are closed.
   */
  async call<Answer>(call: Call): Promise<Answer> {
    const { waitMs = 0, signal } = call;
    const deadlineAtMs = performance.now() + this.#deadlineMs + waitMs;
    for (let attempt = 1; ; attempt++) {
      try {
        return (await this.#attempt(call, Math.min(ATTEMPT_MS + waitMs, deadlineAtMs - performance.now()))) as Answer;
      } catch (error) {
        signal?.throwIfAborted();
        const { closing } = this.#connections;
        if (closing.aborted || !call.repeatable || !isTransient(error)) throw error;
        const backoffMs = fullJitterMs(attempt, BACKOFF_BASE_MS, BACKOFF_MAX_MS);
        const askedMs = error instanceof Problem ? (error.retryAfterMs ?? 0) : 0;
        const pauseMs = Math.max(backoffMs, askedMs);
        if (performance.now() + pauseMs >= deadlineAtMs) throw error;
        this.#at++;
        await wait(pauseMs, undefined, { signal: closing }).catch(() => {
          throw error;
        });
      }
    }
  }

  close(): void {
    if (this.#ownsConnections) this.#connections.close();
  }

  async #attempt(call: Call, timeoutMs: number): Promise<unknown> {
    const url = new URL(call.path, this.#urls[this.#at % this.#urls.length]);
    const headers: Record<string, string> = { authorization: `Bearer ${await this.#token()}` };
    if (call.idempotencyKey !== undefined) headers['idempotency-key'] = call.idempotencyKey;
    if (call.body !== undefined) headers['content-type'] = 'application/json';
    const { status, retryAfterMs, text } = await this.#exchange(url, call, headers, timeoutMs);
    const answer = parseJson(text);
    if (status >= 200 && status < 300) return answer;
    throw problemOf(status, retryAfterMs, answer);
  }

  async #exchange(url: URL, { method, body, signal: given }: Call, headers: Record<string, string>, timeoutMs: number) {
    const { agent, closing } = this.#connections;
    const to = {
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      method,
      headers,
      body: body === undefined ? null : JSON.stringify(body),
    };
    try {
      return await within(timeoutMs, given, async (signal) => {
        const answer = await agent.request({ ...to, signal });
        const retryAfterS = Number(answer.headers['retry-after'] ?? Number.NaN);
        return {
          status: answer.statusCode,
          retryAfterMs: Number.isFinite(retryAfterS) ? retryAfterS * 1000 : null,
          text: await answer.body.text(),
        };
      });
    } catch (error) {
      if (error instanceof errors.InvalidArgumentError) throw error;
      const why = closing.aborted ? 'the connections are closed' : (error as Error).message;
      throw new Unreachable(`${method} ${url.href}: ${why}`, { cause: error });
    }
  }
}

/**
 * What `act` resolves with, unless the time is up or `signal` aborts before: then it rejects at once and `act` is told by
 * the signal that it is given. (A call that waits for a connection hears of it only when it gets one.)
 */
async function within<T>(
  timeoutMs: number,
  signal: AbortSignal | undefined,
  act: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  const ends = new AbortController();
  const ended = Promise.withResolvers<never>();
  const end = (reason: unknown): void => {
    ends.abort(reason);
    ended.reject(reason);
  };
  const timer = setTimeout(() => end(new Error(`no answer within ${Math.round(timeoutMs)} ms`)), timeoutMs);
  const abort = (): void => end(signal?.reason);
  signal?.addEventListener('abort', abort);
  try {
    return await Promise.race([act(ends.signal), ended.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}

function parseJson(text: string): unknown {
  if (text === '') return null;
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Something between us and the service may answer in another language; its status still says what it meant. */
function problemOf(status: number, retryAfterMs: number | null, answer: unknown): Problem {
  const { code, detail, title } = (answer ?? {}) as { code?: unknown; detail?: unknown; title?: unknown };
  const said = typeof detail === 'string' ? detail : typeof title === 'string' ? title : undefined;
  return new Problem({
    code: typeof code === 'string' ? code : `http_${status}`,
    detail: said,
    status,
    retryAfterMs,
    members: (answer ?? {}) as Record<string, unknown>,
  });
}
