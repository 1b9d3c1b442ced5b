/**
 * Wake-ups: "a round of this region may find something now", carried by BullMQ from whoever changed something to
 * whichever matcher is free. At most one waits for each region. A process with a matcher of its own wakes that one: the
 * queue's hop took 20 to 60 ms and a third of a millisecond of every ride. They may all be lost: the matchers' slow poll
 * finds what nobody was woken for.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Queue, Worker, withBackend, createPostgresBackend, type ConnectionOptions } from 'bullmq';
import { Redis } from 'ioredis';
import pg from 'pg';

const QUEUE = 'wakeups';
/**
 * Least time between two wake-ups of a region from one process. A job costs about 0.7 ms of this process and a few
 * statements; without a gap a busy region sent 490 a second and spent a third of a core on them.
 */
const WAKE_GAP_MS = 15;
/** A killed matcher's job is free again after this. */
const JOB_LOCK_MS = 5_000;
/** Clients that reconnect fail at least this often. */
const DOWN_FOR_MS = 3_000;
const REDIS_COMMAND_DEADLINE_MS = 2_000;
const CONNECT_DEADLINE_MS = 3_000;
/** Another process may be making them. */
const PREPARE_DEADLINE_MS = 30_000;
/** Whatever it is that fails while the queue's tables are made: a process whose start fails can only be started again. */
const PREPARE_ATTEMPTS = 10;
const PREPARE_AGAIN_MS = 500;

export interface Wakeups extends AsyncDisposable {
  /** Asks for a round; several asks while one is on its way are one. Never throws. */
  readonly wake: (region: number) => void;
  /** The queue failed lately: wake-ups are being lost. */
  readonly isDown: () => boolean;
  /** Before this process's matcher stops: from then on others' are woken, and none of theirs arrives here. */
  readonly leaveToOthers: () => Promise<void>;
}

export interface WakeupsOptions {
  readonly databaseUrl: string;
  /** With it BullMQ runs on Redis, without it on PostgreSQL. */
  readonly redisUrl: string | null;
  /** Called for each wake-up that arrives here; absent: this process only sends. */
  readonly onWake?: (region: number) => void;
  readonly onError: (error: Error) => void;
}

interface WakeJob {
  readonly region: number;
}

type Connect = {
  queue: () => Queue<WakeJob>;
  worker: (run: (job: { data: WakeJob }) => Promise<void>) => Worker;
  close: () => Promise<void>;
};

export async function openWakeups(options: WakeupsOptions): Promise<Wakeups> {
  const { onWake } = options;
  let failedAtMs = -Infinity;
  const onError = (error: Error): void => {
    failedAtMs = performance.now();
    options.onError(error);
  };
  const connect =
    options.redisUrl === null ? await onPostgres({ ...options, onError }) : onRedis(options.redisUrl, onError);
  const queue = connect.queue();
  queue.on('error', onError);
  const worker = onWake && connect.worker(async ({ data }) => onWake(data.region));
  worker?.on('error', onError);

  const resting = new Set<number>();
  const again = new Set<number>();
  let isClosed = false;
  const send = (region: number): void => {
    if (isClosed) return;
    if (resting.has(region)) {
      again.add(region);
      return;
    }
    resting.add(region);
    const gap = delay(WAKE_GAP_MS);
    void queue
      .add('wake', { region }, { deduplication: { id: String(region), keepLastIfActive: true } })
      .catch(onError)
      .then(() => gap)
      .then(() => {
        resting.delete(region);
        if (again.delete(region)) send(region);
      });
  };

  let isHere = true;
  return {
    wake: (region) => (isHere && onWake ? onWake(region) : send(region)),
    leaveToOthers: async () => {
      isHere = false;
      await worker?.close();
    },
    isDown: () => performance.now() - failedAtMs < DOWN_FOR_MS,
    async [Symbol.asyncDispose]() {
      isClosed = true;
      await worker?.close();
      await queue.close();
      await connect.close();
    },
  };
}

const jobOptions = { removeOnComplete: true, removeOnFail: true, attempts: 1 };
const workerOptions = {
  concurrency: 1,
  lockDuration: JOB_LOCK_MS,
  stalledInterval: JOB_LOCK_MS,
  maxStalledCount: 1,
};

/** One pool for all of it. The planner falls off a cliff on a job table it hasn't analysed, so it isn't asked. */
async function onPostgres({ databaseUrl, onError }: WakeupsOptions): Promise<Connect> {
  const classes = withBackend(createPostgresBackend);
  const prepare = async (): Promise<void> => {
    const preparing = new classes.Queue(QUEUE, {
      connection: {
        connectionString: databaseUrl,
        max: 1,
        migrate: true,
        connectionTimeoutMillis: CONNECT_DEADLINE_MS,
        query_timeout: PREPARE_DEADLINE_MS,
      },
    });
    preparing.on('error', onError);
    try {
      await preparing.waitUntilReady();
    } finally {
      await preparing.close();
    }
  };
  for (let attempt = 1; ; attempt += 1) {
    try {
      await prepare();
      break;
    } catch (error) {
      if (attempt === PREPARE_ATTEMPTS) throw error;
      await delay(PREPARE_AGAIN_MS);
    }
  }

  const pool = new pg.Pool({
    connectionString: databaseUrl,
    max: 4,
    keepAlive: true,
    connectionTimeoutMillis: CONNECT_DEADLINE_MS,
    query_timeout: 10_000,
    application_name: 'cabrank wakeups',
    options: '-c search_path=bullmq -c enable_seqscan=off',
  });
  pool.on('error', onError);
  // The pool listens to its idle clients only; one that is lent out for LISTEN would end the process when it is cut.
  pool.on('connect', (client) => client.on('error', onError));
  return {
    queue: () =>
      new classes.Queue(QUEUE, {
        connection: pool as never,
        defaultJobOptions: jobOptions,
      }) as unknown as Queue<WakeJob>,
    worker: (run) =>
      new classes.Worker(QUEUE, run, { connection: pool as never, ...workerOptions }) as unknown as Worker,
    close: () => pool.end(),
  };
}

function onRedis(url: string, onError: (error: Error) => void): Connect {
  // A sender fails fast while Redis is away (the poll covers it); a worker waits for Redis to come back.
  const sender = new Redis(url, {
    maxRetriesPerRequest: 0,
    enableOfflineQueue: false,
    commandTimeout: REDIS_COMMAND_DEADLINE_MS,
  });
  const receiver = new Redis(url, { maxRetriesPerRequest: null });
  for (const redis of [sender, receiver]) redis.on('error', onError);
  const prefix = '{cabrank}';
  return {
    queue: () =>
      new Queue<WakeJob>(QUEUE, { connection: sender as ConnectionOptions, prefix, defaultJobOptions: jobOptions }),
    worker: (run) => new Worker(QUEUE, run, { connection: receiver as ConnectionOptions, prefix, ...workerOptions }),
    close: async () => {
      sender.disconnect();
      receiver.disconnect();
    },
  };
}
