/** Three processes stand for one job, and whoever leads is killed, suspended past its term, or told to stop. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Sql } from '../../src/database/connection.ts';
import type { Member } from '../member.ts';
import { type Percentiles, percentiles } from '../percentiles.ts';

const PROCESS = fileURLToPath(new URL('singleton-process.ts', import.meta.url));
const RESOURCE = 'bench/singleton';
const PROCESSES = 3;
const TTL_MS = 2_000;
const PAUSED_MS = TTL_MS + 1_500;
const LEADS_FOR_MS = 2_800;
const TURN_DEADLINE_MS = 30_000;
const FAULTS = ['kill', 'pause', 'resign'] as const;
type Fault = (typeof FAULTS)[number];

export interface SingletonFigures {
  readonly ttlMs: number;
  readonly seconds: number;
  /** From the fault to the next holder's grant, by the database's record of it. */
  readonly takeoverMs: Readonly<Record<Fault, Percentiles & { readonly times: number; readonly max: number }>>;
  readonly terms: number;
  readonly overlappingTerms: number;
  readonly writes: number;
  readonly staleWrites: number;
  /** Writes of former holders that the fence refused. */
  readonly refusedWrites: number;
}

export async function benchSingleton(
  sql: Sql,
  { databaseUrl, authSecret }: Member,
  each: number,
): Promise<SingletonFigures> {
  await sql`create table bench_writes (id bigint generated always as identity primary key, fence bigint, at timestamptz)`;
  await sql`create table bench_refusals (fence bigint, knew int)`;
  const start = (): ChildProcess =>
    fork(PROCESS, [databaseUrl, authSecret, String(TTL_MS)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const children = new Set(Array.from({ length: PROCESSES }, start));
  const tookMs: Record<Fault, number[]> = { kill: [], pause: [], resign: [] };
  const startedMs = performance.now();
  let former = 0;
  try {
    for (let round = 0; round < each * FAULTS.length; round++) {
      const fault = FAULTS[round % FAULTS.length]!;
      const { fence, pid } = await leader(sql, former);
      await pause(LEADS_FOR_MS);
      const child = [...children].find((one) => one.pid === pid)!;
      const faultAtMs = Date.now();
      await inflict(fault, child, children, start);
      const next = await leader(sql, fence);
      tookMs[fault].push(next.grantedAtMs - faultAtMs);
      former = fence;
    }
    await pause(LEADS_FOR_MS);
  } finally {
    await Promise.all([...children].map(end));
  }
  return {
    ttlMs: TTL_MS,
    seconds: (performance.now() - startedMs) / 1000,
    takeoverMs: summed(tookMs),
    ...(await judged(sql)),
  };
}

/** The next holder after a fence. */
async function leader(sql: Sql, after: number): Promise<{ fence: number; pid: number; grantedAtMs: number }> {
  const giveUpAtMs = performance.now() + TURN_DEADLINE_MS;
  while (performance.now() < giveUpAtMs) {
    const [row] = await sql<{ holder: string; fence: number; granted_at: string }[]>`
      select holder, fence::float8, (extract(epoch from granted_at) * 1000)::float8 as granted_at from resource_leases
      where resource = ${RESOURCE} and fence > ${after} and status = 'active' and ends_at > clock_timestamp()`;
    if (row !== undefined)
      return { fence: row.fence, pid: Number(row.holder.split('/').at(-1)), grantedAtMs: Number(row.granted_at) };
    await pause(5);
  }
  throw new Error('nobody leads');
}

async function inflict(
  fault: Fault,
  child: ChildProcess,
  children: Set<ChildProcess>,
  start: () => ChildProcess,
): Promise<void> {
  if (fault === 'pause') {
    child.kill('SIGSTOP');
    // It wakes up when somebody else has led for a while, and still wants to write.
    setTimeout(() => child.kill('SIGCONT'), PAUSED_MS);
    return;
  }
  children.delete(child);
  children.add(start());
  child.kill(fault === 'kill' ? 'SIGKILL' : 'SIGTERM');
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

function summed(tookMs: Record<Fault, number[]>): SingletonFigures['takeoverMs'] {
  const of = (fault: Fault) => {
    const times = tookMs[fault];
    return { times: times.length, ...percentiles(times), max: Math.round(Math.max(...times) * 10) / 10 };
  };
  return { kill: of('kill'), pause: of('pause'), resign: of('resign') };
}

/** What the records say, term by term and write by write. */
async function judged(sql: Sql) {
  const [row] = await sql<
    { terms: number; overlaps: number; writes: number; stale: number; refused: number }[]
  >`with terms as (
      select fence, granted_at, ended_at from resource_lease_terms where resource = ${RESOURCE}
      union all select fence, granted_at, 'infinity' from resource_leases
        where resource = ${RESOURCE} and status in ('active', 'confirmed'))
    select (select count(*)::int from terms) as terms,
      (select count(*)::int from terms a join terms b on a.fence < b.fence and b.granted_at < a.ended_at) as overlaps,
      (select count(*)::int from bench_writes) as writes,
      (select count(*)::int from bench_writes w where
        exists (select from bench_writes o where o.id < w.id and o.fence > w.fence)
        or exists (select from terms t where t.fence > w.fence and t.granted_at < w.at)) as stale,
      (select count(*)::int from bench_refusals) as refused`;
  const { terms, overlaps, writes, stale, refused } = row!;
  return { terms, overlappingTerms: overlaps, writes, staleWrites: stale, refusedWrites: refused };
}
