/** What riders and drivers are going to do, drawn from the seed alone: the same seed gives the same plans in any run. */
import type { Random } from '../../domain/random.ts';
import type { Policy } from '../../domain/policy.ts';
import type { Position } from '../../src/client/contract.ts';

/** Terms of a second or so, so that much begins and ends; what isn't named is the default policy's. */
export const POLICY: Partial<Policy> = {
  roundIntervalMs: 50,
  patienceMs: 12_000,
  parallelOffers: 2,
  retryMs: 100,
  retryMaxMs: 500,
  searchRadiusM: 8_000,
  declinedExclusionMs: 2_000,
  lapsedExclusionMs: 1_000,
  deliveryTtlMs: 800,
  decisionTtlMs: 1_000,
  maxLifetimeMs: 1_900,
  pushRetryMs: 200,
  positionIntervalMs: 1_000,
  positionStaleMs: 5_000,
  presenceGraceMs: 10_000,
};

export const REGION = { name: 'Chaos', center: { lat: 48, lng: 7.85 }, radiusM: 6_000 } as const;
const SPREAD_DEG = 0.02;

export const placeIn = (random: Random): Position => ({
  lat: REGION.center.lat + (2 * random.next() - 1) * SPREAD_DEG,
  lng: REGION.center.lng + (2 * random.next() - 1) * SPREAD_DEG,
});

/** What becomes of an offer on a device. */
export const ANSWERS = [
  'accept',
  /** The same connection, twice at once. */
  'accept-twice',
  'accept-over-socket-and-rest',
  'accept-on-two-sockets',
  'accept-and-decline',
  'decline',
  'ignore',
  /** Never acknowledged: a dead phone. */
  'deaf',
  /** Accepts once its term is surely over. */
  'accept-late',
  /** Accepts, and the receipt arrives after it. */
  'accept-before-receipt',
  'go-offline',
] as const;
export type AnswerKind = (typeof ANSWERS)[number];

const ANSWER_WEIGHTS: Readonly<Record<AnswerKind, number>> = {
  accept: 40,
  'accept-twice': 10,
  'accept-over-socket-and-rest': 10,
  'accept-on-two-sockets': 5,
  'accept-and-decline': 4,
  decline: 6,
  ignore: 4,
  deaf: 2,
  'accept-late': 12,
  'accept-before-receipt': 5,
  'go-offline': 2,
};

export interface AnswerPlan {
  readonly answer: AnswerKind;
  readonly over: 'rest' | 'socket';
  readonly thinkMs: number;
  /** Of `accept-late`: after the last moment at which the term may have ended. */
  readonly lateMs: number;
  /** From the pick-up to the drop-off; some are longer than any term of a lease. */
  readonly tripMs: number;
  /** The steps of the trip asked in the wrong order first. */
  readonly isOutOfOrder: boolean;
}

export function planAnswer(random: Random): AnswerPlan {
  return {
    answer: weighted(random, ANSWERS, ANSWER_WEIGHTS),
    over: random.chance(0.5) ? 'rest' : 'socket',
    thinkMs: random.chance(0.1) ? random.int(400, 1_100) : random.int(0, 120),
    lateMs: random.int(150, 1_500),
    tripMs: random.chance(0.04) ? random.int(2_000, 4_000) : random.int(10, 250),
    isOutOfOrder: random.chance(0.05),
  };
}

export type CancelPlan =
  | { readonly when: 'after'; readonly afterMs: number }
  /** Just as a driver accepts. */
  | { readonly when: 'accepting' };

export interface RidePlan {
  readonly pickup: Position;
  readonly dropoff: Position;
  /** Sent twice at once under one key. */
  readonly isDoubled: boolean;
  readonly cancel: CancelPlan | null;
  /** The fleet's own matcher, or an operator, leases a driver for it, beside the service's rounds. */
  readonly leasedBy: 'service' | 'ops' | null;
  /** Whoever leased the driver takes the offer back. */
  readonly releaseAfterMs: number | null;
  readonly pauseMs: number;
}

export function planRide(random: Random): RidePlan {
  const cancels = random.next();
  return {
    pickup: placeIn(random),
    dropoff: placeIn(random),
    isDoubled: random.chance(0.15),
    cancel:
      cancels < 0.08 ? { when: 'after', afterMs: random.int(0, 800) } : cancels < 0.14 ? { when: 'accepting' } : null,
    leasedBy: random.chance(0.25) ? (random.chance(0.3) ? 'ops' : 'service') : null,
    releaseAfterMs: random.chance(0.4) ? random.int(0, 600) : null,
    pauseMs: random.int(0, 300),
  };
}

function weighted<Kind extends string>(
  random: Random,
  kinds: readonly Kind[],
  weights: Readonly<Record<Kind, number>>,
): Kind {
  let left = random.next() * kinds.reduce((sum, kind) => sum + weights[kind], 0);
  for (const kind of kinds) {
    left -= weights[kind];
    if (left < 0) return kind;
  }
  return kinds.at(-1)!;
}
