/** The database's disk: full, or slow. */
import { readdir, readFile } from 'node:fs/promises';
import { BACK_AFTER_CUT_MS, type Fault } from './fault.ts';

const SLOW_BYTES_PER_S = 1024 * 1024;

/** A server and its children. */
async function familyOf(pid: number): Promise<number[]> {
  const pids = (await readdir('/proc')).map(Number).filter((each) => each > 0);
  const children = await Promise.all(
    pids.map(async (each) => {
      const status = await readFile(`/proc/${each}/status`, 'utf8').catch(() => '');
      return Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]) === pid ? [each] : [];
    }),
  );
  return [pid, ...children.flat()];
}

export const storageFaults: readonly Fault[] = [
  {
    name: 'disk-full',
    what: 'no byte left on the database’s disk; it is started again if it gave up',
    kind: 'storage',
    needs: { smallDisk: true },
    holdMs: [3_000, 6_000],
    backWithinMs: BACK_AFTER_CUT_MS,
    inject: async (arena) => {
      arena.expectDatabaseToEnd();
      const bytes = await arena.disk.fill();
      let gaveUp = false;
      return {
        target: 'postgres',
        heal: async () => {
          await arena.disk.drain();
          gaveUp = await arena.reviveDatabase();
        },
        detail: () => `${bytes} bytes taken${gaveUp ? ', and PostgreSQL had ended' : ''}`,
      };
    },
  },
  {
    name: 'disk-slow',
    what: 'the database’s disk takes 1 MB a second',
    kind: 'storage',
    needs: { smallDisk: true },
    holdMs: [4_000, 8_000],
    backWithinMs: BACK_AFTER_CUT_MS,
    inject: async (arena) => {
      const pids = await familyOf(arena.databasePid);
      await arena.disk.throttle(pids, SLOW_BYTES_PER_S);
      return { target: 'postgres', heal: async () => arena.disk.throttle(await familyOf(arena.databasePid), null) };
    },
  },
];
