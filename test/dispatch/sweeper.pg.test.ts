/** The sweeper's two loops: what ends leases doesn't wait for what tidies. */
import { pino } from 'pino';
import { expect, test } from 'vitest';
import type { Sql } from '../../src/database/connection.ts';
import { startSweeper } from '../../src/dispatch/sweeper.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import { createMetrics } from '../../src/ops/metrics.ts';
import { Regions } from '../../src/regions.ts';
import { addRides, lease, moveExpiry, openCity } from '../support/city.ts';

/** Statements that have this in them are sent when `until` is over; `onAsked` hears of the first. */
function withSlow(sql: Sql, what: string, onAsked: () => void, until: Promise<void>): Sql {
  return new Proxy(sql, {
    apply(target, self, args: [readonly string[], ...unknown[]]) {
      const send = (): unknown => Reflect.apply(target as never, self, args);
      if (!args[0].join('').includes(what)) return send();
      onAsked();
      return until.then(send);
    },
  });
}

test('leases that are over are freed while a walk along the region’s drivers goes on', async () => {
  await using city = await openCity(2);
  const { sql, region, database } = city;
  const [rideId] = await addRides(sql, region, 1);
  await lease(sql, region, rideId!, 'd1');
  const walking = Promise.withResolvers<void>();
  const walked = Promise.withResolvers<void>();
  const freed = Promise.withResolvers<void>();
  const metrics = createMetrics();
  const stop = startSweeper({
    sql: withSlow(sql, 'retire_absent', walking.resolve, walked.promise),
    leasing: createLeasing(database, metrics, { tell: () => freed.resolve(), wake: () => {}, regionId: String }),
    regions: new Regions(database),
    metrics,
    log: pino({ enabled: false }),
  });
  try {
    await walking.promise;
    await moveExpiry(sql, region, ['d1'], -600_000);
    await freed.promise;
    expect(await city.driver('d1')).toMatchObject({ status: 'available' });
  } finally {
    walked.resolve();
    await stop();
  }
});
