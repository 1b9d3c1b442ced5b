/** Thousands of leases expire within a second: what others who acquire meanwhile notice of it. */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { HttpLeases } from '../../src/client/leases/http-leases.ts';
import { Connections } from '../../src/client/rest.ts';
import type { Sql } from '../../src/database/connection.ts';
import type { Member } from '../member.ts';
import { type Percentiles, percentiles } from '../percentiles.ts';

const LEASES = 10_000;
const SET = 100;
const ROUNDS = 3;
const LEAD_MS = 12_000;
const WINDOW_MS = 4_000;
const RATE_PER_S = 200;
const SWEPT_WITHIN_MS = 60_000;

export interface ExpiryFigures {
  readonly leases: number;
  readonly acquiresPerSecond: number;
  /** In rounds one after the other, quiet and with the herd by turns. */
  readonly quietMs: readonly Percentiles[];
  readonly herdMs: readonly Percentiles[];
  /** Of the medians of the p99s. */
  readonly p99Ratio: number;
  /** From the second's end until the history has every term. */
  readonly sweptAfterMs: readonly number[];
}

export async function benchExpiry(sql: Sql, member: Member, token: string): Promise<ExpiryFigures> {
  const connections = new Connections({ maxPerHost: 256 });
  const leases = new HttpLeases({ url: member.url, token, connections });
  const [quietMs, herdMs, sweptAfterMs]: [Percentiles[], Percentiles[], number[]] = [[], [], []];
  try {
    await acquiring(leases, WINDOW_MS);
    for (let round = 0; round < ROUNDS; round++) {
      quietMs.push(percentiles(await acquiring(leases, WINDOW_MS)));
      const prefix = `bench/herd/${round}/`;
      const expireAtMs = await holdHerd(leases, prefix);
      await pause(Math.max(0, expireAtMs - 500 - performance.now()));
      herdMs.push(percentiles(await acquiring(leases, WINDOW_MS)));
      sweptAfterMs.push(await swept(sql, prefix, expireAtMs + 1_000));
    }
  } finally {
    connections.close();
  }
  const median = (all: readonly Percentiles[]): number =>
    all.map(({ p99 }) => p99!).toSorted((a, b) => a - b)[all.length >> 1]!;
  return {
    leases: LEASES,
    acquiresPerSecond: RATE_PER_S,
    quietMs,
    herdMs,
    p99Ratio: Math.round((100 * median(herdMs)) / median(quietMs)) / 100,
    sweptAfterMs,
  };
}

/** Leases of which every one ends within the same second; when that begins. */
async function holdHerd(leases: HttpLeases, prefix: string): Promise<number> {
  const expireAtMs = performance.now() + LEAD_MS;
  for (let first = 0; first < LEASES; first += SET) {
    const allOf = Array.from({ length: SET }, (_, i) => `${prefix}${first + i}`);
    const ttlMs = Math.round(expireAtMs + (1_000 * first) / LEASES - performance.now());
    if (ttlMs < 1_000) throw new Error('this machine is too slow to hold the herd in time');
    const answer = await leases.acquire({ allOf, holder: 'herd', ttlMs }, randomUUID());
    if (answer.refused !== null) throw new Error(answer.refused);
  }
  return expireAtMs;
}

/** New leases at an even rate, each released afterwards; what each acquire took, from when it was due. */
async function acquiring(leases: HttpLeases, forMs: number): Promise<number[]> {
  const startMs = performance.now();
  const count = (forMs / 1000) * RATE_PER_S;
  return Promise.all(
    Array.from({ length: count }, async (_, i) => {
      const dueMs = startMs + (i * 1000) / RATE_PER_S;
      await pause(Math.max(0, dueMs - performance.now()));
      const resource = `bench/new/${randomUUID()}`;
      const answer = await leases.acquire({ resource, holder: 'new', ttlMs: 60_000 }, randomUUID());
      const tookMs = performance.now() - dueMs;
      if (answer.refused !== null) throw new Error(answer.refused);
      await leases.release(answer.leases.map(({ token }) => ({ resource, token })));
      return tookMs;
    }),
  );
}

async function swept(sql: Sql, prefix: string, sinceMs: number): Promise<number> {
  while (performance.now() < sinceMs + SWEPT_WITHIN_MS) {
    const [row] = await sql<{ n: number }[]>`
      select count(*)::int as n from resource_lease_terms where resource like ${`${prefix}%`}`;
    if (row!.n === LEASES) return Math.max(0, Math.round(performance.now() - sinceMs));
    await pause(50);
  }
  throw new Error('the herd wasn’t swept');
}
