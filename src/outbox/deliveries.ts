/**
 * Delivers events to webhooks: claimed as work, so that any number of processes share them, in order per ride, retried
 * with growing pauses, and dead after the last try.
 */
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { ClaimedWork, WorkQueue } from '../client/leases/work.ts';
import type { Sql } from '../database/connection.ts';
import type { Logger } from '../ops/log.ts';
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
/** Batches of one turn for one endpoint, so that each has its turn. */
const BATCHES_MAX = 50;

export interface Deliveries {
  /** Something was queued. */
  readonly wake: () => void;
  readonly stop: () => Promise<void>;
}

export function startDeliveries(deps: DeliveriesDeps): Deliveries {
  const breakers = new Map<string, Breaker>();
  let isStopped = false;
  let isWoken = false;
  let timer: NodeJS.Timeout | undefined;
  let turn: Promise<void> | null = null;

  const run = async (): Promise<void> => {
    const endpoints = await deps.sql<Endpoint[]>`select id, url, secret from webhooks order by id`;
    for (const id of breakers.keys()) if (!endpoints.some((each) => each.id === id)) breakers.delete(id);
    await Promise.all(
      endpoints.map(async (endpoint) => {
        const breaker = breakers.get(endpoint.id) ?? new Breaker();
        breakers.set(endpoint.id, breaker);
        for (let batch = 0; batch < BATCHES_MAX && !isStopped; batch++)
          if ((await deliverNext(deps, endpoint, breaker)) === 0) break;
        deps.metrics.webhookBreakers.set({ webhook: endpoint.id }, breaker.state === 'closed' ? 0 : 1);
      }),
    );
  };
  const loop = (): void => {
    clearTimeout(timer);
    isWoken = false;
    turn = run()
      .catch((error: unknown) => deps.log.warn({ err: error }, 'deliveries failed'))
      .finally(() => {
        turn = null;
        if (!isStopped) timer = setTimeout(loop, isWoken ? 0 : IDLE_MS);
      });
  };
  loop();
  return {
    wake: () => {
      isWoken = true;
      if (turn === null && !isStopped) loop();
    },
    stop: async () => {
      isStopped = true;
      clearTimeout(timer);
      await turn;
    },
  };
}

/** Claims and delivers a batch; how many there were. */
export async function deliverNext(deps: DeliveriesDeps, endpoint: Endpoint, breaker: Breaker): Promise<number> {
  const room = breaker.room(AT_ONCE);
  if (room === 0) return 0;
  const claims = await deps.work.next(`cabrank/webhook/${endpoint.id}`, { max: room, ttlMs: CLAIM_TTL_MS });
  await Promise.all(claims.map((claim) => deliver(deps, endpoint, breaker, claim)));
  return claims.length;
}

async function deliver(
  { work, metrics, log }: DeliveriesDeps,
  { id, url, secret }: Endpoint,
  breaker: Breaker,
  claim: ClaimedWork,
): Promise<void> {
  const body = JSON.stringify(claim.payload);
  const timestampS = Math.floor(Date.now() / 1000);
  const error = await post(new URL(url), body, {
    'webhook-id': claim.key,
    'webhook-timestamp': String(timestampS),
    'webhook-signature': sign(secret, claim.key, timestampS, body),
  }).catch((failure: unknown) => (failure as Error).message);
  if (error === null) {
    breaker.succeeded();
    metrics.deliveries.inc({ webhook: id, outcome: 'delivered' });
    await work.complete([claim]);
    return;
  }
  breaker.failed();
  const retryInMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** (claim.attempt - 1)) * (0.5 + Math.random() / 2);
  const { dead } = await work.fail(claim, { error, retryInMs: Math.ceil(retryInMs), attemptsMax: ATTEMPTS_MAX });
  metrics.deliveries.inc({ webhook: id, outcome: dead ? 'dead' : 'failed' });
  if (dead) log.warn({ webhook: id, event: claim.key, reason: error }, 'an event couldn’t be delivered');
}

/** Null when it was taken (2xx), otherwise what went wrong. Redirects aren't followed: the address is to be set right. */
async function post(url: URL, body: string, headers: Record<string, string>): Promise<string | null> {
  const { promise, resolve, reject } = Promise.withResolvers<string | null>();
  const request = (url.protocol === 'https:' ? httpsRequest : httpRequest)(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body), ...headers },
    signal: AbortSignal.timeout(DELIVERY_DEADLINE_MS),
  });
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
