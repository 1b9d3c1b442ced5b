/** Who may connect to the drivers' socket, and what a driver may do there with what isn't the driver's own. */
import type { Socket } from 'socket.io-client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { signToken } from '../../src/client/token.ts';
import { connectDatabase, type Database } from '../../src/database/connection.ts';
import { DRIVER_EVENTS } from '../../src/gateway/driver-events.ts';
import { newId } from '../../src/leasing/ids.ts';
import type { Role } from '../../src/auth.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { badTokens } from './bad-tokens.ts';
import { connectDriver, openSocket } from './driver-socket.ts';
import { rowsOf } from './rows.ts';
import { setStage, type Stage, type StagedApi } from './stage.ts';

let service: TestService;
let database: Database;
let staged: StagedApi;
beforeAll(async () => {
  // Without a matcher nothing happens but what the test does.
  service = await startTestService({ processes: [['api', 'gateway']] });
  database = connectDatabase(service.databaseUrl, { hotConnections: 1, coldConnections: 1 });
  staged = {
    positionsWritten: async () => {},
    call: async (method, path, { as = 'ops:nobody', body } = {}) => {
      const [role, sub] = as.split(':') as [Role, string];
      const response = await fetch(`${service.urlOf('api')}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${await service.token(role, sub)}`,
          ...(body !== undefined && { 'content-type': 'application/json' }),
        },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      return { status: response.status, headers: {}, body: await response.json() };
    },
  };
});
afterAll(async () => {
  await database.close();
  await service[Symbol.asyncDispose]();
});

/** Why a connection was refused. */
async function refusalOf(namespace: string, auth: object): Promise<string> {
  const socket = openSocket(service, namespace, auth);
  const error = await new Promise<Error & { data?: { code: string } }>((resolve, reject) => {
    socket.once('connect_error', resolve);
    socket.once('connect', () => reject(new Error('it was let in')));
  });
  socket.disconnect();
  return error.data?.code ?? error.message;
}

test('nobody connects without a driver’s good token', async () => {
  await setStage(staged, 'door');
  const tokens = await badTokens(service.secret, 'door-free', 'driver');
  for (const { what, token, code } of tokens)
    expect(await refusalOf('/drivers', token === null ? {} : { token }), what).toBe(code);
  for (const role of ['rider', 'service', 'ops'] as const)
    expect(await refusalOf('/drivers', { token: await service.token(role, 'door-free') }), role).toBe('forbidden');
  expect(await refusalOf('/drivers', { token: await service.token('driver', 'stranger') })).toBe('driver_not_found');
  for (const token of [7, null, ['x'], { length: 1 }])
    expect(await refusalOf('/drivers', { token })).toBe('token_missing');
});

test('there is no other door', async () => {
  const token = await service.token('driver', 'door-free');
  expect(await refusalOf('/', { token })).toBe('forbidden');
  expect(await refusalOf('/admin', { token })).toBe('Invalid namespace');
});

type Whose = 'own' | 'another’s' | 'another region’s' | 'nobody’s';
/** What must be answered. Things are named by ids; what is about the driver alone can't be another's. */
const byOffer: Record<Whose, string> = {
  own: 'ok',
  'another’s': 'wrong_driver',
  'another region’s': 'wrong_driver',
  'nobody’s': 'offer_not_found',
};
const byRide: Record<Whose, string> = {
  own: 'ok',
  'another’s': 'wrong_driver',
  'another region’s': 'wrong_driver',
  'nobody’s': 'ride_not_found',
};
const rules: Readonly<Record<string, Record<Whose, string> | 'own only'>> = {
  online: 'own only',
  offline: 'own only',
  location: 'own only',
  accept: byOffer,
  decline: byOffer,
  arrive: byRide,
  start: byRide,
  complete: byRide,
  cancel: byRide,
};

/** Everything but who was seen when. */
async function rows(): Promise<Record<string, string>> {
  const { driver_presence: _seen, presence_epochs: _since, ...others } = await rowsOf(database.cold);
  return others;
}

async function answerOf(socket: Socket, event: string, data: unknown): Promise<string> {
  const answer = (await socket.timeout(5_000).emitWithAck(event, data)) as { ok: boolean; error?: { code: string } };
  return answer.ok ? 'ok' : answer.error!.code;
}

const ofOffer = ({ offer: { id: offerId, leaseToken } }: Stage) => ({ offerId, leaseToken });
const ofRide = ({ assignedRide: rideId }: Stage) => ({ rideId });

test('every event is for what is the driver’s own, whoever’s token or id is named', async () => {
  expect([...DRIVER_EVENTS].toSorted()).toEqual(Object.keys(rules).toSorted());
  const own = await setStage(staged, 'event');
  const near = await setStage(staged, 'event-near', own.regionId);
  const far = await setStage(staged, 'event-far');
  const id = newId(1);
  const none = { ...own, offer: { ...own.offer, id }, assignedRide: id };
  const things: Record<Whose, Stage> = { own, 'another’s': near, 'another region’s': far, 'nobody’s': none };
  for (const [event, rule] of Object.entries(rules)) {
    if (rule === 'own only') continue;
    const aboutOffer = rule === byOffer;
    const socket = await connectDriver(service, aboutOffer ? own.offeredDriver : own.assignedDriver);
    const before = await rows();
    for (const whose of ['another’s', 'another region’s', 'nobody’s'] as const) {
      const data = aboutOffer ? ofOffer(things[whose]) : ofRide(things[whose]);
      const asked = event === 'cancel' ? { ...data, reasonCode: 'attack' } : data;
      expect(await answerOf(socket, event, asked), `${event} ${whose}`).toBe(rule[whose]);
    }
    if (aboutOffer) {
      const stolen = { offerId: own.offer.id, leaseToken: near.offer.leaseToken };
      expect(await answerOf(socket, event, stolen), `${event} with another’s token`).toBe('wrong_token');
    }
    expect(await rows(), event).toEqual(before);
    socket.disconnect();
  }
  // The same with what is one's own is done: the refusals above were for whose it was.
  const decider = await connectDriver(service, own.offeredDriver);
  expect(await answerOf(decider, 'accept', ofOffer(own))).toBe('ok');
  decider.disconnect();
  const driver = await connectDriver(service, own.assignedDriver);
  for (const event of ['arrive', 'start', 'complete']) expect(await answerOf(driver, event, ofRide(own))).toBe('ok');
  driver.disconnect();
});

test('a connection ends with its token', async () => {
  const { freeDriver } = await setStage(staged, 'ending');
  const token = await signToken({ secret: service.secret, sub: freeDriver, role: 'driver', ttlS: 4 });
  const socket = openSocket(service, '/drivers', { token });
  const reason = await new Promise((resolve) => socket.once('disconnect', resolve));
  expect(reason).toBe('transport close');
  expect(await refusalOf('/drivers', { token })).toBe('token_expired');
});
