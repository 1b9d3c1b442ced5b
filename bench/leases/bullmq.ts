/** BullMQ on both of its backends: added in bulk, one worker with many jobs at a time, as its documentation advises. */
import { createPostgresBackend, Queue, Worker } from 'bullmq';
import type { Contender, Session } from './contender.ts';
import { throughQueue } from './queues.ts';
import { startRedis } from './servers.ts';

const QUEUE = 'cycle';
const CONCURRENCY = 100;
const DRIVEN = `added 500 at a time, a worker of ${CONCURRENCY} jobs at a time, done ones removed`;
const KEEP_NOTHING = { removeOnComplete: true };

function sessionOf(
  queue: Pick<Queue, 'addBulk' | 'close'>,
  startWorker: (handle: () => Promise<void>) => { close(): Promise<void> },
  closeMore: () => Promise<void>,
): Session {
  let handled = 0;
  // Handled, and not yet completed: at most the worker's concurrency of them.
  const worker = startWorker(async () => void (handled += 1));
  return {
    run: (ms) =>
      throughQueue(
        ms,
        async (count) => {
          await queue.addBulk(Array.from({ length: count }, (_, i) => ({ name: 'cycle', data: { driver: i } })));
        },
        () => handled,
      ),
    [Symbol.asyncDispose]: async () => {
      await worker.close();
      await queue.close();
      await closeMore();
    },
  };
}

export const bullmqOnPostgres = (databaseUrl: string): Contender => ({
  name: 'BullMQ on PostgreSQL',
  durability: 'PostgreSQL: fsync, synchronous_commit=on',
  driven: DRIVEN,
  open: async () => {
    const connection = { connectionString: databaseUrl, max: 10, migrate: true };
    const options = { connection, defaultJobOptions: KEEP_NOTHING };
    const queue = new Queue(QUEUE, options, createPostgresBackend);
    await queue.waitUntilReady();
    return sessionOf(
      queue,
      (handle) => new Worker(QUEUE, handle, { connection, concurrency: CONCURRENCY }, createPostgresBackend),
      async () => {},
    );
  },
});

export const bullmqOnRedis = (isDurable: boolean): Contender => ({
  name: isDurable ? 'BullMQ on Redis, fsync always' : 'BullMQ on Redis, in memory',
  durability: isDurable ? 'append-only file, appendfsync always' : 'none: gone with the process',
  driven: DRIVEN,
  open: async () => {
    const server = await startRedis(isDurable);
    if (server === null) return null;
    const { hostname: host, port } = new URL(server.url);
    const connection = { host, port: Number(port), maxRetriesPerRequest: null };
    const queue = new Queue(QUEUE, { connection, defaultJobOptions: KEEP_NOTHING });
    return sessionOf(
      queue,
      (handle) => new Worker(QUEUE, handle, { connection, concurrency: CONCURRENCY }),
      async () => server[Symbol.asyncDispose](),
    );
  },
});
