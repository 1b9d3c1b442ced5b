/**
 * Carries notices to the gateway that has the driver's socket, through socket.io's adapters: within the process, over
 * PostgreSQL's NOTIFY, or over Redis' sharded pub/sub. A lost notice is late, never lost: gateways look for offers
 * that no device has acknowledged, and for drivers to whom something else applies than they were told.
 */
import { createAdapter as createPostgresAdapter } from '@socket.io/postgres-adapter';
import { createShardedAdapter } from '@socket.io/redis-adapter';
import { Redis } from 'ioredis';
import pg from 'pg';
import { Server } from 'socket.io';
import type { DriverNotice } from './notices.ts';

export type FanoutKind =
  | { readonly kind: 'local' }
  | { readonly kind: 'postgres'; readonly databaseUrl: string }
  | { readonly kind: 'redis'; readonly redisUrl: string };

/** A driver connected to some gateway: every older socket of his, anywhere, is to go. */
export interface DriverConnected {
  readonly driverId: string;
  readonly socketId: string;
  readonly connectedAtMs: number;
}

/** Delivers to the drivers who are here; returns what other gateways shall hear. */
export type NoticeHandler = (notices: DriverNotice[]) => DriverNotice[];

export interface Fanout extends AsyncDisposable {
  readonly io: Server;
  readonly tell: (notices: DriverNotice[]) => void;
  readonly onNotices: (handler: NoticeHandler) => void;
  readonly announce: (connected: DriverConnected) => void;
  readonly onConnected: (handler: (connected: DriverConnected) => void) => void;
}

/** Ten thousand drivers who come back at once are announced together, and not with a statement each. */
const ANNOUNCED_TOGETHER_MS = 20;
/**
 * 8,000 bytes are the most that PostgreSQL carries in one notification. What is longer is written to a table, told of, and
 * read back by every process: three statements, one of them durable.
 */
const ANNOUNCED_TOGETHER_MAX = 40;
const TOLD_TOGETHER_MAX = 14;

const SERVER_OPTIONS = {
  serveClient: false,
  // Offers are small and many: compressing them costs more than it saves.
  perMessageDeflate: false,
  httpCompression: false,
  maxHttpBufferSize: 16_384,
  // Nearly all that a silent driver costs. Who sends positions is missed sooner, by their absence.
  pingInterval: 20_000,
  pingTimeout: 8_000,
  connectTimeout: 10_000,
} as const;

export async function openFanout(kind: FanoutKind, onError: (error: Error) => void): Promise<Fanout> {
  const { adapter, close } = await openAdapter(kind, onError);
  const io = new Server({ ...SERVER_OPTIONS, ...(adapter === null ? {} : { adapter: adapter as never }) });
  const drivers = io.of('/drivers');
  // Per-message handlers are the same for what comes from this process and from others.
  const handlers: { notices: NoticeHandler; connected: (connected: DriverConnected) => void } = {
    notices: (notices) => notices,
    connected: () => {},
  };
  let announced: DriverConnected[] = [];
  const toOthers = (event: 'notices' | 'connected', data: unknown): void => {
    if (adapter === null) return;
    try {
      drivers.serverSideEmit(event, data);
    } catch (error) {
      onError(error as Error);
    }
  };
  drivers.on('notices' as never, ((notices: DriverNotice[]) => void handlers.notices(notices)) as never);
  drivers.on('connected' as never, ((all: DriverConnected[]) => all.forEach(handlers.connected)) as never);
  const announceToOthers = (): void => {
    const all = announced;
    announced = [];
    for (let i = 0; i < all.length; i += ANNOUNCED_TOGETHER_MAX)
      toOthers('connected', all.slice(i, i + ANNOUNCED_TOGETHER_MAX));
  };

  return {
    io,
    tell: (notices) => {
      if (notices.length === 0) return;
      const forOthers = handlers.notices(notices);
      for (let i = 0; i < forOthers.length; i += TOLD_TOGETHER_MAX)
        toOthers('notices', forOthers.slice(i, i + TOLD_TOGETHER_MAX));
    },
    announce: (connected) => {
      handlers.connected(connected);
      if (adapter !== null && announced.push(connected) === 1) setTimeout(announceToOthers, ANNOUNCED_TOGETHER_MS);
    },
    onNotices: (handler) => {
      handlers.notices = handler;
    },
    onConnected: (handler) => {
      handlers.connected = handler;
    },
    [Symbol.asyncDispose]: async () => {
      // Without the gateway's role it was never attached to a server, and `io.close` throws.
      if ((io.engine as unknown) === undefined)
        await Promise.all([io.of('/').adapter.close(), drivers.adapter.close()]);
      else await io.close();
      await close();
    },
  };
}

async function openAdapter(
  kind: FanoutKind,
  onError: (error: Error) => void,
): Promise<{ adapter: unknown; close: () => Promise<void> }> {
  if (kind.kind === 'local') return { adapter: null, close: async () => {} };
  if (kind.kind === 'postgres') {
    const postgres = openPostgres(kind.databaseUrl, onError);
    return { adapter: createPostgresAdapter(postgres as never, { errorHandler: onError }), close: postgres.close };
  }
  const publisher = new Redis(kind.redisUrl, {
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    commandTimeout: 2_000,
  });
  const subscriber = new Redis(kind.redisUrl, { maxRetriesPerRequest: null });
  for (const redis of [publisher, subscriber]) redis.on('error', onError);
  return {
    adapter: createShardedAdapter(publisher, subscriber, { channelPrefix: '{cabrank}', subscriptionMode: 'static' }),
    close: async () => {
      publisher.disconnect();
      subscriber.disconnect();
    },
  };
}

/**
 * What the adapter takes for a pool. The connection that it listens on it never gives back when that breaks, and may ask for two
 * in its place: of a real pool every restart of the database cost a connection, until nobody heard anything any more and the
 * process couldn't end. So that one isn't the pool's, and there is one at a time.
 */
function openPostgres(databaseUrl: string, onError: (error: Error) => void) {
  const settings = {
    connectionString: databaseUrl,
    keepAlive: true,
    connectionTimeoutMillis: 3_000,
    query_timeout: 5_000,
    application_name: 'cabrank fanout',
  };
  const pool = new pg.Pool({ ...settings, max: 2 });
  pool.on('error', onError);
  // The pool listens to its idle clients only.
  pool.on('connect', (client) => client.on('error', onError));
  let listening: pg.Client | null = null;
  let isClosed = false;
  const drop = (): void => {
    const last = listening;
    listening = null;
    // The adapter would connect again.
    last?.removeAllListeners('end');
    last?.end().catch(() => {});
  };
  const connect = async (): Promise<pg.Client> => {
    drop();
    // Whatever rejects makes the adapter try again, for ever.
    if (isClosed) return new Promise(() => {});
    const client = Object.assign(new pg.Client(settings), { release: drop });
    client.on('error', onError);
    listening = client;
    await client.connect();
    return client;
  };
  const close = async (): Promise<void> => {
    isClosed = true;
    drop();
    await pool.end();
  };
  return { connect, query: (text: string, values?: unknown[]) => pool.query(text, values), close };
}
