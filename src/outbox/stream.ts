/** Events in a Redis stream for each region: `cabrank:{REGION}:events`, each entry one event as JSON under `event`. */
import { Redis } from 'ioredis';

export interface StreamedEvent {
  /** `RIDE/SEQ`: the same for a repetition, by which consumers drop it. */
  readonly id: string;
  readonly type: string;
  readonly regionId: string;
  readonly rideId: string;
  readonly seq: number;
  readonly at: string;
  readonly driverId: string | null;
  readonly offerId: string | null;
  readonly fence: number | null;
  readonly reason: string | null;
}

export interface EventStream extends AsyncDisposable {
  /** False: a publisher with a newer fence has written, and nothing was. Rejects while Redis is away. */
  append(regionId: string, fence: number, events: readonly StreamedEvent[]): Promise<boolean>;
}

const EVENTS_KEPT = 1_000_000;
const COMMAND_DEADLINE_MS = 5_000;

/** The highest fence that wrote is kept beside the stream: Redis, too, refuses a publisher that was superseded. */
const APPEND = `
if tonumber(redis.call('get', KEYS[2]) or '0') > tonumber(ARGV[1]) then return 0 end
redis.call('set', KEYS[2], ARGV[1])
for i = 3, #ARGV do redis.call('xadd', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'event', ARGV[i]) end
return 1`;

export function openStream(redisUrl: string, onError: (error: Error) => void): EventStream {
  const redis = new Redis(redisUrl, {
    maxRetriesPerRequest: 1,
    enableOfflineQueue: false,
    commandTimeout: COMMAND_DEADLINE_MS,
    lazyConnect: true,
  });
  redis.on('error', onError);
  let connecting: Promise<void> | null = redis.connect().catch(() => {});
  return {
    async append(regionId, fence, events) {
      await connecting;
      connecting = null;
      const keys = [`cabrank:{${regionId}}:events`, `cabrank:{${regionId}}:fence`] as const;
      const texts = events.map((event) => JSON.stringify(event));
      return (await redis.eval(APPEND, 2, ...keys, fence, EVENTS_KEPT, ...texts)) === 1;
    },
    async [Symbol.asyncDispose]() {
      redis.disconnect();
    },
  };
}
