/** Drivers' positions on their way to the database. */
import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { cellOf } from '../domain/geo.ts';
import type { Sql } from '../src/database/connection.ts';
import { startPositions } from '../src/positions.ts';
import { CENTER, type City, openCity } from './support/city.ts';

const silent = { debug: () => {}, info: () => {}, warn: () => {}, error: () => {} };
const FLUSH_MS = 200;

/** Only while positions are reported: connecting to a database, and closing it, have their own. */
function fakeTimers() {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  return {
    pass: (ms: number) => void vi.advanceTimersByTime(ms),
    running: () => vi.getTimerCount(),
    [Symbol.dispose]: () => void vi.useRealTimers(),
  };
}

const report = (driverId: string) => ({ driverId, position: { ...CENTER, cell: cellOf(CENTER) } });
const present = async (city: City): Promise<string[]> =>
  (await city.sql<{ driver_id: string }[]>`select driver_id from driver_presence order by 1`).map(
    (row) => row.driver_id,
  );

test('what is reported while a set is written waits for the next', async () => {
  await using city = await openCity(0);
  const sets: PromiseLike<unknown>[] = [];
  const sql = ((...args: Parameters<Sql>) => {
    const set = city.sql(...args);
    sets.push(set);
    if (sets.length === 1) positions.report(city.region, report('d2'));
    return set;
  }) as unknown as Sql;
  const positions = startPositions({ sql, log: silent });
  using timers = fakeTimers();
  positions.report(city.region, report('d1'));
  timers.pass(FLUSH_MS);
  await sets[0];
  await setImmediate();
  expect(sets).toHaveLength(1);
  expect(await present(city)).toEqual(['d1']);
  timers.pass(FLUSH_MS);
  await sets[1];
  expect(await present(city)).toEqual(['d1', 'd2']);
  await positions.stop();
});

test('what is reported last is written before the service ends, and nothing runs on', async () => {
  await using city = await openCity(0);
  await present(city);
  const positions = startPositions({ sql: city.sql, log: silent });
  using timers = fakeTimers();
  positions.report(city.region, report('d1'));
  await positions.stop();
  expect(timers.running()).toBe(0);
  expect(await present(city)).toEqual(['d1']);
});
