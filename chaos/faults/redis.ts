/** A Redis that dies, forgets everything, or forgets at random: nothing in it is the truth. */
import { Redis } from 'ioredis';
import type { Arena } from '../arena.ts';
import { BACK_AFTER_CUT_MS, type Fault } from './fault.ts';

async function tell(arena: Arena, ...commands: readonly (readonly [string, ...string[]])[]): Promise<void> {
  const redis = new Redis(arena.redisPort, '127.0.0.1', { maxRetriesPerRequest: 1, commandTimeout: 3_000 });
  try {
    for (const [command, ...args] of commands) await redis.call(command, ...args);
  } finally {
    redis.disconnect();
  }
}

const redisFault = (fault: Pick<Fault, 'name' | 'what' | 'holdMs' | 'inject'> & Partial<Fault>): Fault => ({
  kind: 'redis',
  needs: { redis: true },
  backWithinMs: BACK_AFTER_CUT_MS,
  ...fault,
});

export const redisFaults: readonly Fault[] = [
  redisFault({
    name: 'kill-redis',
    what: 'kill -9 of Redis, which comes back empty',
    kind: 'kill',
    holdMs: [500, 4_000],
    inject: async (arena) => {
      await arena.killRedis();
      return { target: 'redis', heal: () => arena.startRedis() };
    },
  }),
  redisFault({
    name: 'redis-flush',
    what: 'FLUSHALL',
    holdMs: [1_000, 2_000],
    inject: async (arena) => {
      await tell(arena, ['flushall']);
      return { target: 'redis', heal: async () => {} };
    },
  }),
  redisFault({
    name: 'redis-evict',
    what: 'Redis has no memory left and evicts any key it likes',
    holdMs: [3_000, 6_000],
    inject: async (arena) => {
      await tell(arena, ['config', 'set', 'maxmemory-policy', 'allkeys-random'], ['config', 'set', 'maxmemory', '1mb']);
      return {
        target: 'redis',
        heal: () =>
          tell(arena, ['config', 'set', 'maxmemory', '0'], ['config', 'set', 'maxmemory-policy', 'noeviction']),
      };
    },
  }),
];
