import { expect, test } from 'vitest';
import { openWakeups } from '../../src/dispatch/wakeups.ts';
import { createTestDatabase } from '../support/database.ts';
import { lineTo } from '../support/line.ts';

test('a database that is lost, or says nothing, while the queue’s tables are made is asked again', async () => {
  await using server = await createTestDatabase();
  let lines = 0;
  await using line = await lineTo(server.url, (client, upstream) => {
    lines += 1;
    if (lines > 2) client.pipe(upstream).pipe(client);
    else if (lines === 1) client.once('data', () => client.resetAndDestroy());
    else client.resume();
  });
  const woken = Promise.withResolvers<number>();
  await using wakeups = await openWakeups({
    databaseUrl: line.url,
    redisUrl: null,
    onWake: woken.resolve,
    onError: () => {},
  });
  wakeups.wake(7);
  expect(await woken.promise).toBe(7);
  expect(lines).toBeGreaterThan(2);
});
