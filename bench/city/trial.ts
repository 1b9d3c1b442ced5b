/** One trial of a rate on a city of the benchmark's own. */
import { setTimeout as delay } from 'node:timers/promises';
import { defaultPolicy, type Policy } from '../../domain/policy.ts';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { signToken } from '../../src/client/token.ts';
import { cpuSeconds, memoryMb } from '../cpu.ts';
import type { Member } from '../member.ts';
import { type Percentiles, percentiles } from '../percentiles.ts';
import { type DrivenBy, type Seen, sharedNowMs } from './messages.ts';
import { addTo, Workers } from './workers.ts';

export interface RunFigures {
  readonly ratePerS: number;
  readonly requested: number;
  readonly completed: number;
  readonly requestToOfferMs: Percentiles;
  readonly confirmMs: Percentiles;
  readonly lateMs: Percentiles;
  readonly failures: Readonly<Record<string, number>>;
  /** CPU milliseconds of each ride; null where the system doesn't tell. */
  readonly cpuMsPerRide: {
    readonly service: readonly number[];
    readonly database: number;
    readonly load: number;
  } | null;
  /** What each process of the service, and one of the load's, has of its own in memory afterwards, MB. */
  readonly memoryMb: { readonly service: readonly (number | null)[]; readonly load: number | null };
}

const CENTER = { lat: 48.0, lng: 7.85 };
const RADIUS_M = 5_000;
const REGION = 'bench';
/** Rounds follow each other as fast as they end, and a ride that finds nobody is soon looked at again: the figures are the service's own, not a pause's. */
export const POLICY: Policy = { ...defaultPolicy, roundIntervalMs: 0, retryMs: 100 };
/** A rate holds when offers are on the devices within this … */
const OFFER_P99_MAX_MS = 500;
/** … and so many of its rides are over this long after the last request. */
const COMPLETED_SHARE_MIN = 0.99;
const COMPLETED_WITHIN_MS = 1_000;
/** Afterwards every ride has to end, or the next trial would carry this one's. */
const DRAIN_MAX_MS = 30_000;
const DRAIN_LOOK_MS = 200;

/** The service's region with its policy, and the drivers, online. */
export async function openCity(
  service: { readonly url: string; readonly authSecret: string; readonly socketUrl?: string },
  {
    drivers,
    workers,
    policy = POLICY,
    drivenBy = 'frames',
  }: { readonly drivers: number; readonly workers: number; readonly policy?: Policy; readonly drivenBy?: DrivenBy },
  others: readonly { readonly url: string; readonly socketUrl: string }[] = [],
): Promise<Workers> {
  const { url, authSecret } = service;
  const token = await signToken({ secret: authSecret, sub: 'bench', role: 'ops', ttlS: 3600 });
  const operator = new OperatorClient({ url, token });
  await operator.putRegion(REGION, { name: REGION, center: CENTER, radiusM: 2 * RADIUS_M });
  await operator.putPolicy(REGION, policy);
  operator.close();
  return Workers.start(
    workers,
    {
      authSecret,
      regionId: REGION,
      center: CENTER,
      radiusM: RADIUS_M,
      drivers: Array.from({ length: drivers }, (_, index) => `driver-${index + 1}`),
      positionIntervalMs: policy.positionIntervalMs,
      seed: 'city',
      drivenBy,
    },
    [{ url, socketUrl: service.socketUrl ?? url }, ...others],
  );
}

export interface City {
  /** The service's processes. */
  readonly services: readonly Member[];
  /** Whose the database is: one of those, or a process of its own. */
  readonly database: Member;
  readonly workers: Workers;
}

/** CPU seconds so far; null where the system doesn't tell. */
function usageOf({ services, database, workers }: City): { service: number[]; database: number; load: number } | null {
  const server = cpuSeconds(database.pid);
  if (server === null) return null;
  const own = (pid: number): number => cpuSeconds(pid)?.own ?? 0;
  return {
    service: services.map(({ pid }) => own(pid)),
    database: server.children,
    load: workers.pids.reduce((sum, pid) => sum + own(pid), 0),
  };
}

function cpuPerRide(
  before: ReturnType<typeof usageOf>,
  after: ReturnType<typeof usageOf>,
  rides: number,
): RunFigures['cpuMsPerRide'] {
  if (before === null || after === null || rides === 0) return null;
  const perRide = (from: number, to: number): number => Math.round((1e5 * (to - from)) / rides) / 100;
  return {
    service: after.service.map((to, n) => perRide(before.service[n]!, to)),
    database: perRide(before.database, after.database),
    load: perRide(before.load, after.load),
  };
}

/** One trial, up to the end of its last ride; `problem` says why the rate didn't hold. */
export async function tryRate(
  city: City,
  ratePerS: number,
  seconds: number,
): Promise<{ figures: RunFigures; problem: string | null }> {
  const { services, workers } = city;
  const before = usageOf(city);
  const endAtMs = sharedNowMs() + seconds * 1000;
  const seen = await workers.request(ratePerS, seconds);
  const giveUpAtMs = sharedNowMs() + DRAIN_MAX_MS;
  while (seen.completed.length < seen.requested.length && sharedNowMs() < giveUpAtMs) {
    await delay(DRAIN_LOOK_MS);
    addTo(seen, await workers.collect());
  }
  const figures = {
    ...figuresOf(seen, ratePerS),
    cpuMsPerRide: cpuPerRide(before, usageOf(city), seen.requested.length),
    memoryMb: { service: services.map(({ pid }) => memoryMb(pid)), load: memoryMb(workers.pids[0]!) },
  };
  return { figures, problem: problemOf(seen, figures, Math.round(ratePerS * seconds), endAtMs) };
}

function figuresOf(seen: Seen, ratePerS: number): Omit<RunFigures, 'cpuMsPerRide' | 'memoryMb'> {
  const firstOffer = new Map<string, number>();
  for (const [rideId, atMs] of seen.offered) firstOffer.set(rideId, Math.min(atMs, firstOffer.get(rideId) ?? Infinity));
  const requestToOffer = seen.requested.flatMap(([rideId, dueAtMs]) => {
    const offeredAtMs = firstOffer.get(rideId);
    return offeredAtMs === undefined ? [] : [offeredAtMs - dueAtMs];
  });
  return {
    ratePerS,
    requested: seen.requested.length,
    completed: seen.completed.length,
    requestToOfferMs: percentiles(requestToOffer),
    confirmMs: percentiles(seen.confirmMs),
    lateMs: percentiles(seen.lateMs),
    failures: seen.failures,
  };
}

function problemOf(seen: Seen, figures: RunFigures, due: number, endAtMs: number): string | null {
  const inTime = seen.completed.filter(([, atMs]) => atMs <= endAtMs + COMPLETED_WITHIN_MS).length;
  if (Object.keys(seen.failures).length > 0) return `failures: ${JSON.stringify(seen.failures)}`;
  if (figures.completed < figures.requested) return `${figures.requested - figures.completed} rides didn't end`;
  if ((figures.requestToOfferMs.p99 ?? Infinity) >= OFFER_P99_MAX_MS) return 'offers came too late';
  if (inTime < due * COMPLETED_SHARE_MIN) return `${due - inTime} of ${due} rides ended too late`;
  return null;
}
