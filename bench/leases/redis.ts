/** The lock of Redis' own documentation: `SET NX PX`, and a release that compares the token. */
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { type Contender, inLanes } from './contender.ts';
import { startRedis } from './servers.ts';

const RELEASE = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`;
const CONFIRM = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('persist', KEYS[1]) else return 0 end`;

interface Lock {
  confirmLock(key: string, token: string): Promise<number>;
  releaseLock(key: string, token: string): Promise<number>;
}

export const redisLock = (isDurable: boolean, drivers: number, lanes: number): Contender => ({
  name: isDurable ? 'Redis lock, fsync always' : 'Redis lock, in memory',
  durability: isDurable ? 'append-only file, appendfsync always' : 'none: gone with the process',
  driven: `SET NX PX, confirmed and released by script if the token is still there; one connection, pipelined, ${lanes} at a time`,
  open: async () => {
    const server = await startRedis(isDurable);
    if (server === null) return null;
    const redis = new Redis(server.url, { enableAutoPipelining: true });
    redis.defineCommand('releaseLock', { numberOfKeys: 1, lua: RELEASE });
    redis.defineCommand('confirmLock', { numberOfKeys: 1, lua: CONFIRM });
    const locks = redis as Redis & Lock;
    const each = Math.floor(drivers / lanes);
    const next = new Int32Array(lanes);
    return {
      run: (ms) =>
        inLanes(lanes, ms, async (lane) => {
          const key = `driver-${lane * each + (next[lane]! % each)}`;
          next[lane]! += 1;
          const token = randomUUID();
          const leased = await redis.set(key, token, 'PX', 15_000, 'NX');
          const confirmed = await locks.confirmLock(key, token);
          const released = await locks.releaseLock(key, token);
          if (leased !== 'OK' || confirmed !== 1 || released !== 1) throw new Error('Redis refused');
          return 1;
        }),
      [Symbol.asyncDispose]: async () => {
        redis.disconnect();
        await server[Symbol.asyncDispose]();
      },
    };
  },
});
