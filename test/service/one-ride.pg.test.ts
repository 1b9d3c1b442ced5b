import { expect, test, vi } from 'vitest';
import { DriverClient, type ShownOffer } from '../../src/client/driver-client.ts';
import { RiderClient } from '../../src/client/rider-client.ts';
import { verify } from '../../src/verify/verify.ts';
import { describeWithRedis } from '../support/describe-with-redis.ts';
import { startRedis } from '../support/redis.ts';
import { CITY, openCity, startTestService, type TestService } from '../support/service.ts';

const DEADLINE = { timeout: 25_000, interval: 20 };

interface Players extends Disposable {
  readonly driver: DriverClient;
  readonly rider: RiderClient;
  readonly offers: ShownOffer[];
}

/** A driver who is online at the center, and a rider. */
async function play(service: TestService): Promise<Players> {
  await openCity(service, ['d1']);
  const offers: ShownOffer[] = [];
  const driver = new DriverClient({
    url: service.urlOf('gateway'),
    token: await service.token('driver', 'd1'),
    events: { offer: (offer) => void offers.push(offer) },
  });
  const rider = new RiderClient({ url: service.urlOf('api'), token: await service.token('rider', 'r1') });
  driver.connect();
  await driver.online();
  await driver.location(CITY.center);
  return {
    driver,
    rider,
    offers,
    [Symbol.dispose]: () => {
      driver.close();
      rider.close();
    },
  };
}

/** From the request to the drop-off; `meanwhile` runs while the driver has the offer in hand. */
async function ride(
  { driver, rider, offers }: Players,
  meanwhile: () => Promise<unknown> = async () => {},
): Promise<void> {
  const seen = offers.length;
  const center = CITY.center;
  const { id } = await rider.request({ regionId: 'city', riderId: 'r1', pickup: center, dropoff: center });
  await vi.waitFor(() => expect(offers.length).toBeGreaterThan(seen), DEADLINE);
  await meanwhile();
  const offer = offers.at(-1)!;
  expect(offer.rideId).toBe(id);
  expect(await driver.accept(offer)).toMatchObject({ rideId: id, driverId: 'd1', offerId: offer.offerId });
  await driver.arrive(id);
  await driver.start(id);
  await driver.complete(id);
  expect(await rider.get(id)).toMatchObject({ status: 'completed' });
}

const expectProven = async ({ databaseUrl }: TestService): Promise<void> => {
  const { violations, empty } = await verify(databaseUrl);
  expect({ violations, empty }).toEqual({ violations: 0, empty: false });
};

const SPLIT = [['api'], ['gateway'], ['matcher'], ['sweeper']] as const;

test('one ride goes from request to completion over HTTP and a websocket', async () => {
  await using service = await startTestService();
  using players = await play(service);
  await ride(players);
  await expectProven(service);
}, 40_000);

test('one ride goes through four processes of one role each', async () => {
  await using service = await startTestService({ processes: SPLIT });
  using players = await play(service);
  await ride(players);
  await expectProven(service);
}, 60_000);

describeWithRedis('with Redis', () => {
  test('one ride goes through four processes; without Redis the rides after it end as well', async () => {
    await using redis = await startRedis();
    await using service = await startTestService({ processes: SPLIT, redisUrl: redis.url });
    using players = await play(service);
    await ride(players);
    await ride(players, () => redis.stop());
    await ride(players);
    await expectProven(service);
  }, 90_000);
});
