/**
 * Runs the service through its main job as loudly as it can, with failures; keeps everything it says to anybody, and looks
 * through that for what nobody may read: bearer tokens, lease tokens, the secrets of tokens, webhooks and database.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect, test, vi } from 'vitest';
import type { Role } from '../../src/auth.ts';
import { DriverClient, type ShownOffer } from '../../src/client/driver-client.ts';
import { signToken } from '../../src/client/token.ts';
import { newSecret } from '../../src/outbox/signature.ts';
import { createTestDatabase, withConnection } from '../support/database.ts';
import { CITY } from '../support/service.ts';
import { badTokens } from './bad-tokens.ts';

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const SECRET = 'the-secret-that-signs-all-tokens-of-this-test';
const DEADLINE = { timeout: 60_000, interval: 50 };
const STOP_DEADLINE_MS = 15_000;

/** What was said, and what may not be in it. */
function openEar() {
  const said: string[] = [];
  const secrets = new Map<string, string>();
  return {
    /** A secret may be told to its owner: there it is passed over. */
    hear(where: string, text: string, owned: readonly string[] = []): void {
      said.push(`${where}: ${owned.reduce((rest, secret) => rest.replaceAll(secret, '(own)'), text)}`);
    },
    keep(what: string, secret: string): string {
      secrets.set(secret, what);
      return secret;
    },
    secrets,
    everything: () => said.join('\n'),
    leaks: () =>
      said.flatMap((text) =>
        [...secrets]
          .filter(([secret]) => text.includes(secret))
          .map(([, what]) => `${what} in ${text.slice(0, 3_000)}`),
      ),
  };
}
type Ear = ReturnType<typeof openEar>;

/** `cabrank serve` at its loudest, on the database. */
async function serveLoudly(ear: Ear, databaseUrl: string) {
  const child = spawn(process.execPath, [main, 'serve', '--port', '0'], {
    env: {
      ...process.env,
      DATABASE_URL: databaseUrl,
      AUTH_SECRET: SECRET,
      LOG_LEVEL: 'trace',
      NODE_ENV: 'development',
    },
  });
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (log += chunk.toString()));
  await using stack = new AsyncDisposableStack();
  stack.defer(async () => {
    const closed = once(child, 'close');
    child.kill('SIGTERM');
    const overdue = setTimeout(() => child.kill('SIGKILL'), STOP_DEADLINE_MS);
    await closed;
    clearTimeout(overdue);
    ear.hear('log', log);
  });
  await vi.waitFor(() => expect(log).toContain('a token'), DEADLINE);
  const url = /REST\s+(http\S+)\/v1/.exec(log)![1]!;
  const started = stack.move();
  return { url, [Symbol.asyncDispose]: () => started.disposeAsync() };
}

/** Takes every delivery but the first, and keeps what it was sent. */
async function receive(ear: Ear) {
  let deliveries = 0;
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      deliveries += 1;
      ear.hear('webhook', `${JSON.stringify(request.headers)} ${Buffer.concat(parts).toString()}`);
      response.writeHead(deliveries === 1 ? 500 : 204).end();
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    deliveries: () => deliveries,
    [Symbol.asyncDispose]: async () => void (await once(server.close(), 'close')),
  };
}

/** Calls over REST that keep their answers. */
function callerTo(ear: Ear, url: string) {
  const tokens = new Map<string, string>();
  const tokenOf = async (who: string): Promise<string> => {
    const [role, sub] = who.split(':') as [Role, string];
    const token = tokens.get(who) ?? (await signToken({ secret: SECRET, sub, role, ttlS: 600 }));
    tokens.set(who, token);
    return ear.keep(`the bearer token of ${who}`, token);
  };
  const call = async (who: string, line: string, body?: unknown, owned: readonly string[] = []) => {
    const [method, path] = line.split(' ') as [string, string];
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${await tokenOf(who)}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    ear.hear(`${who} ${line} ${response.status}`, `${text} ${JSON.stringify([...response.headers])}`, owned);
    return { status: response.status, body: JSON.parse(text) as Record<string, unknown> };
  };
  return { tokenOf, call };
}

test('no secret is in the log, an answer, a metric, a history or a delivery', async () => {
  const ear = openEar();
  ear.keep('AUTH_SECRET', SECRET);
  {
    await using database = await createTestDatabase();
    ear.keep('the database’s password', new URL(database.url).password);
    await using receiver = await receive(ear);
    await using service = await serveLoudly(ear, database.url);
    const { tokenOf, call } = callerTo(ear, service.url);
    const webhookSecret = ear.keep('the webhook’s secret', newSecret());
    const brokenSecret = ear.keep('the secret of the webhook that failed', newSecret());

    await call('ops:o', 'PUT /v1/regions/city', CITY);
    await call('ops:o', 'PUT /v1/webhooks/hook', { url: receiver.url, secret: webhookSecret }, [webhookSecret]);
    await call('ops:o', 'PUT /v1/webhooks/hook', { url: receiver.url });
    for (const id of ['d1', 'd2']) await call(`driver:${id}`, `PUT /v1/drivers/${id}`, { regionId: 'city' });
    const offers: ShownOffer[] = [];
    const driver = new DriverClient({
      url: service.url,
      token: await tokenOf('driver:d1'),
      events: { offer: (offer) => void offers.push(offer) },
    });
    driver.connect();
    await driver.online();
    await driver.location(CITY.center);
    const ride = async (): Promise<ShownOffer> => {
      const seen = offers.length;
      const asked = { regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center };
      expect((await call('rider:r1', 'POST /v1/rides', asked)).status).toBe(201);
      await vi.waitFor(() => expect(offers.length).toBeGreaterThan(seen), DEADLINE);
      ear.keep('a lease token', offers.at(-1)!.leaseToken);
      return offers.at(-1)!;
    };

    // The main job: a ride that is refused by its driver, and one that is driven; each asked for wrongly as well.
    const declined = await ride();
    await call('driver:d1', 'GET /v1/drivers/d1', undefined, [declined.leaseToken]);
    await call('ops:o', 'GET /v1/drivers/d1');
    await call('driver:d2', `POST /v1/offers/${declined.offerId}/confirm`, { leaseToken: declined.leaseToken });
    await call('driver:d1', `POST /v1/offers/${declined.offerId}/confirm`, { leaseToken: 'a-guess' });
    await call('driver:d1', `POST /v1/offers/${declined.offerId}/decline`, { leaseToken: declined.leaseToken, no: 1 });
    await call('driver:d1', `POST /v1/offers/${declined.offerId}/decline`, `{"leaseToken":"${declined.leaseToken}`);
    await driver.decline(declined);
    await call('rider:r1', `POST /v1/rides/${declined.rideId}/cancel`, { reasonCode: 'attack' });
    const driven = await ride();
    await driver.accept(driven);
    await driver.arrive(driven.rideId);
    await driver.start(driven.rideId);
    await driver.complete(driven.rideId);
    await call('driver:d1', `POST /v1/offers/${driven.offerId}/decline`, { leaseToken: driven.leaseToken });

    // Leases and claims have tokens as well.
    const lease = await call('service:s', 'POST /v1/leases', { resource: 'job', holder: 'h', ttlMs: 60_000 });
    expect(lease.status).toBe(201);
    for (const { what, token } of await badTokens(SECRET, 'o', 'ops')) {
      if (token === null || token.length < 20) continue;
      ear.keep(`a token that is ${what}`, token);
      const response = await fetch(`${service.url}/v1/regions/city`, { headers: { authorization: `Bearer ${token}` } });
      ear.hear('a bad token', await response.text());
    }

    // Failures inside: PostgreSQL quotes the row that it refused, with whatever secret is in it.
    await withConnection(database.url, async (sql) => {
      await sql`alter table webhooks add constraint broken check (id <> 'broken')`;
      await sql`alter table driver_state add constraint broken check (status <> 'leased' or driver_id <> 'd2') not valid`;
    });
    const broken = await call('ops:o', 'PUT /v1/webhooks/broken', { url: receiver.url, secret: brokenSecret });
    expect(broken).toMatchObject({ status: 500, body: { code: 'internal_error' } });
    await call('driver:d2', 'POST /v1/drivers/d2/online');
    const asked = { regionId: 'city', riderId: 'r2', pickup: CITY.center, dropoff: CITY.center };
    const { body } = await call('rider:r2', 'POST /v1/rides', asked);
    const refused = await call('service:s', `POST /v1/rides/${body['id'] as string}/offers`, { driverId: 'd2' });
    expect(refused).toMatchObject({ status: 500, body: { code: 'internal_error' } });

    await vi.waitFor(() => expect(receiver.deliveries()).toBeGreaterThan(8), DEADLINE);
    for (const path of ['/metrics', '/healthz', '/readyz', '/openapi.json'])
      ear.hear(path, await (await fetch(`${service.url}${path}`)).text());
    for (const { rideId } of offers) {
      await call('ops:o', `GET /v1/rides/${rideId}`);
      await call('ops:o', `GET /v1/rides/${rideId}/timeline`);
    }
    for (const path of [
      'offers/' + driven.offerId,
      'drivers?regionId=city',
      'rides?regionId=city',
      'leases',
      'webhooks',
    ])
      await call('ops:o', `GET /v1/${path}`);
    await call('ops:o', 'GET /v1/webhooks/hook/dead');
    await call('ops:o', 'GET /v1/leases/job/terms');
    driver.close();
  }
  // What was looked through is what it should be.
  const everything = ear.everything();
  expect(ear.secrets.size).toBeGreaterThan(20);
  expect(everything.match(/"msg":"request failed"/g)).toHaveLength(2);
  for (const seen of [
    'violates check constraint',
    'webhook-signature',
    'cabrank_transitions_total',
    'offer_accepted',
    'wrong_token',
  ])
    expect(everything).toContain(seen);
  expect(ear.leaks()).toEqual([]);
}, 180_000);
