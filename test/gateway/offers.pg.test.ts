/** How offers reach devices, seen by a stock socket.io client. */
import { io, type Socket } from 'socket.io-client';
import { expect, test, vi } from 'vitest';
import { ROLES } from '../../src/config.ts';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { RiderClient } from '../../src/client/rider-client.ts';
import { connectDatabase } from '../../src/database/connection.ts';
import { openFanout } from '../../src/gateway/fanout.ts';
import type { OfferMessage } from '../../src/gateway/notices.ts';
import { newId, newLeaseToken } from '../../src/leasing/ids.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { verify } from '../../src/verify/verify.ts';
import { addRides, lease, leaseTerms } from '../support/city.ts';
import { withConnection } from '../support/database.ts';
import { CITY, openCity, startTestService, type TestService } from '../support/service.ts';

const DEADLINE = { timeout: 15_000, interval: 20 };

interface Offer {
  readonly offerId: string;
  readonly rideId: string;
  readonly leaseToken: string;
}

interface Device extends Disposable {
  readonly socket: Socket;
  /** Every push, also of the same offer. */
  readonly pushes: Offer[];
  readonly states: { status: string; offer: Offer | null; assignment: { rideId: string } | null }[];
  readonly withdrawn: { offerId: string; reason: string }[];
}

async function openDevice(
  service: TestService,
  driverId: string,
  acknowledges: () => boolean,
  url = service.urlOf('gateway'),
): Promise<Device> {
  const socket = io(`${url}/drivers`, {
    auth: { token: await service.token('driver', driverId) },
    transports: ['websocket'],
    reconnection: false,
    forceNew: true,
  });
  const device: Device = {
    socket,
    pushes: [],
    states: [],
    withdrawn: [],
    [Symbol.dispose]: () => void socket.disconnect(),
  };
  socket.on('state', (state: Device['states'][number]) => device.states.push(state));
  socket.on('offer', (offer: Offer, received: () => void) => {
    device.pushes.push(offer);
    if (acknowledges()) received();
  });
  socket.on('offer:withdrawn', (data: Device['withdrawn'][number]) => device.withdrawn.push(data));
  await vi.waitFor(() => expect(device.states).toHaveLength(1), DEADLINE);
  return device;
}

async function goOnline({ socket }: Device): Promise<void> {
  expect(await socket.emitWithAck('online', {})).toMatchObject({ ok: true });
  expect(await socket.emitWithAck('location', CITY.center)).toMatchObject({ ok: true });
}

async function request(service: TestService): Promise<{ rider: RiderClient; id: string }> {
  const rider = new RiderClient({ url: service.urlOf('api'), token: await service.token('rider', 'r1') });
  const { id } = await rider.request({ regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });
  return { rider, id };
}

test('an offer that no device acknowledged is pushed again, and once acknowledged no more', async () => {
  await using service = await startTestService({ policy: { pushRetryMs: 100 } });
  await openCity(service, ['d1']);
  let acknowledges = false;
  using device = await openDevice(service, 'd1', () => acknowledges);
  await goOnline(device);
  const { rider } = await request(service);
  await vi.waitFor(() => expect(device.pushes.length).toBeGreaterThanOrEqual(3), DEADLINE);
  acknowledges = true;
  expect(new Set(device.pushes.map(({ offerId }) => offerId)).size).toBe(1);
  const { offerId, leaseToken } = device.pushes[0]!;
  // Accepting implies having received.
  expect(await device.socket.emitWithAck('accept', { offerId, leaseToken })).toMatchObject({ ok: true });
  expect(await device.socket.emitWithAck('accept', { offerId, leaseToken })).toMatchObject({ ok: true });
  rider.close();
});

test('devices that accept in the moment in which they acknowledge are assigned, and asked once', async () => {
  await using service = await startTestService({ policy: { matching: 'batch' } });
  const driverIds = Array.from({ length: 20 }, (_, i) => `d${i + 1}`);
  await openCity(service, driverIds);
  using devices = new DisposableStack();
  const accepted: Promise<unknown>[] = [];
  const opened = await Promise.all(driverIds.map((driverId) => openDevice(service, driverId, () => true)));
  for (const device of opened) {
    devices.use(device);
    device.socket.on('offer', ({ offerId, leaseToken }: Offer) =>
      accepted.push(device.socket.emitWithAck('accept', { offerId, leaseToken })),
    );
    await goOnline(device);
  }
  const riders = await Promise.all(driverIds.map(() => request(service)));
  await vi.waitFor(() => expect(accepted).toHaveLength(20), DEADLINE);
  expect(await Promise.all(accepted)).toEqual(accepted.map(() => expect.objectContaining({ ok: true })));
  expect(opened.map(({ pushes }) => pushes.length)).toEqual(opened.map(() => 1));
  expect(await verify(service.databaseUrl)).toMatchObject({ violations: 0 });
  for (const { rider } of riders) rider.close();
});

test('an offer whose accept takes its time isn’t pushed again, nor taken off the screen', async () => {
  await using service = await startTestService({ policy: { pushRetryMs: 100 } });
  await openCity(service, ['d1', 'd2']);
  let acknowledges = false;
  const acknowledging = (): boolean => acknowledges;
  using first = await openDevice(service, 'd1', acknowledging);
  using second = await openDevice(service, 'd2', acknowledging);
  await goOnline(first);
  await goOnline(second);
  const riders = [await request(service), await request(service)];
  // Old enough for the gateway's look.
  for (const { pushes } of [first, second])
    await vi.waitFor(() => expect(pushes.length).toBeGreaterThanOrEqual(3), DEADLINE);
  // The first receipt's set waits for the table, the second receipt for that set, and the accept comes meanwhile.
  const accepted = Promise.withResolvers<unknown>();
  let pushesUntilAccept = Infinity;
  await withConnection(service.databaseUrl, (sql) =>
    sql.begin(async (tx) => {
      await tx`lock table offers in access exclusive mode`;
      second.socket.on('offer', ({ offerId, leaseToken }: Offer) => {
        if (!acknowledges || pushesUntilAccept < Infinity) return;
        pushesUntilAccept = second.pushes.length;
        second.socket.emitWithAck('accept', { offerId, leaseToken }).then(accepted.resolve, accepted.reject);
      });
      acknowledges = true;
      // Until the accept waits as well, and the gateway looks for offers that nobody received.
      await vi.waitFor(async () => {
        await tx`select pg_stat_clear_snapshot()`;
        const waiting = await tx<
          { query: string }[]
        >`select query from pg_stat_activity where wait_event_type = 'Lock'`;
        for (const of of ['receive_offers', 'confirm_offers', 'undelivered_offers'])
          expect(
            waiting.some(({ query }) => query.includes(of)),
            of,
          ).toBe(true);
      }, DEADLINE);
    }),
  );
  expect(await accepted.promise).toMatchObject({ ok: true });
  const { rideId } = second.pushes[0]!;
  for (const step of ['arrive', 'start', 'complete'])
    expect(await second.socket.emitWithAck(step, { rideId })).toMatchObject({ ok: true });
  expect(second.pushes).toHaveLength(pushesUntilAccept);
  expect(second.withdrawn).toEqual([]);
  for (const { rider } of riders) rider.close();
});

test('a receipt that can’t be recorded is asked for again, at the pace of a silent device, until it is recorded', async () => {
  const pushRetryMs = 100;
  await using service = await startTestService({
    policy: { pushRetryMs, deliveryTtlMs: 30_000, maxLifetimeMs: 60_000 },
  });
  await openCity(service, ['d1']);
  const pushedAtMs: number[] = [];
  using device = await openDevice(service, 'd1', () => {
    pushedAtMs.push(performance.now());
    return true;
  });
  await goOnline(device);
  const expectReceipts = (count: number): Promise<void> =>
    withConnection(service.databaseUrl, async (sql) =>
      expect(await sql`select from driver_state where lease_received_at is not null`).toHaveLength(count),
    );
  const shape = '(smallint, uuid[], text[], text[], boolean)';
  const rename = (from: string, to: string) =>
    withConnection(
      service.databaseUrl,
      async (sql) => void (await sql.unsafe(`alter function leasing.${from}${shape} rename to ${to}`)),
    );
  await rename('receive_offers', 'away');
  const { rider } = await request(service);
  await vi.waitFor(() => expect(pushedAtMs.length).toBeGreaterThanOrEqual(4), DEADLINE);
  for (const [i, atMs] of pushedAtMs.slice(1).entries())
    expect(atMs - pushedAtMs[i]!).toBeGreaterThan(0.9 * pushRetryMs);
  await expectReceipts(0);
  await rename('away', 'receive_offers');
  await vi.waitFor(() => expectReceipts(1), DEADLINE);
  const { offerId, leaseToken } = device.pushes[0]!;
  expect(await device.socket.emitWithAck('accept', { offerId, leaseToken })).toMatchObject({ ok: true });
  rider.close();
});

test('a receipt that comes while somebody holds the driver for long is recorded once he is let go', async () => {
  await using service = await startTestService({
    policy: { pushRetryMs: 100, deliveryTtlMs: 30_000, maxLifetimeMs: 60_000 },
  });
  await openCity(service, ['d1']);
  let acknowledges = false;
  using device = await openDevice(service, 'd1', () => acknowledges);
  await goOnline(device);
  const { rider } = await request(service);
  await vi.waitFor(() => expect(device.pushes.length).toBeGreaterThan(0), DEADLINE);
  await withConnection(service.databaseUrl, async (sql) => {
    await sql.begin(async (tx) => {
      await tx`select from driver_state for update`;
      acknowledges = true;
      const pushesBefore = device.pushes.length;
      // One that is acknowledged, and another because that couldn't be recorded.
      await vi.waitFor(() => expect(device.pushes.length).toBeGreaterThan(pushesBefore + 1), DEADLINE);
    });
    await vi.waitFor(
      async () => expect(await sql`select from driver_state where lease_received_at is not null`).toHaveLength(1),
      DEADLINE,
    );
  });
  expect(device.withdrawn).toEqual([]);
  rider.close();
});

test('a driver who is moved to another region comes again there, whether he asks for something or not', async () => {
  await using service = await startTestService({ policy: { pushRetryMs: 100 } });
  const driverIds = ['silent', 'asks'];
  await openCity(service, driverIds);
  const operator = new OperatorClient({ url: service.urlOf('api'), token: await service.token('ops', 'operator') });
  await operator.putRegion('elsewhere', CITY);
  for (const driverId of driverIds) {
    using device = await openDevice(service, driverId, () => true);
    const cut = new Promise<string>((resolve) => device.socket.once('disconnect', resolve));
    await operator.putDriver(driverId, { regionId: 'elsewhere' });
    if (driverId === 'asks') device.socket.emit('online', {});
    // As by a broken line: stock clients connect again by themselves.
    expect(await cut).toBe('transport close');
    using again = await openDevice(service, driverId, () => true);
    await goOnline(again);
    const rider = new RiderClient({ url: service.urlOf('api'), token: await service.token('rider', 'r1') });
    await rider.request({ regionId: 'elsewhere', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center });
    await vi.waitFor(() => expect(again.pushes).toHaveLength(1), DEADLINE);
    const { offerId, leaseToken } = again.pushes[0]!;
    expect(await again.socket.emitWithAck('accept', { offerId, leaseToken })).toMatchObject({ ok: true });
    rider.close();
  }
  operator.close();
});

test('a driver who connects anew gets the current offer, and the newest socket replaces the older', async () => {
  await using service = await startTestService();
  await openCity(service, ['d1']);
  using first = await openDevice(service, 'd1', () => true);
  await goOnline(first);
  const { rider } = await request(service);
  await vi.waitFor(() => expect(first.pushes).toHaveLength(1), DEADLINE);
  using second = await openDevice(service, 'd1', () => true);
  expect(second.states[0]).toMatchObject({ status: 'leased', offer: { offerId: first.pushes[0]!.offerId } });
  await vi.waitFor(() => expect(first.socket.connected).toBe(false), DEADLINE);
  rider.close();
});

test('an offer whose ride is cancelled is withdrawn from the screen, and can’t be accepted', async () => {
  await using service = await startTestService();
  await openCity(service, ['d1']);
  using device = await openDevice(service, 'd1', () => true);
  await goOnline(device);
  const { rider, id } = await request(service);
  await vi.waitFor(() => expect(device.pushes).toHaveLength(1), DEADLINE);
  await rider.cancel(id, 'changed_mind');
  const { offerId, leaseToken } = device.pushes[0]!;
  await vi.waitFor(() => expect(device.withdrawn).toEqual([{ offerId, reason: 'ride_cancelled' }]), DEADLINE);
  expect(await device.socket.emitWithAck('accept', { offerId, leaseToken })).toEqual({
    ok: false,
    error: { code: 'ride_cancelled' },
  });
  rider.close();
});

test('a late notice of a term that was over before the driver connected isn’t shown', async () => {
  // Two processes: notices come over the database.
  await using service = await startTestService({ processes: [ROLES, ['sweeper']] });
  await openCity(service, ['d1']);
  await using elsewhere = await openFanout({ kind: 'postgres', databaseUrl: service.databaseUrl }, () => {});
  using first = await openDevice(service, 'd1', () => true);
  await goOnline(first);
  for (const n of [0, 1]) {
    const { rider } = await request(service);
    await vi.waitFor(() => expect(first.pushes).toHaveLength(n + 1), DEADLINE);
    const { offerId, leaseToken } = first.pushes[n]!;
    expect(await first.socket.emitWithAck('decline', { offerId, leaseToken })).toMatchObject({ ok: true });
    rider.close();
  }
  using second = await openDevice(service, 'd1', () => true);
  const late = { ...first.pushes[0]!, fence: 1 } as OfferMessage;
  elsewhere.tell([
    { driverId: 'd1', event: 'offer', data: late },
    { driverId: 'd1', event: 'offer:withdrawn', data: { offerId: late.offerId, reason: 'told after it' } },
  ]);
  await vi.waitFor(() => expect(second.withdrawn).toHaveLength(1), DEADLINE);
  expect(second.pushes).toEqual([]);
});

test('a gateway that is told to end hangs up its own drivers alone, so that a stock client comes again', async () => {
  await using service = await startTestService({ processes: [ROLES, ['gateway']] });
  await openCity(service, ['d1', 'd2']);
  await using elsewhere = await openFanout({ kind: 'postgres', databaseUrl: service.databaseUrl }, () => {});
  using stays = await openDevice(service, 'd1', () => true);
  using leaves = await openDevice(service, 'd2', () => true, service.services[1]!.url);
  const left: string[] = [];
  stays.socket.on('disconnect', (reason) => left.push(`d1: ${reason}`));
  leaves.socket.on('disconnect', (reason) => left.push(`d2: ${reason}`));
  await service.services[1]!.drain();
  await vi.waitFor(() => expect(left).toContain('d2: transport close'), DEADLINE);
  // What processes tell each other comes in order: whoever has heard of this would have heard of anything before it.
  elsewhere.tell([{ driverId: 'd1', event: 'offer:withdrawn', data: { offerId: 'an offer', reason: 'expired' } }]);
  await vi.waitFor(() => expect(stays.withdrawn.length + left.length).toBeGreaterThan(1), DEADLINE);
  expect(left).toEqual(['d2: transport close']);
});

test('a hundred offers made at once come as notifications: nothing is written to tell of them', async () => {
  await using service = await startTestService({ processes: [ROLES, ['sweeper']] });
  await openCity(service, ['d1']);
  await using elsewhere = await openFanout({ kind: 'postgres', databaseUrl: service.databaseUrl }, () => {});
  using device = await openDevice(service, 'd1', () => true);
  const place = { lat: -52.12345678901234, lng: -113.12345678901234 };
  const data = (n: number): OfferMessage => ({
    offerId: newId(n + 1),
    rideId: newId(n + 1),
    leaseToken: newLeaseToken(),
    fence: Number.MAX_SAFE_INTEGER,
    expiresInMs: 15_000,
    pickup: place,
    dropoff: place,
    pickupEtaS: 1234.567890123456,
  });
  elsewhere.tell([
    ...Array.from({ length: 99 }, (_, n) => ({ driverId: 'd'.repeat(64), event: 'offer' as const, data: data(n) })),
    { driverId: 'd1', event: 'offer:withdrawn', data: { offerId: 'the last', reason: 'expired' } },
  ]);
  await vi.waitFor(() => expect(device.withdrawn).toHaveLength(1), DEADLINE);
  await withConnection(service.databaseUrl, async (sql) =>
    expect(await sql`select from socket_io_attachments`).toHaveLength(0),
  );
});

test('a driver who connects is told its state before anything else, whatever happened while it was read', async () => {
  await using service = await startTestService({ processes: [ROLES, ['sweeper']] });
  await openCity(service, ['d1', 'd2']);
  await using elsewhere = await openFanout({ kind: 'postgres', databaseUrl: service.databaseUrl }, () => {});
  using witness = await openDevice(service, 'd2', () => true);
  const socket = io(`${service.urlOf('gateway')}/drivers`, {
    auth: { token: await service.token('driver', 'd1') },
    transports: ['websocket'],
    autoConnect: false,
  });
  const told: string[] = [];
  socket.onAny((event: string) => told.push(event));
  await withConnection(service.databaseUrl, (sql) =>
    sql.begin(async (tx) => {
      await tx`lock table driver_state in access exclusive mode`;
      socket.connect();
      await vi.waitFor(() => expect(socket.connected).toBe(true), DEADLINE);
      // Notices come in order: once the witness has heard of this one, so has whoever comes before it.
      for (const driverId of ['d1', 'd2'])
        elsewhere.tell([{ driverId, event: 'offer:withdrawn', data: { offerId: 'an offer', reason: 'expired' } }]);
      await vi.waitFor(() => expect(witness.withdrawn).toHaveLength(1), DEADLINE);
    }),
  );
  await vi.waitFor(() => expect(told).toEqual(['state', 'offer:withdrawn']), DEADLINE);
  socket.disconnect();
});

test('a driver whom nobody told what happened is told its state within seconds, and one who knows isn’t', async () => {
  await using service = await startTestService({ processes: [['api', 'gateway']], policy: { pushRetryMs: 100 } });
  const driverIds = ['lost-his-ride', 'got-a-ride', 'retired', 'knows-it-all'];
  await openCity(service, driverIds);
  using devices = new DisposableStack();
  const opened: Device[] = [];
  for (const driverId of driverIds) opened.push(devices.use(await openDevice(service, driverId, () => true)));
  for (const device of opened) await goOnline(device);
  const [loser, winner, retired, knowing] = opened as [Device, Device, Device, Device];
  const accepted = async ({ pushes, socket }: Device): Promise<string> => {
    await vi.waitFor(() => expect(pushes).toHaveLength(1), DEADLINE);
    const { offerId, leaseToken, rideId } = pushes[0]!;
    expect(await socket.emitWithAck('accept', { offerId, leaseToken })).toMatchObject({ ok: true });
    return rideId;
  };
  await using database = connectDatabase(service.databaseUrl, { hotConnections: 1, coldConnections: 1 });
  const sql = database.hot;
  const [{ number: region }] = (await sql`select number from regions`) as unknown as [{ number: number }];
  const [lost, won, done] = (await addRides(sql, region, 3)) as [string, string, string];
  await lease(sql, region, lost, 'lost-his-ride');
  await lease(sql, region, done, 'knows-it-all');
  expect(await accepted(loser)).toBe(lost);
  const rideId = await accepted(knowing);
  for (const step of ['arrive', 'start', 'complete'])
    expect(await knowing.socket.emitWithAck(step, { rideId })).toMatchObject({ ok: true });

  // As by a process that ended before it told anybody.
  const cancels = { rideId: lost, riderId: null, source: 'rider' as const, reason: 'test' };
  expect(await transitions.cancelRides(sql, region, [cancels], true)).toMatchObject([{ applied: true }]);
  const ask = { rideId: won, driverId: 'got-a-ride', pickupEtaS: 60, offerId: newId(region) };
  const made = [{ ...ask, leaseToken: newLeaseToken() }];
  expect(await transitions.assignDrivers(sql, region, made, leaseTerms, true)).toMatchObject([{ refused: null }]);
  await transitions.takeOffline(sql, region, ['retired'], 'silent', true);
  await vi.waitFor(() => {
    expect(loser.states[1]).toMatchObject({ status: 'available', assignment: null });
    expect(winner.states[1]).toMatchObject({ status: 'assigned', assignment: { rideId: won } });
    expect(retired.states[1]).toMatchObject({ status: 'offline' });
  }, DEADLINE);
  expect(knowing.states).toHaveLength(1);

  // Once: another look finds only what happened since.
  await transitions.takeOffline(sql, region, ['knows-it-all'], 'silent', true);
  await vi.waitFor(() => expect(knowing.states[1]).toMatchObject({ status: 'offline' }), DEADLINE);
  expect(opened.map(({ states }) => states.length)).toEqual([2, 2, 2, 2]);
});

test('a driver hears of each shift that his socket didn’t ask for, however short the one before was', async () => {
  // Nothing is old enough for the look at who is mistaken.
  await using service = await startTestService({
    policy: { pushRetryMs: 60_000, deliveryTtlMs: 60_000, maxLifetimeMs: 90_000 },
  });
  await openCity(service, ['d1']);
  using device = await openDevice(service, 'd1', () => true);
  const shift = async (to: 'online' | 'offline'): Promise<void> => {
    const headers = { authorization: `Bearer ${await service.token('driver', 'd1')}` };
    const answer = await fetch(`${service.urlOf('api')}/v1/drivers/d1/${to}`, { method: 'POST', headers });
    expect(answer.status).toBe(200);
  };
  const told = (): string[] => device.states.map(({ status }) => status);
  await shift('online');
  await vi.waitFor(() => expect(told()).toEqual(['offline', 'available']), DEADLINE);
  await shift('offline');
  await vi.waitFor(() => expect(told()).toEqual(['offline', 'available', 'offline']), DEADLINE);
  // Repeated it changes nothing; what the socket asks for is answered there.
  await shift('offline');
  await goOnline(device);
  await shift('offline');
  await vi.waitFor(() => expect(told()).toEqual(['offline', 'available', 'offline', 'offline']), DEADLINE);
});

test('data that isn’t as described is answered by name, and a connection without a driver’s token is refused', async () => {
  await using service = await startTestService();
  await openCity(service, ['d1']);
  using device = await openDevice(service, 'd1', () => true);
  for (const [event, data] of [
    ['location', { lat: 91, lng: 0 }],
    ['location', { lat: '1', lng: 0 }],
    ['accept', { offerId: 'x', leaseToken: 'y' }],
    ['accept', { offerId: crypto.randomUUID(), leaseToken: 'a\\b' }],
    ['arrive', {}],
    ['online', { extra: true }],
    ['Online', {}],
    ['toString', {}],
  ] as const) {
    expect(await device.socket.emitWithAck(event, data), event).toMatchObject({
      ok: false,
      error: { code: 'invalid_request' },
    });
  }
  for (const [token, code] of [
    [undefined, 'token_missing'],
    ['nonsense', 'token_invalid'],
    [await service.token('rider', 'r1'), 'forbidden'],
    [await service.token('driver', 'stranger'), 'driver_not_found'],
  ] as const) {
    const socket = io(`${service.urlOf('gateway')}/drivers`, {
      auth: token === undefined ? {} : { token },
      transports: ['websocket'],
      reconnection: false,
      forceNew: true,
    });
    const error = await new Promise<Error & { data?: { code: string } }>((resolve) =>
      socket.once('connect_error', resolve),
    );
    expect(error.data?.code).toBe(code);
    socket.disconnect();
  }
});
