/** Who is there, and for how long the service waits for it to be known. */
import { expect, test, vi } from 'vitest';
import { DriverClient } from '../../src/client/driver-client.ts';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { RiderClient } from '../../src/client/rider-client.ts';
import { CITY, openCity, startTestService } from '../support/service.ts';

const DEADLINE = { timeout: 25_000, interval: 50 };

test('the last drivers to leave a region go offline like any other', async () => {
  const policy = { positionIntervalMs: 500, positionStaleMs: 1_000, presenceGraceMs: 1_000 };
  await using service = await startTestService({ policy });
  const driverIds = ['d1', 'd2'];
  await openCity(service, driverIds);
  const operator = new OperatorClient({ url: service.urlOf('api'), token: await service.token('ops', 'operator') });
  const statuses = async (): Promise<string[]> => {
    const seen: string[] = [];
    for await (const { status } of operator.drivers('city')) seen.push(status);
    return seen;
  };
  const drivers: DriverClient[] = [];
  for (const driverId of driverIds) {
    const token = await service.token('driver', driverId);
    const driver = new DriverClient({ url: service.urlOf('gateway'), token, events: {} });
    drivers.push(driver);
    driver.connect();
    await driver.online();
  }
  expect(await statuses()).toEqual(['available', 'available']);
  for (const driver of drivers) driver.close();
  await vi.waitFor(async () => expect(await statuses()).toEqual(['offline', 'offline']), DEADLINE);
  operator.close();
});

test('the first ride of a new region is given up when its patience is over', async () => {
  // Where positions were lost in a crash, patience stands still for the former.
  const policy = { positionStaleMs: 60_000, presenceGraceMs: 60_000, patienceMs: 500, retryMs: 100, retryMaxMs: 100 };
  await using service = await startTestService({ policy });
  await openCity(service, []);
  const rider = new RiderClient({ url: service.urlOf('api'), token: await service.token('rider', 'r1') });
  const { id } = await rider.request({ regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });
  await vi.waitFor(async () => expect(await rider.get(id)).toMatchObject({ status: 'no_drivers_available' }), DEADLINE);
  const metrics = await (await fetch(`${service.urlOf('matcher')}/metrics`)).text();
  expect(metrics).toContain('cabrank_rides_given_up_total{reason="nobody_near",region="city",policy="1"} 1\n');
  rider.close();
});
