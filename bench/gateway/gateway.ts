/** The gateway benchmark: thousands of drivers on one process, who send positions, get offers, and all come back at once. */
import { setTimeout as pause } from 'node:timers/promises';
import { POLICY, openCity, tryRate } from '../city/trial.ts';
import { coresUsed, cpuSeconds, memoryMb } from '../cpu.ts';
import { type Member, startTogether } from '../member.ts';
import { type Percentiles, percentiles } from '../percentiles.ts';

export interface GatewayOptions {
  readonly drivers: number;
  readonly workers: number;
  readonly seconds: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface GatewayFigures {
  readonly drivers: number;
  readonly positionIntervalMs: number;
  /** Shares of one core while only positions come; null where the system doesn't tell. */
  readonly cpu: { readonly gateway: number; readonly database: number } | null;
  readonly memoryMb: number | null;
  readonly memoryKbPerDriver: number | null;
  /** At so many rides a second, meanwhile. */
  readonly ridesPerSecond: number;
  readonly requestToOfferMs: Percentiles;
  /** All cut at once: until each had its state again. */
  readonly reconnectMs: Percentiles & { readonly max: number };
}

const RIDES_PER_S = 20;
const RECONNECT_WITHIN_MS = 60_000;
const SETTLE_MS = 3_000;

export async function benchGateway({
  drivers,
  workers,
  seconds,
  say,
  signal,
}: GatewayOptions): Promise<GatewayFigures> {
  await using open = new AsyncDisposableStack();
  const { database, services } = await startTogether(open, ['api,matcher,sweeper,outbox', 'gateway']);
  const [rest, gateway] = services as [Member, Member];
  const emptyMb = memoryMb(gateway.pid);
  say(`  connecting ${drivers} drivers …`);
  await using load = await openCity(
    { url: rest.url, authSecret: rest.authSecret, socketUrl: gateway.url },
    { drivers, workers, policy: { ...POLICY, roundIntervalMs: 100 } },
  );
  await pause(SETTLE_MS, undefined, { signal });
  const before = { gateway: cpuSeconds(gateway.pid), database: cpuSeconds(database.pid) };
  await pause(seconds * 1000, undefined, { signal });
  const used = {
    gateway: coresUsed(before.gateway, cpuSeconds(gateway.pid), seconds),
    database: coresUsed(before.database, cpuSeconds(database.pid), seconds),
  };
  const fullMb = memoryMb(gateway.pid);
  say(`  positions: ${used.gateway?.own ?? '?'} of a core, ${fullMb ?? '?'} MB`);
  const { figures } = await tryRate({ service: gateway, workers: load }, RIDES_PER_S, seconds);
  say(`  offers: p99 ${figures.requestToOfferMs.p99} ms`);
  const ms = await load.reconnect(RECONNECT_WITHIN_MS);
  const reconnectMs = { ...percentiles(ms), max: Math.round(Math.max(...ms)) };
  say(`  reconnected: p99 ${reconnectMs.p99} ms, all ${reconnectMs.max} ms`);
  return {
    drivers,
    positionIntervalMs: POLICY.positionIntervalMs,
    cpu:
      used.gateway === null || used.database === null
        ? null
        : { gateway: used.gateway.own, database: used.database.children },
    memoryMb: fullMb,
    memoryKbPerDriver: fullMb === null || emptyMb === null ? null : Math.round((1024 * (fullMb - emptyMb)) / drivers),
    ridesPerSecond: RIDES_PER_S,
    requestToOfferMs: figures.requestToOfferMs,
    reconnectMs,
  };
}

export const formatGateway = (figures: GatewayFigures): string =>
  `gateway ${figures.drivers} drivers, a position every ${figures.positionIntervalMs} ms: ${figures.cpu?.gateway ?? '?'} of a core (database ${figures.cpu?.database ?? '?'}), ` +
  `${figures.memoryMb ?? '?'} MB, ${figures.memoryKbPerDriver ?? '?'} kB a driver; offers meanwhile p50 ${figures.requestToOfferMs.p50}, p99 ${figures.requestToOfferMs.p99} ms; ` +
  `all cut at once: back after p50 ${figures.reconnectMs.p50}, p99 ${figures.reconnectMs.p99}, the last ${figures.reconnectMs.max} ms`;
