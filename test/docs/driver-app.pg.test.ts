import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { RiderClient } from '../../src/client/rider-client.ts';
import { CITY, openCity, startTestService } from '../support/service.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** The page's program, as a reader would copy it. */
async function program(): Promise<string> {
  const page = await readFile(`${root}/docs/driver-app.md`, 'utf8');
  return /```js\n(.*?)```/s.exec(page)![1]!;
}

test('the program of docs/driver-app.md plays a driver through a whole ride, with the stock socket.io client', async () => {
  await using service = await startTestService();
  await openCity(service, ['d1']);
  const rider = new RiderClient({ url: service.urlOf('api'), token: await service.token('rider', 'r1') });
  const { id } = await rider.request({ regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });

  const env = {
    ...process.env,
    CABRANK_URL: service.urlOf('gateway'),
    DRIVER_TOKEN: await service.token('driver', 'd1'),
  };
  const app = spawn(process.execPath, ['--input-type=module', '--eval', await program()], { cwd: root, env });
  let said = '';
  app.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()));
  app.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
  const overdue = setTimeout(() => app.kill('SIGKILL'), 20_000);
  await once(app, 'close');
  clearTimeout(overdue);

  expect(said).toContain(`completed ride ${id}`);
  expect(await rider.get(id)).toMatchObject({ status: 'completed' });
  rider.close();
});
