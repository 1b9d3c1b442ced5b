/** A lease token that isn't the term's own opens nothing: guessed, bent, of another offer, of an older term. */
import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  makeOffer,
  must,
  openDriver,
  openRegion,
  requestRide,
  SERVICE,
  startTestApi,
  type Call,
  type TestApi,
} from '../api/harness.ts';
import { rowsOf } from './rows.ts';
import { setStage } from './stage.ts';

const VERBS = ['received', 'confirm', 'decline', 'release'] as const;
type Verb = (typeof VERBS)[number];

/** Whoever may use the verb at all: a driver never releases. */
const callersOf = (verb: Verb, driverId: string): NonNullable<Call['as']>[] =>
  verb === 'release' ? ['service:backend'] : [`driver:${driverId}`, 'service:backend'];

async function expectRefused(
  api: TestApi,
  offerId: string,
  driverId: string,
  tokens: readonly string[],
  says: string,
): Promise<void> {
  const before = await rowsOf(api.database.cold);
  for (const verb of VERBS) {
    for (const as of callersOf(verb, driverId)) {
      for (const leaseToken of tokens) {
        const { status, body } = await api.call('POST', `/v1/offers/${offerId}/${verb}`, { as, body: { leaseToken } });
        expect(`${status} ${body.code}`, `${verb} by ${as} with ${leaseToken}`).toBe(says);
      }
    }
  }
  expect(await rowsOf(api.database.cold)).toEqual(before);
}

const guesses = (count: number): string[] => Array.from({ length: count }, () => randomBytes(16).toString('base64url'));

/** As near to the token as a guess can be. */
function bent(token: string): string[] {
  const otherEnd = token.endsWith('A') ? 'Q' : 'A';
  const swapped = token
    .split('')
    .map((char) => (char === char.toUpperCase() ? char.toLowerCase() : char.toUpperCase()));
  return [
    token.slice(0, -1),
    `${token}A`,
    `${token.slice(0, -1)}${otherEnd}`,
    `${otherEnd}${token.slice(1)}`,
    swapped.join(''),
    token.split('').toReversed().join(''),
    `${token}${token}`,
  ].filter((each) => each !== token);
}

describe('a token', () => {
  test('that is guessed, or bent, is refused by every verb, changes nothing, and spoils nothing', async () => {
    await using api = await startTestApi();
    const { offer, offeredDriver } = await setStage(api, 'guess');
    await expectRefused(api, offer.id, offeredDriver, [...guesses(20), ...bent(offer.leaseToken)], '403 wrong_token');
    const { leaseToken } = offer;
    await must(
      api.call('POST', `/v1/offers/${offer.id}/confirm`, { as: `driver:${offeredDriver}`, body: { leaseToken } }),
    );
    // Also after the end nobody learns from a guess how it ended.
    await expectRefused(api, offer.id, offeredDriver, guesses(2), '403 wrong_token');
  });

  test('of another offer, or of anything else that is leased, is refused', async () => {
    await using api = await startTestApi();
    const own = await setStage(api, 'own');
    const near = await setStage(api, 'near', own.regionId);
    const far = await setStage(api, 'far');
    const others = [near, far].flatMap(({ offer, pastOffer }) => [offer.leaseToken, pastOffer.leaseToken]);
    const kin = [own.pastOffer.leaseToken, own.resourceToken, own.claimToken];
    await expectRefused(api, own.offer.id, own.offeredDriver, [...others, ...kin], '403 wrong_token');
  });

  test('of an older term of the same driver and ride opens neither the newer term nor its own', async () => {
    await using api = await startTestApi();
    await openRegion(api);
    await openDriver(api, 'd1');
    const rideId = await requestRide(api);
    const older = await makeOffer(api, rideId, 'd1');
    await must(
      api.call('POST', `/v1/offers/${older.id}/release`, { ...SERVICE, body: { leaseToken: older.leaseToken } }),
    );
    const newer = await makeOffer(api, rideId, 'd1');
    await expectRefused(api, newer.id, 'd1', [older.leaseToken], '403 wrong_token');
    const before = await rowsOf(api.database.cold);
    for (const verb of ['received', 'confirm', 'decline'] as const) {
      const body = { leaseToken: older.leaseToken };
      const answer = await api.call('POST', `/v1/offers/${older.id}/${verb}`, { as: 'driver:d1', body });
      expect(`${answer.status} ${answer.body.code}`, verb).toBe('409 lease_lost');
    }
    expect(await rowsOf(api.database.cold)).toEqual(before);
  });

  test('in another driver’s hands opens nothing, though it is the right one', async () => {
    await using api = await startTestApi();
    const { offer, freeDriver } = await setStage(api, 'thief');
    const before = await rowsOf(api.database.cold);
    for (const verb of ['received', 'confirm', 'decline'] as const) {
      const body = { leaseToken: offer.leaseToken };
      const answer = await api.call('POST', `/v1/offers/${offer.id}/${verb}`, { as: `driver:${freeDriver}`, body });
      expect(`${answer.status} ${answer.body.code}`, verb).toBe('403 wrong_driver');
    }
    expect(await rowsOf(api.database.cold)).toEqual(before);
  });

  test('of a resource lease or a claim is no other’s', async () => {
    await using api = await startTestApi();
    const own = await setStage(api, 'own');
    const other = await setStage(api, 'other');
    const before = await rowsOf(api.database.cold);
    for (const token of [...guesses(5), ...bent(own.resourceToken), other.resourceToken, own.claimToken]) {
      const claim = { resource: own.resource, token };
      for (const verb of ['renew', 'release']) {
        const { body } = await api.call('POST', `/v1/leases/${verb}`, { ...SERVICE, body: claim });
        expect(body.results, verb).toMatchObject([{ refused: 'lease_lost' }]);
      }
      expect((await api.call('POST', '/v1/leases/confirm', { ...SERVICE, body: claim })).body.code).toBe('lease_lost');
    }
    for (const token of [...guesses(5), ...bent(own.claimToken), other.claimToken, own.resourceToken]) {
      const claims = [{ queue: own.queue, key: own.workKey, token }];
      for (const [verb, more] of [
        ['heartbeat', { ttlMs: 1_000 }],
        ['complete', {}],
        ['put-back', {}],
      ] as const) {
        const { body } = await api.call('POST', `/v1/claims/${verb}`, { ...SERVICE, body: { claims, ...more } });
        expect(body.results, verb).toEqual([{ refused: 'claim_lost' }]);
      }
    }
    expect(await rowsOf(api.database.cold)).toEqual(before);
  });
});

test('the owner’s token is in the owner’s own offer, and in nobody else’s view', async () => {
  await using api = await startTestApi();
  const { offer, offeredDriver, offeredRide, regionId, riderId } = await setStage(api, 'seen');
  const shown = async (as: NonNullable<Call['as']>, path: string): Promise<boolean> =>
    JSON.stringify((await must(api.call('GET', path, { as }))).body).includes(offer.leaseToken);
  expect(await shown(`driver:${offeredDriver}`, `/v1/offers/${offer.id}`)).toBe(true);
  expect(await shown(`driver:${offeredDriver}`, `/v1/drivers/${offeredDriver}`)).toBe(true);
  for (const as of ['service:backend', 'ops:operator'] as const) {
    for (const path of [
      `/v1/offers/${offer.id}`,
      `/v1/drivers/${offeredDriver}`,
      `/v1/drivers?regionId=${regionId}`,
      `/v1/rides/${offeredRide}`,
      `/v1/rides/${offeredRide}/timeline`,
      `/v1/rides?regionId=${regionId}`,
    ])
      expect(await shown(as, path), `${as} ${path}`).toBe(false);
  }
  expect(await shown(`rider:${riderId}`, `/v1/rides/${offeredRide}`)).toBe(false);
  expect(await shown(`rider:${riderId}`, `/v1/rides/${offeredRide}/timeline`)).toBe(false);
});

/**
 * A comparison that ends at the first byte that differs tells how far a guess was right. Here both sides are SHA-256
 * digests: what a guess's digest begins with can't be steered, so what its time tells leads nowhere.
 */
test('the database compares digests of tokens, never tokens', async () => {
  await using api = await startTestApi();
  const functions = await api.database.cold<{ source: string }[]>`
    select p.prosrc as source from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'leasing' and p.prosrc ~ 'token'`;
  const source = functions.map((each) => each.source).join('\n');
  expect(source.match(/sha256\(convert_to\(/g)!.length).toBeGreaterThan(5);
  const name = String.raw`\b(?:\w+\.)?\w*tokens?\b(?:\[[^\]]*\])?`;
  const equals = String.raw`\s*(?:=|<>|is (?:not )?distinct from)\s*`;
  const compared = source.match(new RegExp(String.raw`${name}${equals}[\w.]+|[\w.]+${equals}${name}`, 'g'));
  // Two assignments: what is granted, and what is over.
  expect(new Set(compared)).toEqual(new Set(['lease_token = f.token', 'lease_token = null']));
});
