/**
 * Delivers events to webhooks: claimed as work, so that any number of processes share them, in order per ride, retried
 * with growing pauses, and dead after the last try.
 */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { ClaimedWork, WorkQueue } from '../client/leases/work.ts';
import { isUnreachable, type Sql } from '../database/connection.ts';
import type { Logger } from '../ops/log.ts';
import { type Looks, lookWhenWoken } from '../ops/look-every.ts';
import type { Metrics } from '../ops/metrics.ts';
import { Breaker } from './breaker.ts';
import { sign } from './signature.ts';

export interface DeliveriesDeps {
  readonly sql: Sql;
  readonly work: WorkQueue;
  readonly metrics: Metrics;
  readonly log: Logger;
}

interface Endpoint {
  readonly id: string;
  readonly url: string;
  readonly secret: string;
}

const IDLE_MS = 2_000;
/** Deliveries to one endpoint under way at the same time: of so many rides, one event each. */
const AT_ONCE = 16;
const DELIVERY_DEADLINE_MS = 10_000;
/** Longer than a delivery may take: a claim is lost only with its process. */
const CLAIM_TTL_MS = 3 * DELIVERY_DEADLINE_MS;
const ATTEMPTS_MAX = 15;
const RETRY_MIN_MS = 1_000;
const RETRY_MAX_MS = 3_600_000;
const ANSWER_MAX_BYTES = 64 * 1024;

export interface Deliveries {
  /** Something was queued. */
  readonly wake: () => void;
  /** What is under way is broken off and put back: whoever delivers next sends it again. */
  readonly stop: () => Promise<void>;
}

/** To each webhook on its own: a slow receiver, or a claim that fails, holds up nobody else's events. */
export function startDeliveries(deps: DeliveriesDeps): Deliveries {
  const loops = new Map<string, Loop>();
  const look = async (): Promise<void> => {
    const endpoints = await deps.sql<Endpoint[]>`select id, url, secret from webhooks order by id`;
    const wanted = new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]));
    // One that comes again under the same id begins when the former has ended: no more than AT_ONCE are under way to it.
    for (const [id, loop] of loops) if (!wanted.has(id)) void loop.stop().then(() => loops.delete(id));
    for (const [id, endpoint] of wanted) {
      const loop = loops.get(id);
      if (loop === undefined) loops.set(id, startLoop(deps, endpoint));
      else loop.change(endpoint);
    }
  };
  const looks = lookWhenWoken(IDLE_MS, look, (error) => deps.log.warn({ err: error }, 'the webhooks aren’t known'));
  return {
    wake: () => {
      looks.wake();
      for (const loop of loops.values()) loop.wake();
    },
    stop: async () => {
      await looks.stop();
      await Promise.all([...loops.values()].map((loop) => loop.stop()));
    },
  };
}

interface Loop extends Looks {
  readonly change: (endpoint: Endpoint) => void;
}

/** Delivers to one webhook, batch by batch, until it is stopped. */
function startLoop(deps: DeliveriesDeps, first: Endpoint): Loop {
  const { metrics, log } = deps;
  const { id } = first;
  const breaker = new Breaker();
  const stopping = new AbortController();
  let endpoint = first;
  const deliverAll = async (): Promise<void> => {
    let delivered: number;
    do {
      delivered = await deliverNext(deps, endpoint, breaker, stopping.signal);
      metrics.webhookBreakers.set({ webhook: id }, breaker.state === 'closed' ? 0 : 1);
    } while (delivered > 0 && !stopping.signal.aborted);
  };
  const looks = lookWhenWoken(IDLE_MS, deliverAll, (error) => {
    // A database that is away is said by the look at the webhooks.
    if (!isUnreachable(error)) log.warn({ err: error, webhook: id }, 'deliveries failed');
  });
  return {
    wake: looks.wake,
    change: (changed) => {
      endpoint = changed;
    },
    stop: async () => {
      stopping.abort();
      await looks.stop();
      metrics.webhookBreakers.remove({ webhook: id });
    },
  };
}

/** Claims and delivers a batch; how many there were. Rejects when all of it has ended and some couldn't be recorded. */
export async function deliverNext(
  deps: DeliveriesDeps,
  endpoint: Endpoint,
  breaker: Breaker,
  stopping: AbortSignal,
): Promise<number> {
  const room = breaker.room(AT_ONCE);
  if (room === 0) return 0;
  const claims = await deps.work.next(`cabrank/webhook/${endpoint.id}`, { max: room, ttlMs: CLAIM_TTL_MS });
  const ends = await Promise.allSettled(claims.map((claim) => deliver(deps, endpoint, breaker, claim, stopping)));
  for (const end of ends) if (end.status === 'rejected') throw end.reason;
  return claims.length;
}

async function deliver(
  { work, metrics, log }: DeliveriesDeps,
  { id, url, secret }: Endpoint,
  breaker: Breaker,
  claim: ClaimedWork,
  stopping: AbortSignal,
): Promise<void> {
  const body = JSON.stringify(claim.payload);
  const timestampS = Math.floor(Date.now() / 1000);
  const headers = {
    'webhook-id': claim.key,
    'webhook-timestamp': String(timestampS),
    'webhook-signature': sign(secret, claim.key, timestampS, body),
  };
  const error = await post(new URL(url), body, headers, stopping).catch(
    (failure: unknown) => (failure as Error).message,
  );
  if (error === null) {
    breaker.succeeded();
    metrics.deliveries.inc({ webhook: id, outcome: 'delivered' });
    await work.complete([claim]);
    return;
  }
  if (stopping.aborted) {
    await work.putBack([claim]);
    return;
  }
  breaker.failed();
  const retryInMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** (claim.attempt - 1)) * (0.5 + Math.random() / 2);
  const { dead } = await work.fail(claim, { error, retryInMs: Math.ceil(retryInMs), attemptsMax: ATTEMPTS_MAX });
  metrics.deliveries.inc({ webhook: id, outcome: dead ? 'dead' : 'failed' });
  if (dead) log.warn({ webhook: id, event: claim.key, reason: error }, 'an event couldn’t be delivered');
}

/** Null when it was taken (2xx), otherwise what went wrong. Redirects aren't followed: the address is to be set right. */
async function post(
  url: URL,
  body: string,
  headers: Record<string, string>,
  stopping: AbortSignal,
): Promise<string | null> {
  const { promise, resolve, reject } = Promise.withResolvers<string | null>();
  const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), ...headers },
    signal: stopping,
  });
  const overdue = setTimeout(
    () => request.destroy(new Error(`no answer within ${DELIVERY_DEADLINE_MS / 1000} s`)),
    DELIVERY_DEADLINE_MS,
  );
  request.on('close', () => clearTimeout(overdue));
  request.on('error', reject);
  request.on('response', (response) => {
    let bytes = 0;
    response.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > ANSWER_MAX_BYTES) request.destroy(new Error('the answer is too long'));
    });
    response.on('error', reject);
    const { statusCode = 0 } = response;
    response.on('end', () => resolve(statusCode >= 200 && statusCode < 300 ? null : `answered ${statusCode}`));
  });
  request.end(body);
  return promise;
}
