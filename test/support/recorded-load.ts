/** A small load on the real service with the history of it: everything that a client may ask, some of it too late. */
import { createHash, randomUUID } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { vi } from 'vitest';
import { DriverClient, type ShownOffer } from '../../src/client/driver-client.ts';
import type { Assignment } from '../../src/client/contract.ts';
import { isTransient, Problem } from '../../src/client/problem.ts';
import type { Role } from '../../src/client/token.ts';
import type { HistoryCommand, HistoryLine } from '../../src/verify/history.ts';
import { CITY, openCity, type TestService } from './service.ts';

const DRIVERS = ['d1', 'd2', 'd3', 'd4', 'd5'];
const WAIT = { timeout: 20_000, interval: 20 };

/** An offer in its holder's hand. */
interface Held {
  readonly offerId: string;
  readonly rideId: string;
  readonly driverId: string;
  readonly leaseToken: string;
}

export interface RecordedLoad {
  readonly lines: readonly HistoryLine[];
  /** A lease's token, which has no place in a history. */
  readonly secret: string;
  /** Rides and offers by what became of them. */
  readonly rides: Readonly<Record<'completed' | 'cancelled' | 'givenBack' | 'pushed' | 'lapsed' | 'last', string>>;
  readonly offers: Readonly<
    Record<'confirmed' | 'declined' | 'lost' | 'released' | 'givenBack' | 'pushed' | 'lapsed' | 'taken', string>
  >;
}

type Ask = Partial<HistoryCommand> & Pick<HistoryCommand, 'command' | 'client'>;
type Answer = { readonly status: number; readonly body: Record<string, unknown> };

const sha256 = (token: string): string => createHash('sha256').update(token).digest('hex');

class Load {
  readonly lines: HistoryLine[] = [];
  readonly #service: TestService;
  #asks = 0;

  constructor(service: TestService) {
    this.#service = service;
  }

  /** Asks over REST, once, and records what was answered. */
  async rest(
    role: Role,
    sub: string,
    path: string,
    body: object | null,
    ask: Omit<Ask, 'client'>,
  ): Promise<HistoryCommand> {
    const askedAtMs = performance.now();
    const answer = await this.send(role, sub, path, body, ask.idempotencyKey);
    const isOk = answer.status < 300;
    const told = isOk ? toldBy(answer.body) : { code: String(answer.body['code']) };
    return this.record({
      client: sub,
      ...ask,
      ...told,
      askedAtMs,
      answeredAtMs: performance.now(),
      outcome: isOk ? 'ok' : 'refused',
      status: answer.status,
    });
  }

  async send(role: Role, sub: string, path: string, body: object | null, key?: string): Promise<Answer> {
    const response = await fetch(new URL(path, this.#service.urlOf('api')), {
      method: body === null ? 'GET' : 'POST',
      headers: {
        authorization: `Bearer ${await this.#service.token(role, sub)}`,
        ...(body !== null && { 'content-type': 'application/json' }),
        ...(key !== undefined && { 'idempotency-key': key }),
      },
      ...(body !== null && { body: JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Answer['body'] };
  }

  /** A confirm whose answer isn't heard: the line is cut once the records have it. */
  async loseConfirm(held: Held): Promise<HistoryCommand> {
    const askedAtMs = performance.now();
    const lost = httpRequest(new URL(`/v1/offers/${held.offerId}/confirm`, this.#service.urlOf('api')), {
      method: 'POST',
      headers: {
        authorization: `Bearer ${await this.#service.token('driver', held.driverId)}`,
        'content-type': 'application/json',
      },
    });
    lost.on('error', () => {});
    const closed = new Promise((resolve) => lost.once('close', resolve));
    lost.end(JSON.stringify({ leaseToken: held.leaseToken }));
    await this.until(held.offerId, 'accepted');
    lost.destroy();
    await closed;
    const ask = { ...asked('confirm', held), client: held.driverId, askedAtMs, answeredAtMs: null };
    return this.record({ ...ask, outcome: 'unknown', code: 'cut' });
  }

  until(offerId: string, status: string): Promise<void> {
    return vi.waitFor(async () => {
      const { body } = await this.send('service', 'fleet', `/v1/offers/${offerId}`, null);
      if (body['status'] !== status) throw new Error(`offer ${offerId} is ${String(body['status'])}`);
    }, WAIT);
  }

  record(
    command: Omit<Ask, 'client'> & Pick<HistoryCommand, 'client' | 'askedAtMs' | 'answeredAtMs' | 'outcome'>,
  ): HistoryCommand {
    const line: HistoryCommand = { kind: 'command', id: `a${++this.#asks}`, over: 'rest', ...command };
    this.lines.push(line);
    return line;
  }

  async request(key: string = randomUUID(), repeats?: string): Promise<HistoryCommand> {
    const ride = { regionId: 'city', riderId: 'r1', pickup: CITY.center, dropoff: CITY.center };
    const again = repeats === undefined ? {} : { repeats };
    return this.rest('rider', 'r1', '/v1/rides', ride, { command: 'request', idempotencyKey: key, ...again });
  }

  async cancel(rideId: string, driverId?: string): Promise<void> {
    const ask = { command: 'cancel', rideId, ...(driverId !== undefined && { driverId }) } as const;
    const [role, sub] = driverId === undefined ? (['rider', 'r1'] as const) : (['driver', driverId] as const);
    await this.rest(role, sub, `/v1/rides/${rideId}/cancel`, { reasonCode: 'changed_mind' }, ask);
  }

  /** Leases a driver by hand. */
  async offer(rideId: string, driverId: string): Promise<Held> {
    const askedAtMs = performance.now();
    const key = randomUUID();
    const { status, body } = await this.send('service', 'fleet', `/v1/rides/${rideId}/offers`, { driverId }, key);
    if (status !== 201) throw new Error(`no offer: ${JSON.stringify(body)}`);
    const held = { offerId: String(body['id']), rideId, driverId, leaseToken: String(body['leaseToken']) };
    this.record({
      client: 'fleet',
      command: 'offer',
      idempotencyKey: key,
      askedAtMs,
      answeredAtMs: performance.now(),
      outcome: 'ok',
      status,
      rideId,
      driverId,
      offerId: held.offerId,
      tokenSha256: sha256(held.leaseToken),
      fence: Number(body['fence']),
    });
    return held;
  }

  async term(
    command: 'received' | 'confirm' | 'decline' | 'release',
    held: Held,
    more: Partial<HistoryCommand> = {},
  ): Promise<HistoryCommand> {
    const [role, sub] = command === 'release' ? (['service', 'fleet'] as const) : (['driver', held.driverId] as const);
    const path = `/v1/offers/${held.offerId}/${command}`;
    return this.rest(role, sub, path, { leaseToken: held.leaseToken }, { ...asked(command, held), ...more });
  }

  async trip(rideId: string, driverId: string): Promise<void> {
    for (const command of ['arrive', 'start', 'complete'] as const) {
      await this.rest('driver', driverId, `/v1/rides/${rideId}/${command}`, {}, { command, rideId, driverId });
    }
  }
}

const asked = (command: 'received' | 'confirm' | 'decline' | 'release', { offerId, driverId, leaseToken }: Held) => ({
  command,
  offerId,
  driverId,
  tokenSha256: sha256(leaseToken),
});

/** What an answer tells that a history keeps. */
function toldBy(body: Record<string, unknown>): Partial<HistoryCommand> {
  const assignment = body['assignment'] as Assignment | null | undefined;
  if (body['riderId'] !== undefined) return { rideId: String(body['id']) };
  return assignment === undefined || assignment === null ? {} : toldByAssignment(assignment);
}

const toldByAssignment = ({ rideId, driverId, fence, assignedAt }: Assignment) => ({
  rideId,
  driverId,
  fence,
  assignedAt,
});

/** Ends with nothing left over: what still searches is cancelled. */
export async function recordLoad(service: TestService): Promise<RecordedLoad> {
  await openCity(service, [...DRIVERS, 'd6']);
  const load = new Load(service);
  const startedAt = new Date().toISOString();
  const { body: policy } = await load.send('ops', 'operator', '/v1/regions/city/policy', null);
  load.lines.push({
    kind: 'run',
    name: 'small',
    seed: '1',
    atMs: performance.now(),
    startedAt,
    regionId: 'city',
    policy,
  });
  for (const driverId of DRIVERS) {
    await load.rest('driver', driverId, `/v1/drivers/${driverId}/online`, {}, { command: 'online', driverId });
  }
  const held = await recordHeld(load);
  const lapsed = await recordLapse(load, service);
  const pushed = await recordPushed(load, service);
  const last = await load.request();
  await load.cancel(last.rideId!);
  const atMs = performance.now();
  load.lines.push({ kind: 'end', atMs, healedAtMs: atMs });
  return {
    lines: load.lines,
    secret: held.secret,
    rides: { ...held.rides, pushed: pushed.rideId, lapsed: lapsed.rideId, last: last.rideId! },
    offers: { ...held.offers, pushed: pushed.offerId, lapsed: lapsed.offerId, taken: lapsed.takenId },
  };
}

/** Offers that the fleet made by itself, and every answer to them. */
async function recordHeld(load: Load) {
  const key = randomUUID();
  const first = await load.request(key);
  await load.request(key, first.id);
  const confirmed = await load.offer(first.rideId!, 'd1');
  await load.term('received', confirmed);
  const confirm = await load.term('confirm', confirmed);
  await load.term('confirm', confirmed, { repeats: confirm.id });
  await load.term('decline', confirmed, { isStale: true });
  await load.trip(confirmed.rideId, 'd1');
  await load.cancel(confirmed.rideId);

  const second = await load.request();
  const declined = await load.offer(second.rideId!, 'd2');
  await load.term('received', declined);
  await load.term('decline', declined);
  await load.term('confirm', declined, { isStale: true });
  const lost = await load.offer(second.rideId!, 'd3');
  const unheard = await load.loseConfirm(lost);
  await load.term('confirm', lost, { repeats: unheard.id });
  await load.cancel(lost.rideId);

  const third = await load.request();
  const released = await load.offer(third.rideId!, 'd2');
  await load.term('release', released);
  const givenBack = await load.offer(third.rideId!, 'd4');
  await load.term('confirm', givenBack);
  await load.cancel(givenBack.rideId, 'd4');
  await load.cancel(givenBack.rideId);
  return {
    secret: confirmed.leaseToken,
    rides: { completed: confirmed.rideId, cancelled: lost.rideId, givenBack: givenBack.rideId },
    offers: {
      confirmed: confirmed.offerId,
      declined: declined.offerId,
      lost: lost.offerId,
      released: released.offerId,
      givenBack: givenBack.offerId,
    },
  };
}

/** A term that runs out, and a holder who goes on trying while the driver has his next. */
async function recordLapse(load: Load, service: TestService) {
  const response = await fetch(new URL('/v1/regions/city/policy', service.urlOf('api')), {
    method: 'PUT',
    headers: {
      authorization: `Bearer ${await service.token('ops', 'operator')}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify({ deliveryTtlMs: 250, pushRetryMs: 100 }),
  });
  if (!response.ok) throw new Error(await response.text());
  const ride = await load.request();
  const lapsed = await load.offer(ride.rideId!, 'd5');
  await load.until(lapsed.offerId, 'undeliverable');
  await load.term('confirm', lapsed, { isStale: true });
  await load.term('received', lapsed);
  const next = await load.request();
  const taken = await load.offer(next.rideId!, 'd5');
  await load.term('confirm', lapsed, { isStale: true });
  await load.cancel(taken.rideId);
  await load.cancel(lapsed.rideId);
  return { rideId: lapsed.rideId, offerId: lapsed.offerId, takenId: taken.offerId };
}

/** A ride by a matcher and a device. */
async function recordPushed(load: Load, service: TestService) {
  const offers: ShownOffer[] = [];
  const shown = (
    event: 'offer' | 'assignment',
    offer: Pick<ShownOffer, 'offerId' | 'rideId' | 'fence'>,
    token?: string,
  ) =>
    load.lines.push({
      kind: 'shown',
      client: 'd6',
      driverId: 'd6',
      event,
      atMs: performance.now(),
      offerId: offer.offerId,
      rideId: offer.rideId,
      fence: offer.fence,
      ...(token !== undefined && { tokenSha256: sha256(token) }),
    });
  const driver = new DriverClient({
    url: service.urlOf('gateway'),
    token: await service.token('driver', 'd6'),
    events: {
      offer: (offer) => {
        shown('offer', offer, offer.leaseToken);
        offers.push(offer);
      },
      assignment: (ride) => void shown('assignment', ride),
    },
  });
  driver.connect();
  const say = async (
    command: HistoryCommand['command'],
    ask: () => Promise<unknown>,
    about: Partial<HistoryCommand>,
  ) => {
    const askedAtMs = performance.now();
    const told = await ask().catch((error: unknown) => error);
    if (isTransient(told)) throw told as Error;
    const isOk = !(told instanceof Problem);
    const answer = told as Assignment | undefined;
    load.record({
      client: 'd6',
      over: 'socket',
      command,
      driverId: 'd6',
      ...about,
      askedAtMs,
      answeredAtMs: performance.now(),
      outcome: isOk ? 'ok' : 'refused',
      ...(isOk ? command === 'confirm' && toldByAssignment(answer!) : { code: told.code }),
    });
  };
  await say('online', () => driver.online(), {});
  await driver.location(CITY.center);
  const { rideId } = await load.request();
  await vi.waitFor(() => {
    if (!offers.some((offer) => offer.rideId === rideId)) throw new Error('no offer yet');
  }, WAIT);
  const offer = offers.find((each) => each.rideId === rideId)!;
  await say('confirm', () => driver.accept(offer), { offerId: offer.offerId, tokenSha256: sha256(offer.leaseToken) });
  await say('arrive', () => driver.arrive(offer.rideId), { rideId: offer.rideId });
  await say('start', () => driver.start(offer.rideId), { rideId: offer.rideId });
  await say('complete', () => driver.complete(offer.rideId), { rideId: offer.rideId });
  await say('offline', () => driver.offline(), {});
  driver.close();
  return { rideId: offer.rideId, offerId: offer.offerId };
}
