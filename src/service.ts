/** One process of the service: the roles it was given, wired together, started and drained. */
import { setTimeout as delay } from 'node:timers/promises';
import { createApi } from './api/server.ts';
import { createAuthenticator } from './auth.ts';
import type { Policy } from '../domain/policy.ts';
import type { Role } from './config.ts';
import { connectDatabase } from './database/connection.ts';
import { createFaults, noFaults } from './dispatch/faults.ts';
import { startMendingClocks } from './dispatch/clock-ahead.ts';
import { startMatcher, type Matcher } from './dispatch/matcher.ts';
import { startSweeper } from './dispatch/sweeper.ts';
import { Supply } from './dispatch/supply.ts';
import { openWakeups } from './dispatch/wakeups.ts';
import { openFanout, type FanoutKind } from './gateway/fanout.ts';
import { Gateway } from './gateway/gateway.ts';
import { createLeasing } from './leasing/leasing.ts';
import { watchEpochs } from './ops/epochs.ts';
import { createReadiness, databaseCheck } from './ops/health.ts';
import type { Logger } from './ops/log.ts';
import { createMetrics } from './ops/metrics.ts';
import { startOutbox } from './outbox/outbox.ts';
import { startSingletons } from './ops/singletons.ts';
import { startPositions } from './positions.ts';
import { createCallerLimiter, type RateLimits } from './rate-limit.ts';
import { Regions } from './regions.ts';
import { DatabaseLeases } from './resource-leases/database-leases.ts';

export interface ServiceOptions {
  readonly roles: ReadonlySet<Role>;
  readonly host: string;
  readonly port: number;
  readonly databaseUrl: string;
  readonly redisUrl: string | null;
  /** Nobody else uses this database: notices needn't leave the process. */
  readonly isAlone: boolean;
  readonly authSecret: string;
  readonly newRegionPolicy: Policy;
  readonly rateLimits: RateLimits;
  readonly hotConnections: number;
  readonly matcherFaultRate: number;
  readonly log: Logger;
}

/**
 * Connections that wait to be accepted; the system may allow fewer (Linux: 4,096). Of thousands who come at once the
 * ones beyond it try again after 1, 3 and 7 s: with Node's 511 the last of 10,000 were seconds later than the service.
 */
const BACKLOG = 16_384;
/** A drain has 10 s in all. */
const CLOSE_DEADLINE_MS = 2_000;

export interface Service {
  /** Where it listens, http://host:port. */
  readonly url: string;
  /** Stops taking work, finishes what is in hand, withdraws nothing. */
  readonly drain: () => Promise<void>;
}

/** Starts on a migrated database; rejects when the port is taken or the database can't be used. */
export async function startService(options: ServiceOptions): Promise<Service> {
  const { roles, log, redisUrl, databaseUrl } = options;
  const complain = (what: string) => quietly((error) => log.warn({ err: error }, what));
  const metrics = createMetrics();
  const database = connectDatabase(databaseUrl, { hotConnections: options.hotConnections });
  const regions = new Regions(database);
  const fanout = await openFanout(fanoutKind(options), complain('the fan-out failed'));
  const parts: { matcher: Matcher | null } = { matcher: null };
  const wakeups = await openWakeups({
    databaseUrl,
    redisUrl,
    ...(roles.has('matcher') ? { onWake: (region: number) => parts.matcher?.wake(region) } : {}),
    onError: complain('the queue failed'),
  });
  const leasing = createLeasing(database, metrics, {
    tell: (_region, notices) => fanout.tell(notices),
    wake: wakeups.wake,
    regionId: (region) => regions.idOf(region),
    // Rehearsed faults are the rounds'.
    ...(options.matcherFaultRate === 0 && {
      pair: async (region, rides) => (await parts.matcher?.pair(region, rides)) ?? null,
    }),
  });
  const queueFailed = complain('the queue for leases failed');
  const resourceLeases = new DatabaseLeases({
    database,
    secret: options.authSecret,
    observer: {
      judged: (command, outcome) => metrics.countLease(command, outcome),
      waited: (ms) => metrics.leaseWait.observe(ms / 1000),
      lostClaim: (queue) => metrics.lostClaims.inc({ queue }),
      setSize: (command, items) => metrics.setSize.observe({ transition: `lease_${command}` }, items),
    },
    onError: (error) => queueFailed(error as Error),
  });
  const positions = startPositions({ sql: database.hot, log });
  const authenticator = createAuthenticator(options.authSecret);
  const mayAsk = createCallerLimiter(options.rateLimits);

  let isDraining = false;
  const readiness = createReadiness({
    database: databaseCheck(database),
    draining: async () => {
      if (isDraining) throw new Error('draining');
    },
  });
  const api = await createApi({
    routes: roles.has('api') ? 'all' : 'ops',
    database,
    regions,
    leasing,
    resourceLeases,
    authenticator,
    mayAsk,
    metrics,
    presence: positions,
    readiness,
    newRegionPolicy: options.newRegionPolicy,
    log,
  });
  const gateway = roles.has('gateway')
    ? new Gateway({ database, authenticator, mayAsk, regions, leasing, positions, metrics, fanout, log })
    : null;

  const stopWatchingEpochs = watchEpochs({ sql: database.cold, metrics, log });
  const singletons = startSingletons({ databaseUrl, secret: options.authSecret, sql: database.cold, metrics, log });
  const outbox = roles.has('outbox')
    ? startOutbox({ sql: database.hot, work: resourceLeases.work, regions, redisUrl, singletons, metrics, log })
    : { stop: async () => {} };

  const url = await api.listen({ host: options.host, port: options.port, backlog: BACKLOG });
  gateway?.start(api.server);
  if (roles.has('matcher')) {
    const { matcherFaultRate: rate } = options;
    const faults = rate === 0 ? noFaults : createFaults({ rate, random: Math.random, delay });
    parts.matcher = startMatcher({
      sql: database.hot,
      supply: new Supply(database.hot),
      leasing,
      regions,
      metrics,
      faults,
      log,
      isQueueDown: wakeups.isDown,
    });
  }
  const stopMendingClocks = roles.has('sweeper')
    ? startMendingClocks({ sql: database.hot, leasing, regions, log })
    : async () => {};
  if (roles.has('sweeper'))
    singletons.stand('sweeper', () => startSweeper({ sql: database.hot, leasing, regions, metrics, log }));

  return {
    url,
    drain: async () => {
      isDraining = true;
      await Promise.all([
        within(CLOSE_DEADLINE_MS, wakeups.leaveToOthers, complain('the queue didn’t close')),
        parts.matcher?.stop(),
        singletons.stop(),
        stopMendingClocks(),
        outbox.stop(),
        stopWatchingEpochs(),
      ]);
      await gateway?.stop();
      await resourceLeases.close();
      // Redis may be away, and its clients then wait for it: what can't be closed in time is left to the process's end.
      await within(CLOSE_DEADLINE_MS, () => fanout[Symbol.asyncDispose](), complain('the fan-out didn’t close'));
      await api.close();
      await positions.stop();
      await within(CLOSE_DEADLINE_MS, () => wakeups[Symbol.asyncDispose](), complain('the queue didn’t close'));
      await database.close();
    },
  };
}

/** Runs `work` to its end, its failure or the deadline, whichever comes first. */
async function within(
  deadlineMs: number,
  work: () => PromiseLike<void>,
  failed: (error: Error) => void,
): Promise<void> {
  const overdue = delay(deadlineMs, undefined, { ref: false }).then(() => {
    throw new Error(`not within ${deadlineMs} ms`);
  });
  await Promise.race([Promise.resolve().then(work), overdue]).catch(failed);
}

function fanoutKind({ redisUrl, databaseUrl, isAlone }: ServiceOptions): FanoutKind {
  if (redisUrl !== null) return { kind: 'redis', redisUrl };
  return isAlone ? { kind: 'local' } : { kind: 'postgres', databaseUrl };
}

/** The same complaint at most once a second: a queue that is away says so many times. */
function quietly(say: (error: Error) => void): (error: Error) => void {
  let saidAtMs = -Infinity;
  return (error) => {
    if (performance.now() - saidAtMs < 1_000) return;
    saidAtMs = performance.now();
    say(error);
  };
}
