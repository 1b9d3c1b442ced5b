/**
 * Requests made from the API's description, right ones and spoiled ones, for every operation. The harness holds each
 * answer against the description; here stands what else must be true of it. `CABRANK_FUZZ_REQUESTS` says how many.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isProblemCode, PROBLEM_TYPE, problems } from '../../src/api/problem.ts';
import { must, OPS, startTestApi, type Answer, type Call, type TestApi } from '../api/harness.ts';
import { judgeOf, operations, type Operation } from './operations.ts';
import { requestFor, spoiledRequestFor, type FuzzRequest, type Known } from './requests.ts';
import { rowsOf } from './rows.ts';
import { setStage, type Stage } from './stage.ts';

const DEFAULT_REQUESTS = 2_500;
const REQUESTS = Number(process.env['CABRANK_FUZZ_REQUESTS'] ?? DEFAULT_REQUESTS);
/** So that a run by default is always the same; longer ones look elsewhere each time, and print the seed of a failure. */
const DEFAULT_SEED = 1;
const RUNS = Math.max(1, Math.ceil(REQUESTS / operations.length / 3));

/** Many times what they take on a machine that has nothing else to do. */
const TIMEOUT_MS = 60_000 + 100 * RUNS;

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api[Symbol.asyncDispose]());

const knownOf = (stage: Stage): Known => ({
  'regions.id': [stage.regionId],
  'rides.id': [stage.searchingRide, stage.offeredRide, stage.assignedRide],
  'drivers.id': [stage.freeDriver, stage.offeredDriver, stage.assignedDriver],
  'offers.id': [stage.offer.id, stage.pastOffer.id],
  'riders.id': [stage.riderId],
  'webhooks.id': [stage.webhook],
  regionId: [stage.regionId],
  riderId: [stage.riderId],
  driverId: [stage.freeDriver, stage.offeredDriver, stage.assignedDriver],
  fromDriverId: [stage.assignedDriver],
  toDriverId: [stage.freeDriver],
  pickup: [{ lat: 40.76, lng: -73.97 }],
  leaseToken: [stage.offer.leaseToken],
  resource: [stage.resource, `${stage.name}/free`],
  token: [stage.resourceToken, stage.claimToken],
  queue: [stage.queue],
  key: [stage.workKey],
  url: ['https://backend.example/hook'],
  waitMs: [0],
});

interface Succeeding {
  /** Narrower than what is known otherwise. */
  readonly known?: (stage: Stage) => Known;
  readonly before?: (stage: Stage) => Promise<unknown>;
  /** Tried first. */
  readonly body?: (stage: Stage) => object;
}

/** What some operations need to be taken at all, among requests drawn at random. */
const succeeding: Readonly<Record<string, Succeeding>> = {
  acquireLease: { body: ({ name }) => ({ resource: `${name}/free`, holder: 'fuzzer', ttlMs: 60_000 }) },
  getCanary: { before: putCanary },
  promoteCanary: { before: putCanary },
  startRide: { before: (stage) => step(stage, 'arrive') },
  completeRide: { before: (stage) => step(stage, 'arrive').then(() => step(stage, 'start')) },
  unassignRide: {
    known: ({ assignedRide, assignedDriver }) => ({ 'rides.id': [assignedRide], driverId: [assignedDriver] }),
  },
  reassignRide: { known: ({ assignedRide }) => ({ 'rides.id': [assignedRide] }) },
};

function putCanary({ regionId }: Stage): Promise<Answer> {
  return must(
    api.call('PUT', `/v1/regions/${regionId}/policy/canary`, { ...OPS, body: { share: 0.5, holdMs: 90_000 } }),
  );
}

function step({ assignedRide, assignedDriver }: Stage, name: string): Promise<Answer> {
  return must(api.call('POST', `/v1/rides/${assignedRide}/${name}`, { as: `driver:${assignedDriver}` }));
}

function callerOf({ roles }: Operation, stage: Stage): NonNullable<Call['as']> {
  if (roles.includes('ops')) return 'ops:fuzzer';
  if (roles.includes('service')) return 'service:fuzzer';
  return `driver:${stage.assignedDriver}`;
}

const send = ({ method, path, headers, body, type }: FuzzRequest, as: NonNullable<Call['as']>): Promise<Answer> =>
  api.call(method, path, { as, body, headers: { ...headers, ...(body !== undefined && { 'content-type': type }) } });

/** Whatever was asked: an answer of ours, and none that says something broke. */
function expectSoundAnswer({ status, headers, body }: Answer): void {
  expect(status, JSON.stringify(body)).toBeLessThan(500);
  if (status < 400) return;
  const { code } = body as { code: string };
  expect(headers['content-type']).toContain(PROBLEM_TYPE);
  expect(isProblemCode(code) && problems[code].status, code).toBe(status);
}

/** As the service reads it: RFC 8259 lets it pass over a byte order mark. */
const parsed = (body: string | undefined): { value: unknown } | null => {
  try {
    return { value: body === undefined || body === '' ? undefined : JSON.parse(body.replace(/^\ufeff/, '')) };
  } catch {
    return null;
  }
};

const parametersOf = (numRuns: number): fc.Parameters<[FuzzRequest]> => ({
  numRuns,
  ...(REQUESTS === DEFAULT_REQUESTS && { seed: DEFAULT_SEED }),
});

const stages = new Map<string, Promise<Stage>>();
function stageOf({ name }: Operation): Promise<Stage> {
  const stage = stages.get(name) ?? setStage(api, name);
  stages.set(name, stage);
  return stage;
}

describe.each(operations)('$method $path', { timeout: TIMEOUT_MS }, (operation) => {
  test.runIf(operation.body !== null)('refuses what isn’t as described, and nothing changes', async () => {
    const stage = await stageOf(operation);
    const isAllowed = judgeOf(operation.body!);
    const isWrong = ({ body }: FuzzRequest): boolean => {
      const read = parsed(body);
      return read === null || (read.value !== undefined && !isAllowed(read.value));
    };
    await api.positionsWritten();
    const before = await rowsOf(api.database.cold);
    const asked = fc.asyncProperty(spoiledRequestFor(operation, knownOf(stage)).filter(isWrong), async (request) => {
      const answer = await send(request, callerOf(operation, stage));
      expectSoundAnswer(answer);
      expect(answer.status, JSON.stringify(answer.body)).toBeOneOf([400, 404, 413, 415, 422]);
    });
    await fc.assert(asked, parametersOf(RUNS));
    expect(await rowsOf(api.database.cold)).toEqual(before);
  });

  test('answers what is right as described', async () => {
    const stage = await stageOf(operation);
    const { known, before, body } = succeeding[operation.name] ?? {};
    await before?.(stage);
    const { method, path } = operation;
    const first = { method, path, headers: {}, body: JSON.stringify(body?.(stage)), type: 'application/json' };
    let taken = 0;
    const requests = requestFor(operation, { ...knownOf(stage), ...known?.(stage) });
    const asked = fc.asyncProperty(requests, async (request) => {
      const answer = await send(request, callerOf(operation, stage));
      expectSoundAnswer(answer);
      if (answer.status < 300) taken += 1;
    });
    await fc.assert(asked, { ...parametersOf(RUNS), ...(body !== undefined && { examples: [[first]] }) });
    expect(taken, 'nothing was taken').toBeGreaterThan(0);
  });

  test('answers what is odd soundly', async () => {
    const stage = await stageOf(operation);
    const asked = fc.asyncProperty(spoiledRequestFor(operation, knownOf(stage)), async (request) => {
      expectSoundAnswer(await send(request, callerOf(operation, stage)));
    });
    await fc.assert(asked, parametersOf(RUNS));
  });
});
