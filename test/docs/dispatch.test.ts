import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { UNSUITABLE } from '../../domain/eligibility.ts';
import { LeaseStore } from '../../domain/lease-store.ts';
import { defaultPolicy, policyBounds } from '../../domain/policy.ts';
import { rowOf } from './rows.ts';

const page = readFileSync(new URL('../../docs/dispatch.md', import.meta.url), 'utf8');
const row = (name: string): string[] => rowOf(page, name);

it.each(Object.entries(policyBounds))(
  'the policy’s %s is described with its default and bounds',
  (setting, { min, max }) => {
    const [, value, bounds] = row(setting);
    expect(value).toBe(String(defaultPolicy[setting as keyof typeof policyBounds]));
    expect(bounds).toBe(`${min}–${max}`);
  },
);

it('the settings that aren’t numbers are described', () => {
  expect(row('matching')).toContain(`\`${defaultPolicy.matching}\``);
  expect(row('asking')).toContain(`\`${defaultPolicy.asking}\``);
  row('vehicleClasses');
});

it('the reasons for finding nobody are described, and no other', () => {
  const named = page.slice(page.indexOf('| reason'), page.indexOf('## How they are asked'));
  const described = [...named.matchAll(/^\| (`.*?) +\|/gm)].flatMap(([, cell]) => [...cell!.matchAll(/`(\w+)`/g)]);
  const known = ['nobody_near', 'taken', 'offers_used_up', ...UNSUITABLE];
  expect(described.map(([, name]) => name).toSorted()).toEqual(known.toSorted());
});

const TERMS = {
  ...defaultPolicy,
  offersMax: 2,
  parallelOffers: 1,
  deliveryTtlMs: 10,
  decisionTtlMs: 10,
  maxLifetimeMs: 20,
};

/** What can be done, by the name that the pictures have for it. */
const commands: Readonly<Record<string, (store: LeaseStore, now: number) => void>> = {
  offer: (store, now) => void store.lease({ rideId: 'r', driverId: 'd', offerId: `o${now}`, token: 't' }, TERMS, now),
  assign: (store, now) => void store.assign({ rideId: 'r', driverId: 'd', offerId: `o${now}`, token: 't' }, TERMS, now),
  accept: (store, now) => void store.confirm({ offerId: newest(store), token: 't', driverId: 'd' }, now),
  decline: (store, now) =>
    void store.giveBackOffer({ offerId: newest(store), token: 't', driverId: 'd' }, 'declined', now),
  release: (store, now) =>
    void store.giveBackOffer({ offerId: newest(store), token: 't', driverId: null }, 'withdrawn', now),
  receive: (store, now) => void store.receive({ offerId: newest(store), token: 't', driverId: 'd' }, now),
  'time is over': (store, now) => void store.expire(now + 1_000),
  cancel: (store) => void store.cancel('r', null),
  'give back': (store, now) => void store.driverCancel('r', 'd', now, TERMS),
  hold: (store, now) => void store.hold('r', TERMS, now),
  'doesn’t come': (store, now) => {
    store.flagPickup('r', newest(store), true);
    store.replaceStalled('r', newest(store), now, TERMS);
  },
  arrive: (store) => void store.advance('r', 'd', 'driver_arrived'),
  start: (store) => void store.advance('r', 'd', 'in_progress'),
  complete: (store) => void store.advance('r', 'd', 'completed'),
  'patience is over': (store, now) => store.settle('r', { offersMax: TERMS.offersMax, rescueMs: 0 }, now + 1_000_000),
};
const newest = (store: LeaseStore): string => [...store.offers.keys()].at(-1) ?? '';

const stateOf = (store: LeaseStore) => ({
  ride: store.rides.get('r')!.status,
  offerId: newest(store),
  offer: store.offers.get(newest(store))?.status,
});

/** Every way of up to `depth` commands, and the edges that they went along. */
function walk(depth: number): { rides: Set<string>; offers: Set<string> } {
  const edges = { rides: new Set<string>(), offers: new Set<string>() };
  const follow = (names: readonly string[]): void => {
    const store = new LeaseStore();
    store.requestRide('r', 'rider', 100_000);
    store.registerDriver('d');
    store.bringOnline('d');
    let before = stateOf(store);
    let after = before;
    names.forEach((name, i) => {
      before = after;
      commands[name]!(store, i);
      after = stateOf(store);
    });
    const name = names.at(-1)!;
    if (after.ride !== before.ride) edges.rides.add(`${before.ride} --> ${after.ride}: ${name}`);
    const from = after.offerId === before.offerId ? before.offer : '[*]';
    if (after.offer !== from) edges.offers.add(`${from} --> ${after.offer}: ${name}`);
    const isNews = after.ride !== before.ride || after.offer !== from || name === 'receive';
    if (names.length < depth && isNews) for (const next of Object.keys(commands)) follow([...names, next]);
  };
  for (const name of Object.keys(commands)) follow([name]);
  return edges;
}

const OVER = ['completed', 'cancelled', 'no_drivers_available'];

it('the pictures of states are what the domain does', () => {
  const { rides, offers } = walk(6);
  const pictures = [...page.matchAll(/```mermaid\n(.*?)```/gs)].map(([, text]) => text!);
  const linesOf = (picture: string): string[] =>
    picture.split('\n').flatMap((line) => (line.includes('-->') ? [line.trim()] : []));
  const ends = OVER.map((status) => `${status} --> [*]`);
  expect(linesOf(pictures[0]!).toSorted()).toEqual(['[*] --> searching: request', ...rides, ...ends].toSorted());
  const offerEnds = ['accepted', 'declined', 'expired', 'withdrawn', 'undeliverable'].map((end) => `${end} --> [*]`);
  expect(linesOf(pictures[1]!).toSorted()).toEqual([...offers, ...offerEnds].toSorted());
});
