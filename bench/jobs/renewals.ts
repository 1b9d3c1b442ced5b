/** Many holders, each with a lease and a renewal of its own, through one service. */
import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { HttpLeases } from '../../src/client/leases/http-leases.ts';
import { Connections } from '../../src/client/rest.ts';
import { coresUsed, cpuSeconds, type CpuSeconds } from '../cpu.ts';
import type { Member } from '../member.ts';
import { type Percentiles, percentiles } from '../percentiles.ts';
import { readMetric } from './metric.ts';

const HOLDERS = 1_000;
const TTL_MS = 5_000;

export interface RenewalFigures {
  readonly holders: number;
  readonly ttlMs: number;
  readonly seconds: number;
  readonly renewals: number;
  readonly lost: number;
  readonly renewalsPerCommit: number;
  readonly renewMs: Percentiles;
  /** Shares of one core. */
  readonly cpu: { readonly service: number; readonly database: number; readonly load: number } | null;
}

export async function benchRenewals(member: Member, token: string, seconds: number): Promise<RenewalFigures> {
  const connections = new Connections({ maxPerHost: 256 });
  const leases = new HttpLeases({ url: member.url, token, connections });
  try {
    const held = await acquireAll(leases);
    const tookMs: number[] = [];
    let lost = 0;
    const untilMs = performance.now() + seconds * 1000;
    const before = { service: cpuSeconds(member.pid), load: cpuSeconds(process.pid), sets: await renewSets(member) };
    await Promise.all(
      held.map(async ({ resource, token: leaseToken, renewAfterMs }) => {
        for (let waitMs = renewAfterMs; performance.now() + waitMs < untilMs;) {
          await pause(waitMs);
          const startedMs = performance.now();
          const [answer] = await leases.renew([{ resource, token: leaseToken }]);
          tookMs.push(performance.now() - startedMs);
          if (answer!.refused !== null) lost += 1;
          waitMs = answer!.refused === null ? answer!.renewAfterMs : Infinity;
        }
      }),
    );
    const sets = await renewSets(member);
    const service = coresUsed(before.service, cpuSeconds(member.pid), seconds);
    const load = coresUsed(before.load, cpuSeconds(process.pid), seconds);
    return {
      holders: HOLDERS,
      ttlMs: TTL_MS,
      seconds,
      renewals: tookMs.length,
      lost,
      renewalsPerCommit: Math.round((10 * (sets.items - before.sets.items)) / (sets.count - before.sets.count)) / 10,
      renewMs: percentiles(tookMs),
      cpu: cpuOf(service, load),
    };
  } finally {
    connections.close();
  }
}

async function acquireAll(leases: HttpLeases) {
  const grants = Array.from({ length: HOLDERS }, async (_, i) => {
    const answer = await leases.acquire(
      { resource: `bench/held/${i}`, holder: `holder ${i}`, ttlMs: TTL_MS },
      randomUUID(),
    );
    if (answer.refused !== null) throw new Error(`holder ${i}: ${answer.refused}`);
    return answer.leases[0]!;
  });
  return Promise.all(grants);
}

const cpuOf = (service: CpuSeconds | null, load: CpuSeconds | null): RenewalFigures['cpu'] =>
  service === null || load === null ? null : { service: service.own, database: service.children, load: load.own };

async function renewSets(member: Member): Promise<{ items: number; count: number }> {
  const name = 'cabrank_set_size';
  const labels = '{transition="lease_renew"}';
  return {
    items: await readMetric(member.url, `${name}_sum${labels}`),
    count: await readMetric(member.url, `${name}_count${labels}`),
  };
}
