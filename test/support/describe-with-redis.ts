import { describe } from 'vitest';
import { isRedisInstalled } from './redis.ts';

/** `describe` for tests that need Redis. Without `redis-server` they are skipped, except in CI, where they fail. */
export function describeWithRedis(name: string, tests: () => void): void {
  const isSkipped = !isRedisInstalled && process.env['CI'] !== 'true';
  const why = isSkipped ? ' (skipped: no redis-server on the PATH)' : '';
  describe.skipIf(isSkipped)(`${name}${why}`, () => {
    tests();
  });
}
