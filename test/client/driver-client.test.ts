import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  type AssignedRide,
  DriverClient,
  type DriverEvents,
  type DriverState,
  type Offer,
  type ShownOffer,
} from '../../src/client/driver-client.ts';
import { Problem, Unreachable } from '../../src/client/problem.ts';
import { DriverServer } from './driver-server.ts';

const offer: Offer = {
  offerId: 'offer-1',
  rideId: 'ride-1',
  leaseToken: 'token-1',
  fence: 7,
  expiresInMs: 15_000,
  pickup: { lat: 1, lng: 2 },
  dropoff: { lat: 3, lng: 4 },
  pickupEtaS: 90,
};
const assignment = {
  rideId: 'ride-1',
  driverId: 'driver-1',
  offerId: 'offer-1',
  fence: 7,
  assignedAt: '2026-01-01T00:00:00.000Z',
};
const idle: DriverState = { status: 'available', offer: null, assignment: null };

const clients: DriverClient[] = [];
afterEach(() => {
  for (const client of clients.splice(0)) client.close();
});

/** A connected app that writes down what it is told. */
async function connect(server: DriverServer, more: DriverEvents = {}) {
  const seen = {
    states: [] as DriverState[],
    offers: [] as ShownOffer[],
    withdrawn: [] as string[],
    lost: [] as Error[],
  };
  const client = new DriverClient({
    url: server.url,
    token: 'a token',
    events: {
      state: (state) => seen.states.push(state),
      offer: (shown) => seen.offers.push(shown),
      offerWithdrawn: ({ offerId }) => seen.withdrawn.push(offerId),
      disconnected: (reason) => seen.lost.push(reason),
      ...more,
    },
  });
  clients.push(client);
  client.connect();
  await vi.waitFor(() => expect(seen.states).toHaveLength(1));
  return { client, seen };
}

const push = (server: DriverServer, pushed: Offer = offer): Promise<unknown> =>
  server.last.timeout(2_000).emitWithAck('offer', pushed);

describe('offers', () => {
  it('are acknowledged at each push and shown once', async () => {
    await using server = await DriverServer.listen();
    const { seen } = await connect(server);
    await push(server);
    await push(server);
    await push(server, { ...offer, offerId: 'offer-2' });
    expect(seen.offers.map(({ offerId }) => offerId)).toEqual(['offer-1', 'offer-2']);
  });

  it('are decided within a window that is counted from receipt, on a clock that doesn’t jump', async () => {
    await using server = await DriverServer.listen();
    const { seen } = await connect(server);
    const beforeMs = performance.now();
    await push(server);
    const windowMs = (seen.offers[0]?.decideByMs ?? 0) - 15_000;
    expect(windowMs).toBeGreaterThanOrEqual(beforeMs);
    expect(windowMs).toBeLessThanOrEqual(performance.now());
  });

  it('keep the window of their first receipt when they are pushed again', async () => {
    await using server = await DriverServer.listen();
    const { seen } = await connect(server);
    await push(server);
    const decideByMs = seen.offers[0]?.decideByMs;
    await push(server, { ...offer, expiresInMs: 60_000 });
    expect(seen.offers.map((shown) => shown.decideByMs)).toEqual([decideByMs]);
  });

  it('leave the screen when they are withdrawn', async () => {
    await using server = await DriverServer.listen();
    const { seen } = await connect(server);
    await push(server);
    server.last.emit('offer:withdrawn', { offerId: 'offer-1', reason: 'ride_cancelled' });
    await vi.waitFor(() => expect(seen.withdrawn).toEqual(['offer-1']));
  });
});

describe('reconnecting', () => {
  it('shows the offer that the state brings, once, also when it is pushed as well', async () => {
    await using server = await DriverServer.listen();
    const { client, seen } = await connect(server);
    server.onConnection = (socket) => {
      socket.emit('state', { ...idle, status: 'leased', offer });
      socket.emit('offer', offer);
    };
    client.interrupt(0);
    await vi.waitFor(() => expect(seen.states).toHaveLength(2));
    // Answered after everything that was sent before it.
    server.handlers['location'] = () => ({});
    await client.location({ lat: 1, lng: 1 });
    expect(seen.offers.map(({ offerId }) => offerId)).toEqual(['offer-1']);
  });

  it('takes an offer off the screen that the state no longer has', async () => {
    await using server = await DriverServer.listen();
    const { seen } = await connect(server);
    await push(server);
    server.last.disconnect(true);
    await vi.waitFor(() => expect(seen.withdrawn).toEqual(['offer-1']));
    expect(seen.lost[0]).toBeInstanceOf(Unreachable);
    expect(seen.states).toHaveLength(2);
  });

  it('moves on to the next address when one is gone', async () => {
    await using standby = await DriverServer.listen();
    const states: DriverState[] = [];
    const first = await DriverServer.listen();
    const client = new DriverClient({
      url: [first.url, standby.url],
      token: 't',
      events: { state: (state) => states.push(state) },
    });
    clients.push(client);
    client.connect();
    await vi.waitFor(() => expect(states).toHaveLength(1));
    await first[Symbol.asyncDispose]();
    await vi.waitFor(() => expect(standby.sockets).toHaveLength(1), { timeout: 5_000 });
  });

  it('asks the token source again', async () => {
    await using server = await DriverServer.listen();
    const tokens: string[] = [];
    server.onConnection = (socket) => {
      tokens.push(socket.handshake.auth.token as string);
      socket.emit('state', idle);
    };
    let made = 0;
    const client = new DriverClient({ url: server.url, token: async () => `token ${++made}`, events: {} });
    clients.push(client);
    client.connect();
    await vi.waitFor(() => expect(tokens).toHaveLength(1));
    client.interrupt(0);
    await vi.waitFor(() => expect(tokens).toEqual(['token 1', 'token 2']));
  });
});

describe('commands', () => {
  it('answer with the data, or throw the refusal with its code', async () => {
    await using server = await DriverServer.listen();
    const { client } = await connect(server);
    server.handlers['accept'] = () => ({ assignment });
    server.handlers['decline'] = () => ({ refused: 'lease_expired' });
    await expect(client.accept(offer)).resolves.toEqual(assignment);
    const refusal = await client.decline(offer).catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(Problem);
    expect(refusal).toMatchObject({ code: 'lease_expired', status: null });
  });

  it('send an accept whose answer was lost again over the next connection, with the same token', async () => {
    await using server = await DriverServer.listen();
    const { client } = await connect(server);
    server.handlers['accept'] = (socket) => {
      server.handlers['accept'] = () => ({ assignment });
      socket.conn.close(true);
      return { assignment };
    };
    await expect(client.accept(offer)).resolves.toEqual(assignment);
    const accepts = server.heard.filter(({ event }) => event === 'accept').map(({ data }) => data);
    const answer = { offerId: 'offer-1', leaseToken: 'token-1' };
    expect(accepts).toEqual([answer, answer]);
    expect(server.sockets).toHaveLength(2);
  });

  it('wait until the new connection has brought the state', async () => {
    await using server = await DriverServer.listen();
    const { client } = await connect(server);
    server.handlers['complete'] = () => ({});
    const connected = Promise.withResolvers<void>();
    server.onConnection = () => connected.resolve();
    client.interrupt(0);
    const done = client.complete('ride-1');
    await connected.promise;
    expect(server.heard.some(({ event }) => event === 'complete')).toBe(false);
    server.last.emit('state', idle);
    await done;
  });

  it('are asked again while the service is busy, and not when it means no', async () => {
    await using server = await DriverServer.listen();
    const { client } = await connect(server);
    const answers = ['busy', 'database_unavailable', 'wrong_phase'];
    server.handlers['start'] = () => ({ refused: answers.shift() });
    await expect(client.start('ride-1')).rejects.toMatchObject({ code: 'wrong_phase' });
    expect(answers).toEqual([]);
  });

  it('fail at once when the client is closed', async () => {
    await using server = await DriverServer.listen();
    const { client } = await connect(server);
    const waiting = client.online();
    await vi.waitFor(() => expect(server.heard).toHaveLength(1));
    client.close();
    await expect(waiting).rejects.toBeInstanceOf(Unreachable);
    await expect(client.online()).rejects.toBeInstanceOf(Unreachable);
  });
});

it('passes on what happens to the ride', async () => {
  await using server = await DriverServer.listen();
  const told: unknown[] = [];
  await connect(server, {
    assignment: (ride: AssignedRide) => told.push(ride),
    rideCancelled: (cancelled) => told.push(cancelled),
  });
  const ride = { ...assignment, pickup: offer.pickup, dropoff: offer.dropoff };
  const cancelled = { rideId: 'ride-1', reasonCode: 'changed_mind', source: 'rider' };
  server.last.emit('assignment', ride);
  server.last.emit('ride:cancelled', cancelled);
  await vi.waitFor(() => expect(told).toEqual([ride, cancelled]));
});

it('says with the service’s own code why it may not connect', async () => {
  await using server = await DriverServer.listen();
  server.refuse('token_expired');
  const lost: Error[] = [];
  const client = new DriverClient({
    url: server.url,
    token: 't',
    events: { disconnected: (reason) => lost.push(reason) },
  });
  clients.push(client);
  client.connect();
  await vi.waitFor(() => expect(lost[0]).toMatchObject({ name: 'Problem', code: 'token_expired' }));
});
