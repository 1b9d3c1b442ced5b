/** pg-boss: inserted, fetched and completed in batches, as its documentation advises for throughput. */
import { setTimeout as pause } from 'node:timers/promises';
import { PgBoss } from 'pg-boss';
import type { Contender } from './contender.ts';
import { throughQueue } from './queues.ts';

const QUEUE = 'cycle';
const BATCH = 500;
const FETCHERS = 4;

export const pgBoss = (databaseUrl: string): Contender => ({
  name: 'pg-boss',
  durability: 'PostgreSQL: fsync, synchronous_commit=on',
  driven: `inserted, fetched and completed ${BATCH} at a time, ${FETCHERS} fetchers`,
  open: async () => {
    const boss = new PgBoss({ connectionString: databaseUrl, supervise: false, schedule: false, max: FETCHERS + 2 });
    await boss.start();
    await boss.createQueue(QUEUE);
    let handled = 0;
    let isOpen = true;
    const fetchers = Array.from({ length: FETCHERS }, async () => {
      while (isOpen) {
        const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
        if (jobs.length === 0) await pause(2);
        else
          await boss.complete(
            QUEUE,
            jobs.map(({ id }) => id),
          );
        handled += jobs.length;
      }
    });
    return {
      run: (ms) =>
        throughQueue(
          ms,
          async (count) => {
            await boss.insert(
              QUEUE,
              Array.from({ length: count }, (_, i) => ({ data: { driver: i } })),
            );
          },
          () => handled,
        ),
      [Symbol.asyncDispose]: async () => {
        isOpen = false;
        await Promise.all(fetchers);
        await boss.stop({ graceful: false });
      },
    };
  },
});
