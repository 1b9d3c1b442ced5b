/** graphile-worker: add, run, complete, with the batching that its page on performance advises. */
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import type { Contender } from './contender.ts';
import { throughQueue } from './queues.ts';

const CONCURRENCY = 24;
const LOCAL_QUEUE = 500;

export const graphileWorker = (databaseUrl: string): Contender => ({
  name: 'graphile-worker',
  durability: 'PostgreSQL: fsync, synchronous_commit=on',
  driven: `added 500 at a time, a local queue of ${LOCAL_QUEUE}, ${CONCURRENCY} jobs at a time, completions batched`,
  open: async () => {
    const logger = new Logger(() => () => {});
    let handled = 0;
    const utils = await makeWorkerUtils({ connectionString: databaseUrl, logger });
    await utils.migrate();
    const runner = await run({
      connectionString: databaseUrl,
      logger,
      noHandleSignals: true,
      preset: {
        worker: {
          concurrentJobs: CONCURRENCY,
          maxPoolSize: CONCURRENCY + 2,
          localQueue: { size: LOCAL_QUEUE },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
      taskList: { cycle: () => void (handled += 1) },
    });
    return {
      run: (ms) =>
        throughQueue(
          ms,
          async (count) => {
            await utils.addJobs(
              Array.from({ length: count }, (_, i) => ({ identifier: 'cycle', payload: { driver: i } })),
            );
          },
          () => handled,
        ),
      [Symbol.asyncDispose]: async () => {
        await runner.stop();
        await utils.release();
      },
    };
  },
});
