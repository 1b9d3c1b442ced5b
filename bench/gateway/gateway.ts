/** The gateway benchmark: thousands of drivers on one process, who send positions, get offers, and all come back at once. */
import { setTimeout as pause } from 'node:timers/promises';
import type { Policy } from '../../domain/policy.ts';
import { sharedNowMs } from '../city/messages.ts';
import { POLICY, openCity, tryRate } from '../city/trial.ts';
import type { Workers } from '../city/workers.ts';
import { coresUsed, cpuSeconds, memoryMb } from '../cpu.ts';
import { type Member, startMember, startTogether } from '../member.ts';
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
  readonly reconnectMs: Reconnected;
  /** The gateway killed, and started again at once: until each had its state again, and its offer if it held one. */
  readonly killed: { readonly offers: number; readonly reconnectMs: Reconnected };
}

type Reconnected = Percentiles & { readonly max: number };

/** Offers stand for as long as it takes. */
const GATEWAY_POLICY: Policy = { ...POLICY, roundIntervalMs: 100, decisionTtlMs: 120_000, maxLifetimeMs: 240_000 };
const RIDES_PER_S = 20;
const RECONNECT_WITHIN_MS = 60_000;
/** Offers that drivers hold while the gateway is killed. */
const HELD_OFFERS = 200;
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
    { drivers, workers, policy: GATEWAY_POLICY, drivenBy: 'app' },
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
  const { figures } = await tryRate({ services, database, workers: load }, RIDES_PER_S, seconds);
  say(`  offers: p99 ${figures.requestToOfferMs.p99} ms`);
  const cutAtMs = sharedNowMs();
  const reconnectMs = since(cutAtMs, (await load.reconnect(RECONNECT_WITHIN_MS, { cut: true })).atMs);
  say(`  all cut: back after p99 ${reconnectMs.p99} ms, all ${reconnectMs.max} ms`);
  await pause(SETTLE_MS, undefined, { signal });
  const killed = await killGateway(open, gateway, load, signal);
  say(`  gateway killed: back after p99 ${killed.reconnectMs.p99} ms, all ${killed.reconnectMs.max} ms`);
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
    killed,
  };
}

async function killGateway(
  open: AsyncDisposableStack,
  { pid, url, databaseUrl, authSecret }: Member,
  load: Workers,
  signal: AbortSignal,
): Promise<GatewayFigures['killed']> {
  await load.hold();
  const { requested } = await load.request(HELD_OFFERS, 1);
  await pause(SETTLE_MS, undefined, { signal });
  const back = load.reconnect(RECONNECT_WITHIN_MS, { cut: false });
  back.catch(() => {});
  const killedAtMs = sharedNowMs();
  process.kill(pid, 'SIGKILL');
  const settings = { DATABASE_URL: databaseUrl, AUTH_SECRET: authSecret, PORT: new URL(url).port };
  open.use(await startMember(['serve', '--roles', 'gateway'], settings));
  const { atMs, offers } = await back;
  if (offers < requested.length) throw new Error(`${offers} drivers hold offers, of ${requested.length}`);
  return { offers, reconnectMs: since(killedAtMs, atMs) };
}

function since(fromMs: number, atMs: readonly number[]): Reconnected {
  const ms = atMs.map((at) => at - fromMs);
  return { ...percentiles(ms), max: Math.round(Math.max(...ms)) };
}

export const formatGateway = (figures: GatewayFigures): string =>
  `gateway ${figures.drivers} drivers, a position every ${figures.positionIntervalMs} ms: ${figures.cpu?.gateway ?? '?'} of a core (database ${figures.cpu?.database ?? '?'}), ` +
  `${figures.memoryMb ?? '?'} MB, ${figures.memoryKbPerDriver ?? '?'} kB a driver; offers meanwhile p50 ${figures.requestToOfferMs.p50}, p99 ${figures.requestToOfferMs.p99} ms; ` +
  `all cut at once: back after p50 ${figures.reconnectMs.p50}, p99 ${figures.reconnectMs.p99}, the last ${figures.reconnectMs.max} ms; ` +
  `the gateway killed, ${figures.killed.offers} of them with an offer: p50 ${figures.killed.reconnectMs.p50}, p99 ${figures.killed.reconnectMs.p99}, the last ${figures.killed.reconnectMs.max} ms`;
