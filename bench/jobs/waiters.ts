/** Many wait for one resource: how soon after each release the next has it, in which order, and what waiting costs. */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { HttpLeases } from '../../src/client/leases/http-leases.ts';
import { Connections } from '../../src/client/rest.ts';
import type { Sql } from '../../src/database/connection.ts';
import type { Member } from '../member.ts';
import { type Percentiles, percentiles } from '../percentiles.ts';

const WAITERS = 50;
const RESOURCE = 'bench/waited-for';
const WAIT_MS = 60_000;
const HOLD_MS = 20;
const IDLE_S = 10;
const QUEUED_WITHIN_MS = 10_000;
/** The server's statistics come late by up to this. */
const STATISTICS_MS = 2_000;

export interface WaiterFigures {
  readonly waiters: number;
  readonly inOrder: boolean;
  /** From a holder's release call to the next holder's answer. */
  readonly handoverMs: Percentiles;
  /** Transactions of the whole service while nothing is released, with all of them waiting and with none. */
  readonly idleTransactionsPerSecond: { readonly waiting: number; readonly none: number };
  readonly transactionsPerHandover: number;
}

export async function benchWaiters(sql: Sql, member: Member, token: string): Promise<WaiterFigures> {
  const connections = new Connections({ maxPerHost: 256 });
  const leases = new HttpLeases({ url: member.url, token, connections });
  try {
    const none = await ratePerS(sql, IDLE_S);
    const first = await take(leases, 'first');
    const grants: { waiter: number; atMs: number }[] = [];
    const handoverMs: number[] = [];
    let releasedAtMs = 0;
    const release = async (claimToken: string): Promise<void> => {
      await pause(HOLD_MS);
      releasedAtMs = performance.now();
      await leases.release([{ resource: RESOURCE, token: claimToken }]);
    };
    const waiting: Promise<void>[] = [];
    for (let waiter = 0; waiter < WAITERS; waiter++) {
      waiting.push(
        take(leases, `waiter ${waiter}`).then(async (claimToken) => {
          const atMs = performance.now();
          grants.push({ waiter, atMs });
          handoverMs.push(atMs - releasedAtMs);
          await release(claimToken);
        }),
      );
      await queued(sql, waiter + 1);
    }
    const whileWaiting = await ratePerS(sql, IDLE_S);
    const before = await transactions(sql);
    const startedMs = performance.now();
    await release(first);
    await Promise.all(waiting);
    const seconds = (performance.now() - startedMs) / 1000;
    const spent = (await transactions(sql)) - before - none * (seconds + STATISTICS_MS / 1000);
    return {
      waiters: WAITERS,
      inOrder: grants.every(({ waiter }, i) => waiter === i),
      handoverMs: percentiles(handoverMs),
      idleTransactionsPerSecond: { waiting: whileWaiting, none },
      transactionsPerHandover: Math.round((10 * spent) / WAITERS) / 10,
    };
  } finally {
    connections.close();
  }
}

async function take(leases: HttpLeases, holder: string): Promise<string> {
  const answer = await leases.acquire({ resource: RESOURCE, holder, ttlMs: WAIT_MS, waitMs: WAIT_MS }, randomUUID());
  if (answer.refused !== null) throw new Error(`${holder}: ${answer.refused}`);
  return answer.leases[0]!.token;
}

async function queued(sql: Sql, count: number): Promise<void> {
  const giveUpAtMs = performance.now() + QUEUED_WITHIN_MS;
  while (performance.now() < giveUpAtMs) {
    const [row] = await sql<{ n: number }[]>`
      select count(*)::int as n from resource_lease_tickets where resource = ${RESOURCE}`;
    if (row!.n === count) return;
    await pause(2);
  }
  throw new Error(`the queue didn’t reach ${count}`);
}

async function transactions(sql: Sql): Promise<number> {
  await pause(STATISTICS_MS);
  const [row] = await sql<{ n: string }[]>`
    select xact_commit + xact_rollback as n from pg_stat_database where datname = current_database()`;
  return Number(row!.n);
}

async function ratePerS(sql: Sql, seconds: number): Promise<number> {
  const before = await transactions(sql);
  await pause(seconds * 1000);
  const after = await transactions(sql);
  return Math.round((10 * (after - before)) / (seconds + STATISTICS_MS / 1000)) / 10;
}
