import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect, test, vi } from 'vitest';
import { DriverClient } from '../../src/client/driver-client.ts';
import { RiderClient } from '../../src/client/rider-client.ts';
import { connectDriver } from '../security/driver-socket.ts';
import { CITY, openCity, startTestService, type TestService } from '../support/service.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** The page's program, as a reader would copy it. */
async function program(): Promise<string> {
  const page = await readFile(`${root}/docs/driver-app.md`, 'utf8');
  return /```js\n(.*?)```/s.exec(page)![1]!;
}

/** Runs it to its end; what it said. */
async function runProgram(service: TestService, driverId: string): Promise<string> {
  const env = {
    ...process.env,
    CABRANK_URL: service.urlOf('gateway'),
    DRIVER_TOKEN: await service.token('driver', driverId),
  };
  const app = spawn(process.execPath, ['--input-type=module', '--eval', await program()], { cwd: root, env });
  let said = '';
  app.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()));
  app.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const overdue = setTimeout(() => app.kill('SIGKILL'), 20_000);
  await once(app, 'close');
  clearTimeout(overdue);
  return said;
}

const openRider = async (service: TestService): Promise<RiderClient> =>
  new RiderClient({ url: service.urlOf('api'), token: await service.token('rider', 'r1') });

test('the program of docs/driver-app.md plays a driver through a whole ride, with the stock socket.io client', async () => {
  await using service = await startTestService();
  await openCity(service, ['d1']);
  const rider = await openRider(service);
  const { id } = await rider.request({ regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });
  expect(await runProgram(service, 'd1')).toContain(`completed ride ${id}`);
  expect(await rider.get(id)).toMatchObject({ status: 'completed' });
  rider.close();
});

test('started anew with a ride in hand, it goes on from where the ride stands', async () => {
  await using service = await startTestService({ policy: { asking: 'assign' } });
  await openCity(service, ['d1']);
  const before = new DriverClient({
    url: service.urlOf('gateway'),
    token: await service.token('driver', 'd1'),
    events: {},
  });
  before.connect();
  await before.online();
  await before.location(CITY.center);
  const rider = await openRider(service);
  const { id } = await rider.request({ regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });
  await vi.waitFor(async () => expect(await rider.get(id)).toMatchObject({ status: 'assigned' }), { timeout: 15_000 });
  await before.arrive(id);
  before.close();
  expect(await runProgram(service, 'd1')).toBe(`completed ride ${id}\n`);
  expect(await rider.get(id)).toMatchObject({ status: 'completed' });
  rider.close();
});

test('the socket that accepts is told the assignment as well, as docs/driver-app.md says', async () => {
  await using service = await startTestService();
  await openCity(service, ['d1']);
  const socket = await connectDriver(service, 'd1');
  const offered = new Promise<{ offerId: string; leaseToken: string }>((resolve) => {
    socket.once('offer', (offer: { offerId: string; leaseToken: string }, received: () => void) => {
      received();
      resolve(offer);
    });
  });
  const told = new Promise<object>((resolve) => void socket.once('assignment', resolve));
  await socket.emitWithAck('online', {});
  await socket.emitWithAck('location', CITY.center);
  const rider = await openRider(service);
  await rider.request({ regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });
  const { offerId, leaseToken } = await offered;
  const { data } = (await socket.emitWithAck('accept', { offerId, leaseToken })) as { data: { assignment: object } };
  expect(await told).toEqual({ ...data.assignment, pickup: CITY.center, dropoff: CITY.center });
  socket.disconnect();
  rider.close();
});
