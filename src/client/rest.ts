import { setMaxListeners } from 'node:events';
import { Agent as HttpAgent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { setTimeout as wait } from 'node:timers/promises';
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
const CLOSED = 'the connections are closed';

/** Kept-alive connections. node:http, because the built-in fetch took more than twice the CPU (0.46 against 0.20 ms). */
export class Connections {
  readonly http: HttpAgent;
  readonly https: HttpsAgent;
  /** A set, because a listener for each on the signal took as long to find again as there were calls. */
  readonly underWay = new Set<ClientRequest>();
  readonly #closing = new AbortController();

  constructor({ maxPerHost = 64 }: { maxPerHost?: number } = {}) {
    this.http = new HttpAgent({ keepAlive: true, maxSockets: maxPerHost });
    this.https = new HttpsAgent({ keepAlive: true, maxSockets: maxPerHost });
    // Every call that pauses before it is repeated listens.
    setMaxListeners(0, this.closing);
  }

  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Ends the calls under way too: they fail as `Unreachable`. */
  close(): void {
    this.#closing.abort();
    for (const request of this.underWay) request.destroy(new Error(CLOSED));
    this.http.destroy();
    this.https.destroy();
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
    const body = call.body === undefined ? null : Buffer.from(JSON.stringify(call.body));
    if (body !== null) {
      headers['content-type'] = 'application/json';
      headers['content-length'] = String(body.byteLength);
    }
    const { status, retryAfterMs, text } = await this.#exchange(url, call, headers, body, timeoutMs);
    const answer = parseJson(text);
    if (status >= 200 && status < 300) return answer;
    throw problemOf(status, retryAfterMs, answer);
  }

  #exchange(
    url: URL,
    { method, signal }: Call,
    headers: Record<string, string>,
    body: Buffer | null,
    timeoutMs: number,
  ) {
    const secure = url.protocol === 'https:';
    const agent = secure ? this.#connections.https : this.#connections.http;
    const request = (secure ? httpsRequest : httpRequest)(url, { method, headers, agent });
    const timer = setTimeout(
      () => request.destroy(new Error(`no answer within ${Math.round(timeoutMs)} ms`)),
      timeoutMs,
    );
    const { closing, underWay } = this.#connections;
    underWay.add(request);
    const abort = (): void => void request.destroy(new Error(CLOSED));
    if (closing.aborted || signal?.aborted === true) abort();
    signal?.addEventListener('abort', abort);

    const { promise, resolve, reject } = Promise.withResolvers<RawAnswer>();
    request.on('error', reject);
    request.on('response', (response) => readAnswer(response, resolve, reject));
    request.end(body);
    return promise
      .catch((error: unknown) => {
        request.destroy();
        throw new Unreachable(`${method} ${url.href}: ${(error as Error).message}`, { cause: error });
      })
      .finally(() => {
        clearTimeout(timer);
        underWay.delete(request);
        signal?.removeEventListener('abort', abort);
      });
  }
}

interface RawAnswer {
  readonly status: number;
  readonly retryAfterMs: number | null;
  readonly text: string;
}

function readAnswer(
  response: IncomingMessage,
  resolve: (answer: RawAnswer) => void,
  reject: (error: Error) => void,
): void {
  const parts: Buffer[] = [];
  let bytes = 0;
  response.on('data', (part: Buffer) => {
    bytes += part.byteLength;
    if (bytes > ANSWER_MAX_BYTES) response.destroy(new Error(`the answer is longer than ${ANSWER_MAX_BYTES} bytes`));
    else parts.push(part);
  });
  response.on('error', reject);
  // Cut off in the middle it closes without an end, and mostly without an error.
  response.on('close', () => reject(new Error('the answer was cut off')));
  response.on('end', () => {
    const retryAfterS = Number(response.headers['retry-after'] ?? Number.NaN);
    resolve({
      status: response.statusCode ?? 0,
      retryAfterMs: Number.isFinite(retryAfterS) ? retryAfterS * 1000 : null,
      text: Buffer.concat(parts).toString('utf8'),
    });
  });
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
