import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect, test, vi } from 'vitest';
import { RiderClient } from '../../src/client/rider-client.ts';
import { newSecret, sign } from '../../src/outbox/signature.ts';
import { CITY, openCity, startTestService } from '../support/service.ts';

const page = fileURLToPath(new URL('../../docs/webhooks.md', import.meta.url));

test('the receiver of docs/webhooks.md hears of a ride in order, and of nothing that isn’t signed', async () => {
  await using stack = new AsyncDisposableStack();
  const service = stack.use(await startTestService());
  await openCity(service, ['d1']);
  const program = /```js\n(.*?)```/s.exec(await readFile(page, 'utf8'))![1]!;
  const secret = newSecret();
  const receiver = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    env: { ...process.env, WEBHOOK_SECRET: secret, PORT: '0' },
  });
  stack.defer(() => void receiver.kill('SIGKILL'));
  let said = '';
  for (const stream of [receiver.stdout, receiver.stderr])
    stream.on('data', (chunk: Buffer) => (said += chunk.toString()));
  await once(receiver.stdout, 'data');
  const url = `http://127.0.0.1:${/listening on (\d+)/.exec(said)![1]!}/`;

  const made = await fetch(`${service.urlOf('api')}/v1/webhooks/backend`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${await service.token('ops', 'olga')}`, 'content-type': 'application/json' },
    body: JSON.stringify({ url, secret }),
  });
  expect(made.status).toBe(201);
  expect((await fetch(url, { method: 'POST', body: '{"rideId":"forged","seq":1}' })).status).toBe(401);

  const rider = new RiderClient({ url: service.urlOf('api'), token: await service.token('rider', 'r1') });
  stack.defer(() => rider.close());
  const { id } = await rider.request({ regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });
  await rider.cancel(id, 'changed_mind');
  await vi.waitFor(() => expect(said).toContain('ride_cancelled'), { timeout: 20_000 });
  const heard = said.split('\n').filter((line) => line.startsWith(id));
  const { items } = await rider.timeline(id);
  expect(heard).toEqual(items.map(({ seq, type }) => `${id} ${seq} ${type}`));
  expect(said).not.toContain('forged');

  // One that was given up and is sent again comes after later ones; what was taken in comes in vain.
  const tell = async (seq: number, type: string): Promise<number> => {
    const body = JSON.stringify({ id: `given-up/${seq}`, rideId: 'given-up', seq, type });
    const timestampS = Math.floor(Date.now() / 1000);
    const signature = sign(secret, `given-up/${seq}`, timestampS, body);
    const headers = {
      'webhook-id': `given-up/${seq}`,
      'webhook-timestamp': `${timestampS}`,
      'webhook-signature': signature,
    };
    return (await fetch(url, { method: 'POST', headers, body })).status;
  };
  expect(await tell(2, 'ride_cancelled')).toBe(204);
  expect(await tell(1, 'ride_requested')).toBe(204);
  expect(await tell(2, 'ride_cancelled')).toBe(204);
  await vi.waitFor(() => expect(said).toContain('given-up 1 ride_requested'));
  expect(said.split('\n').filter((line) => line.startsWith('given-up'))).toEqual([
    'given-up 2 ride_cancelled',
    'given-up 1 ride_requested',
  ]);
}, 60_000);
