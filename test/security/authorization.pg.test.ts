/**
 * Who may do what, with whose. The table below is the rule; every route of the server's own list is tried by every role
 * with what is its own, another's, another region's and nobody's, and with every kind of token that isn't good.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TOKEN_ROLES, type Role } from '../../src/auth.ts';
import { newId } from '../../src/leasing/ids.ts';
import {
  CENTER,
  must,
  OPS,
  rideBody,
  SECRET,
  startTestApi,
  type Answer,
  type Call,
  type Method,
  type TestApi,
} from '../api/harness.ts';
import { badTokens, type BadToken } from './bad-tokens.ts';
import { operations, type Operation } from './operations.ts';
import { rowsOf } from './rows.ts';
import { setStage, type Stage } from './stage.ts';

/** Done, or refused for the state of what it is about, and not for who asks. */
const LET_THROUGH = 'let through';

/** `own`: what is the caller's; `any`: everybody's; a role that isn't named may not call at all. */
type Reach = Partial<Record<Role, 'own' | 'any'>>;
const everybody: Reach = { rider: 'own', driver: 'own', service: 'any', ops: 'any' };
const driversAndFleet: Reach = { driver: 'own', service: 'any', ops: 'any' };
const ridersAndFleet: Reach = { rider: 'own', service: 'any', ops: 'any' };
const driversAlone: Reach = { driver: 'own' };
const fleet: Reach = { service: 'any', ops: 'any' };
const operators: Reach = { ops: 'any' };

interface Rule {
  readonly may: Reach;
  /** What those who may are told of something that there isn't. */
  readonly ofNone: typeof LET_THROUGH | `${number} ${string}`;
  /** The path's parameters, and the body, for one's things. */
  readonly params?: (of: Stage) => Record<string, string>;
  readonly query?: (of: Stage) => string;
  readonly body?: (of: Stage) => unknown;
}

const region = ({ regionId }: Stage) => ({ id: regionId });
const searching = ({ searchingRide }: Stage) => ({ id: searchingRide });
const assigned = ({ assignedRide }: Stage) => ({ id: assignedRide });
const offer = ({ offer: { id } }: Stage) => ({ id });
const driver = ({ freeDriver }: Stage) => ({ id: freeDriver });
const webhook = (of: Stage) => ({ id: of.webhook });
const pair = ({ riderId, assignedDriver }: Stage) => ({ id: riderId, driverId: assignedDriver });
const lease = ({ resource }: Stage) => ({ resource });
const inRegion = ({ regionId }: Stage) => `regionId=${regionId}`;
const withToken = ({ offer: { leaseToken } }: Stage) => ({ leaseToken });
const forFreeDriver = ({ freeDriver }: Stage) => ({ driverId: freeDriver });
const reason = () => ({ reasonCode: 'attack' });
const ofLease = ({ resource, resourceToken: token }: Stage) => ({ resource, token });
const claim = ({ queue, workKey: key, claimToken: token }: Stage) => ({ queue, key, token });
const claims = (of: Stage) => ({ claims: [claim(of)] });
const policy = (extra: object) => () => ({ holdMs: 90_000, ...extra });
const newRegion = () => ({ name: 'A city', center: CENTER, radiusM: 10_000 });

const noRegion = '404 region_not_found';
const noRide = '404 ride_not_found';
const noDriver = '404 driver_not_found';
const noOffer = '404 offer_not_found';
const noWebhook = '404 webhook_not_found';
const noLease = '404 lease_not_found';

const rules: Readonly<Record<string, Rule>> = {
  putRegion: { may: operators, ofNone: LET_THROUGH, params: region, body: newRegion },
  getRegion: { may: operators, ofNone: noRegion, params: region },
  getPolicy: { may: operators, ofNone: noRegion, params: region },
  putPolicy: { may: operators, ofNone: noRegion, params: region, body: policy({}) },
  putCanary: { may: operators, ofNone: noRegion, params: region, body: policy({ share: 0.5 }) },
  getCanary: { may: operators, ofNone: noRegion, params: region },
  promoteCanary: { may: operators, ofNone: noRegion, params: region },
  deleteCanary: { may: operators, ofNone: noRegion, params: region },

  requestRide: { may: ridersAndFleet, ofNone: noRegion, body: ({ riderId, regionId }) => rideBody(riderId, regionId) },
  listRides: { may: fleet, ofNone: noRegion, query: inRegion },
  getRide: { may: everybody, ofNone: noRide, params: assigned },
  getTimeline: { may: everybody, ofNone: noRide, params: assigned },
  cancelRide: { may: everybody, ofNone: noRide, params: assigned, body: reason },
  arriveRide: { may: driversAlone, ofNone: noRide, params: assigned },
  startRide: { may: driversAlone, ofNone: noRide, params: assigned },
  completeRide: { may: driversAlone, ofNone: noRide, params: assigned },
  offerRide: { may: fleet, ofNone: noRide, params: searching, body: forFreeDriver },
  assignRide: { may: fleet, ofNone: noRide, params: searching, body: forFreeDriver },
  unassignRide: {
    may: fleet,
    ofNone: noRide,
    params: assigned,
    body: ({ assignedDriver: driverId }) => ({ driverId, reasonCode: 'attack' }),
  },
  reassignRide: {
    may: fleet,
    ofNone: noRide,
    params: assigned,
    body: ({ assignedDriver, freeDriver }) => ({
      fromDriverId: assignedDriver,
      toDriverId: freeDriver,
      reasonCode: 'attack',
    }),
  },
  holdRide: { may: fleet, ofNone: noRide, params: searching, body: reason },
  releaseRide: { may: fleet, ofNone: noRide, params: searching, body: reason },

  putDriver: { may: driversAndFleet, ofNone: noRegion, params: driver, body: ({ regionId }) => ({ regionId }) },
  getDriver: { may: driversAndFleet, ofNone: noDriver, params: driver },
  listDrivers: { may: fleet, ofNone: noRegion, query: inRegion },
  goOnline: { may: { driver: 'own', ops: 'any' }, ofNone: noDriver, params: driver },
  goOffline: { may: { driver: 'own', ops: 'any' }, ofNone: noDriver, params: driver },
  reportLocation: { may: { driver: 'own', ops: 'any' }, ofNone: noDriver, params: driver, body: () => CENTER },
  putBlock: { may: fleet, ofNone: noDriver, params: pair },
  deleteBlock: { may: fleet, ofNone: LET_THROUGH, params: pair },
  listBlocks: { may: fleet, ofNone: LET_THROUGH, params: ({ riderId }) => ({ id: riderId }) },

  getOffer: { may: driversAndFleet, ofNone: noOffer, params: offer },
  receiveOffer: { may: driversAndFleet, ofNone: noOffer, params: offer, body: withToken },
  // Operators do everything but accept for a driver.
  confirmOffer: { may: { driver: 'own', service: 'any' }, ofNone: noOffer, params: offer, body: withToken },
  declineOffer: { may: driversAndFleet, ofNone: noOffer, params: offer, body: withToken },
  releaseOffer: { may: fleet, ofNone: noOffer, params: offer, body: withToken },

  acquireLease: {
    may: fleet,
    ofNone: LET_THROUGH,
    body: ({ resource }) => ({ resource, holder: 'attacker', ttlMs: 1_000, waitMs: 0 }),
  },
  renewLeases: { may: fleet, ofNone: LET_THROUGH, body: ofLease },
  releaseLeases: { may: fleet, ofNone: LET_THROUGH, body: ofLease },
  confirmLease: { may: fleet, ofNone: LET_THROUGH, body: ofLease },
  breakLease: { may: operators, ofNone: noLease, body: lease },
  listLeases: { may: fleet, ofNone: LET_THROUGH },
  getLease: { may: fleet, ofNone: noLease, params: lease },
  listLeaseTerms: { may: fleet, ofNone: noLease, params: lease },

  addWork: {
    may: fleet,
    ofNone: LET_THROUGH,
    params: ({ queue }) => ({ queue }),
    body: ({ workKey: key }) => ({ items: [{ key, payload: 1 }] }),
  },
  nextWork: {
    may: fleet,
    ofNone: LET_THROUGH,
    params: ({ queue }) => ({ queue }),
    body: () => ({ max: 1, ttlMs: 1_000 }),
  },
  heartbeatWork: { may: fleet, ofNone: LET_THROUGH, body: (of) => ({ ...claims(of), ttlMs: 1_000 }) },
  completeWork: { may: fleet, ofNone: LET_THROUGH, body: claims },
  putBackWork: { may: fleet, ofNone: LET_THROUGH, body: claims },
  failWork: {
    may: fleet,
    ofNone: LET_THROUGH,
    body: (of) => ({ ...claim(of), error: 'x', retryInMs: 0, attemptsMax: 1 }),
  },

  putWebhook: {
    may: operators,
    ofNone: noRegion,
    params: webhook,
    body: ({ regionId }) => ({ url: 'https://attacker.example/', regionId }),
  },
  listWebhooks: { may: operators, ofNone: LET_THROUGH },
  getWebhook: { may: operators, ofNone: noWebhook, params: webhook },
  deleteWebhook: { may: operators, ofNone: noWebhook, params: webhook },
  listDeadDeliveries: { may: operators, ofNone: noWebhook, params: webhook },
  redeliver: { may: operators, ofNone: noWebhook, params: webhook },
};

type Whose = 'own' | 'another’s' | 'another region’s' | 'nobody’s';

/** What must be answered. */
function answerTo(role: Role, whose: Whose, { may, ofNone, params }: Rule): string {
  const reach = may[role];
  if (reach === undefined) return '403 forbidden';
  // A driver's id is in the path: whether there is such a driver is none of another's business.
  const isForeignDriver = role === 'driver' && params === driver && whose !== 'own';
  if (isForeignDriver) return '403 wrong_driver';
  if (whose === 'nobody’s') return ofNone;
  return whose === 'own' || reach === 'any' ? LET_THROUGH : `403 wrong_${role}`;
}

interface Theatre {
  readonly things: Readonly<Record<Whose, Stage>>;
}

let api: TestApi;
let shared: Theatre;
beforeAll(async () => {
  api = await startTestApi();
  shared = await openTheatre('shared');
});
afterAll(() => api[Symbol.asyncDispose]());

async function openTheatre(name: string): Promise<Theatre> {
  const own = await setStage(api, name);
  const other = await setStage(api, `${name}-other`, own.regionId);
  const far = await setStage(api, `${name}-far`);
  for (const { regionId } of [own, far])
    await must(
      api.call('PUT', `/v1/regions/${regionId}/policy/canary`, { ...OPS, body: { share: 0.5, holdMs: 80_000 } }),
    );
  const id = newId(1);
  const none: Stage = {
    ...own,
    regionId: `${name}-nowhere`,
    freeDriver: `${name}-nobody`,
    assignedDriver: `${name}-nobody-else`,
    searchingRide: id,
    assignedRide: id,
    offer: { id, leaseToken: own.offer.leaseToken },
    webhook: `${name}-none`,
    resource: `${name}/none`,
    queue: `${name}-none`,
  };
  return { things: { own, 'another’s': other, 'another region’s': far, 'nobody’s': none } };
}

/** The caller of the role whose things the own stage's are. */
function callerOf(role: Role, { own }: Theatre['things'] & { own: Stage }, rule: Rule): NonNullable<Call['as']> {
  if (role === 'rider') return `rider:${own.riderId}`;
  if (role !== 'driver') return `${role}:somebody`;
  if (rule.params === offer) return `driver:${own.offeredDriver}`;
  return `driver:${rule.params === assigned ? own.assignedDriver : own.freeDriver}`;
}

function requestOf(operation: Operation, rule: Rule, of: Stage): { path: string; body: unknown } {
  const filled = Object.entries(rule.params?.(of) ?? {}).reduce(
    (path, [name, value]) => path.replace(`{${name}}`, encodeURIComponent(value)),
    operation.path,
  );
  return { path: rule.query === undefined ? filled : `${filled}?${rule.query(of)}`, body: rule.body?.(of) };
}

function said({ status, body }: Answer): string {
  if (status < 300 || status === 409 || status === 422) return LET_THROUGH;
  const { code } = body as { code: string };
  // The region is there, and what was tried in it has been promoted or dropped before.
  return code === 'canary_not_found' ? LET_THROUGH : `${status} ${code}`;
}

interface Cell {
  readonly what: string;
  readonly must: string;
  readonly ask: (method?: Method) => Promise<Answer>;
}

function cellsOf(operation: Operation, rule: Rule, { things }: Theatre): Cell[] {
  return TOKEN_ROLES.flatMap((role) =>
    Object.entries(things).map(([whose, of]) => {
      const { path, body } = requestOf(operation, rule, of);
      const as = callerOf(role, things, rule);
      return {
        what: `${role}: ${whose}`,
        must: answerTo(role, whose as Whose, rule),
        ask: (method = operation.method) => api.call(method, path, { as, ...(body !== undefined && { body }) }),
      };
    }),
  );
}

const ruleOf = ({ name, method, path }: Operation): Rule => {
  const rule = rules[name];
  if (rule === undefined) throw new Error(`the table doesn’t say who may ${method} ${path} (${name})`);
  return rule;
};

test('the table has a rule for every route, and its roles are those that the description names', () => {
  expect(operations.map(({ name }) => name).toSorted()).toEqual(Object.keys(rules).toSorted());
  for (const operation of operations)
    expect(Object.keys(ruleOf(operation).may).toSorted(), operation.name).toEqual(operation.roles.toSorted());
});

describe.each(operations)('$method $path', (operation) => {
  test('is for whom the table says, with what the table says', async () => {
    const rule = ruleOf(operation);
    const theatre = operation.method === 'GET' ? shared : await openTheatre(operation.name);
    const cells = cellsOf(operation, rule, theatre);
    await api.positionsWritten();
    const before = await rowsOf(api.database.cold);
    for (const { what, must: expected, ask } of cells.filter((cell) => cell.must !== LET_THROUGH)) {
      expect(said(await ask()), what).toBe(expected);
      if (operation.method === 'GET')
        expect((await ask('HEAD')).status, `HEAD ${what}`).toBe(Number(expected.slice(0, 3)));
    }
    expect(await rowsOf(api.database.cold)).toEqual(before);
    for (const { what, must: expected, ask } of cells.filter((cell) => cell.must === LET_THROUGH)) {
      expect(said(await ask()), what).toBe(expected);
    }
  });

  test('opens to no token that isn’t good, whatever else is asked', async () => {
    const rule = ruleOf(operation);
    const { things } = shared;
    const { path, body } = requestOf(operation, rule, things.own);
    await api.positionsWritten();
    const before = await rowsOf(api.database.cold);
    for (const { what, token, code } of await tokens) {
      const headers = token === null ? {} : { authorization: `Bearer ${token}` };
      for (const sent of [body, '{']) {
        const answer = await api.call(operation.method, path, { headers, ...(sent !== undefined && { body: sent }) });
        expect(said(answer), what).toBe(`401 ${code}`);
        expect(answer.headers['www-authenticate']).toBe(token === null ? 'Bearer' : 'Bearer error="invalid_token"');
      }
    }
    expect(await rowsOf(api.database.cold)).toEqual(before);
  });
});

const tokens: Promise<BadToken[]> = badTokens(SECRET, 'somebody', 'ops');

test('a path knows no methods but its own', async () => {
  const methods = ['GET', 'POST', 'PUT', 'DELETE', 'PATCH'] as const;
  const { things } = shared;
  const byPath = Map.groupBy(operations, ({ path }) => path);
  for (const own of byPath.values()) {
    const { path } = requestOf(own[0]!, ruleOf(own[0]!), things.own);
    for (const method of methods.filter((each) => !own.some((operation) => operation.method === each)))
      expect(said(await api.call(method, path, OPS)), `${method} ${path}`).toBe('405 method_not_allowed');
  }
});
