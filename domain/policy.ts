/**
 * A region's policy: the versioned settings its dispatch runs under.
 *
 * Durations are milliseconds of wall time, distances metres, speeds metres per second. A ride keeps the
 * version it was requested under, an offer the one it was made under.
 */
export interface Policy {
  /** How a round turns candidates into pairs: each ride its nearest driver, or the cheapest overall pairing. */
  readonly matching: 'nearest' | 'batch';
  /** Least time between the starts of two rounds of a region; a longer one lets `batch` see more rides at once. */
  readonly roundIntervalMs: number;
  /** Nearest drivers considered for each ride in a round. */
  readonly candidatesMax: number;

  /** How long a ride searches before it ends as `no_drivers_available`. */
  readonly patienceMs: number;
  /** Offers a ride may use up before it ends as `no_drivers_available`. */
  readonly offersMax: number;
  /** `offer`: the driver decides. `assign`: the lease is confirmed with its grant, for fleets whose drivers don't refuse. */
  readonly asking: 'offer' | 'assign';
  /** Drivers who may hold an offer of the same ride at the same time. */
  readonly parallelOffers: number;
  /**
   * A ride's search escalates by one step after each so many offers that came to nothing, or so long a time: first to
   * `escalatedParallelOffers` at a time, then to a search radius of at least `escalatedRadiusM`.
   */
  readonly escalateAfterOffers: number;
  readonly escalateAfterMs: number;
  readonly escalatedParallelOffers: number;
  readonly escalatedRadiusM: number;
  /** A ride that more drivers than this have given back isn't searched for any more by itself. */
  readonly givebacksMax: number;
  /** How long a driver waits at the pickup before the ride is cancelled as `no_show`; 0: for ever. */
  readonly noShowAfterMs: number;
  /** A driver on his way who hasn't come nearer the pickup for so long is flagged; 0: nobody watches. */
  readonly stalledAfterMs: number;
  /** The same until the ride is taken from him and searches on; 0: it isn't. */
  readonly stalledReplacedAfterMs: number;
  /** A driver found later takes the ride over, once, if that saves the rider so much of the wait; 0: nobody looks. */
  readonly betterDriverSavesMs: number;
  /** How long an operator's hold keeps a ride from the match rounds. */
  readonly holdMs: number;
  /** How long a ride that found nobody within its patience waits for an operator to help; 0: not at all. */
  readonly rescueMs: number;
  /** The search radius of a ride's first round; each round that finds nobody adds a step, up to the maximum. */
  readonly searchRadiusM: number;
  readonly searchRadiusStepM: number;
  readonly searchRadiusMaxM: number;
  /**
   * The region's vehicle classes, from the lowest to the highest. A ride may be given a driver of the next higher class
   * once it has waited for `higherClassAfterMs`, of the one above after twice that, and so on; of a lower one only when
   * its rider allows it. Classes that aren't listed keep to themselves.
   */
  readonly vehicleClasses: readonly string[];
  readonly higherClassAfterMs: number;

  /** For how long a driver who declined a ride isn't asked for it again. */
  readonly declinedExclusionMs: number;
  /** The same for a driver who let its offer lapse, or never got it; ends early when the ride finds nobody else. */
  readonly lapsedExclusionMs: number;

  /** Wait before a ride that found nobody is looked at again; doubles each time, up to the maximum. */
  readonly retryMs: number;
  readonly retryMaxMs: number;

  /** First term of a lease: how long the offer has to reach the device. */
  readonly deliveryTtlMs: number;
  /** Term after the device's acknowledgement: how long the driver has to decide. */
  readonly decisionTtlMs: number;
  /** No renewal moves a lease's end past its grant plus this. */
  readonly maxLifetimeMs: number;
  /** An offer that the device hasn't acknowledged is pushed again after this. */
  readonly pushRetryMs: number;

  /** How often drivers' apps send a position. Nobody tells them: it is what the fleet builds into them. */
  readonly positionIntervalMs: number;
  /** A driver whose last position is older than this isn't offered rides. */
  readonly positionStaleMs: number;
  /** An available driver not seen for this long goes offline. */
  readonly presenceGraceMs: number;

  /** Road distance ÷ great-circle distance. */
  readonly detourFactor: number;
  /** Average driving speed. */
  readonly speedMps: number;
}

/** What a region runs under until its fleet sets its own. Times are those of a street-hail fleet in a large city. */
export const defaultPolicy: Policy = {
  matching: 'batch',
  roundIntervalMs: 500,
  candidatesMax: 20,
  patienceMs: 300_000,
  offersMax: 15,
  asking: 'offer',
  parallelOffers: 1,
  escalateAfterOffers: 100,
  escalateAfterMs: 86_400_000,
  escalatedParallelOffers: 1,
  escalatedRadiusM: 8_000,
  givebacksMax: 5,
  noShowAfterMs: 0,
  stalledAfterMs: 0,
  stalledReplacedAfterMs: 0,
  betterDriverSavesMs: 0,
  holdMs: 300_000,
  rescueMs: 0,
  searchRadiusM: 2_000,
  searchRadiusStepM: 1_000,
  searchRadiusMaxM: 8_000,
  vehicleClasses: [],
  higherClassAfterMs: 60_000,
  declinedExclusionMs: 600_000,
  lapsedExclusionMs: 600_000,
  retryMs: 2_000,
  retryMaxMs: 15_000,
  deliveryTtlMs: 4_000,
  decisionTtlMs: 15_000,
  maxLifetimeMs: 30_000,
  pushRetryMs: 1_000,
  positionIntervalMs: 4_000,
  positionStaleMs: 15_000,
  presenceGraceMs: 30_000,
  detourFactor: 1.3,
  speedMps: 6.5,
};

/** Bounds of each number: below or above, the value is a mistake and not a preference. */
export const policyBounds: Readonly<
  Record<
    Exclude<keyof Policy, 'matching' | 'asking' | 'vehicleClasses'>,
    { min: number; max: number; integer: boolean }
  >
> = {
  roundIntervalMs: { min: 0, max: 60_000, integer: true },
  candidatesMax: { min: 1, max: 200, integer: true },
  patienceMs: { min: 100, max: 86_400_000, integer: true },
  offersMax: { min: 1, max: 100, integer: true },
  parallelOffers: { min: 1, max: 10, integer: true },
  escalateAfterOffers: { min: 1, max: 100, integer: true },
  escalateAfterMs: { min: 100, max: 86_400_000, integer: true },
  escalatedParallelOffers: { min: 1, max: 10, integer: true },
  escalatedRadiusM: { min: 1, max: 200_000, integer: false },
  givebacksMax: { min: 0, max: 100, integer: true },
  noShowAfterMs: { min: 0, max: 86_400_000, integer: true },
  stalledAfterMs: { min: 0, max: 86_400_000, integer: true },
  stalledReplacedAfterMs: { min: 0, max: 86_400_000, integer: true },
  betterDriverSavesMs: { min: 0, max: 86_400_000, integer: true },
  holdMs: { min: 100, max: 86_400_000, integer: true },
  rescueMs: { min: 0, max: 86_400_000, integer: true },
  searchRadiusM: { min: 1, max: 200_000, integer: false },
  searchRadiusStepM: { min: 0, max: 200_000, integer: false },
  searchRadiusMaxM: { min: 1, max: 200_000, integer: false },
  higherClassAfterMs: { min: 0, max: 86_400_000, integer: true },
  declinedExclusionMs: { min: 0, max: 86_400_000, integer: true },
  lapsedExclusionMs: { min: 0, max: 86_400_000, integer: true },
  retryMs: { min: 10, max: 3_600_000, integer: true },
  retryMaxMs: { min: 10, max: 3_600_000, integer: true },
  deliveryTtlMs: { min: 250, max: 600_000, integer: true },
  decisionTtlMs: { min: 100, max: 3_600_000, integer: true },
  maxLifetimeMs: { min: 250, max: 7_200_000, integer: true },
  pushRetryMs: { min: 10, max: 60_000, integer: true },
  positionIntervalMs: { min: 100, max: 600_000, integer: true },
  positionStaleMs: { min: 300, max: 3_600_000, integer: true },
  presenceGraceMs: { min: 300, max: 86_400_000, integer: true },
  detourFactor: { min: 1, max: 5, integer: false },
  speedMps: { min: 0.1, max: 100_000, integer: false },
};

export const VEHICLE_CLASS = /^[a-z0-9_-]{1,32}$/;
export const CLASSES_MAX = 10;

export interface PolicyProblem {
  readonly setting: keyof Policy;
  readonly problem: string;
}

/** Everything wrong with a policy, each named by its setting; empty when it may run. */
export function policyProblems(policy: Policy): PolicyProblem[] {
  const problems: PolicyProblem[] = [];
  if (policy.matching !== 'nearest' && policy.matching !== 'batch') {
    problems.push({ setting: 'matching', problem: 'must be "nearest" or "batch"' });
  }
  if (policy.asking !== 'offer' && policy.asking !== 'assign') {
    problems.push({ setting: 'asking', problem: 'must be "offer" or "assign"' });
  }
  const classes: unknown = policy.vehicleClasses;
  const isClasses =
    Array.isArray(classes) && classes.every((name) => typeof name === 'string' && VEHICLE_CLASS.test(name));
  if (!isClasses || classes.length > CLASSES_MAX || new Set(classes).size < classes.length) {
    problems.push({ setting: 'vehicleClasses', problem: `must be up to ${CLASSES_MAX} different vehicle classes` });
  }
  for (const setting of Object.keys(policyBounds) as (keyof typeof policyBounds)[]) {
    const { min, max, integer } = policyBounds[setting];
    const value = policy[setting];
    if (typeof value !== 'number' || !Number.isFinite(value) || value < min || value > max) {
      problems.push({ setting, problem: `must be a number from ${min} to ${max}` });
    } else if (integer && !Number.isInteger(value)) {
      problems.push({ setting, problem: 'must be a whole number' });
    }
  }
  return problems.length > 0 ? problems : relationProblems(policy);
}

/** Settings that are each plausible and together can't work. */
function relationProblems(policy: Policy): PolicyProblem[] {
  const problems: PolicyProblem[] = [];
  const require = (holds: boolean, setting: keyof Policy, problem: string): void => {
    if (!holds) problems.push({ setting, problem });
  };
  require(policy.deliveryTtlMs >
    policy.pushRetryMs, 'deliveryTtlMs', 'must be longer than pushRetryMs, or a lost push is never repeated');
  require(policy.maxLifetimeMs >=
    policy.deliveryTtlMs +
      policy.decisionTtlMs, 'maxLifetimeMs', 'must be at least deliveryTtlMs + decisionTtlMs, or a late delivery cuts the decision short');
  require(policy.searchRadiusMaxM >= policy.searchRadiusM, 'searchRadiusMaxM', 'must be at least searchRadiusM');
  require(policy.retryMaxMs >= policy.retryMs, 'retryMaxMs', 'must be at least retryMs');
  require(policy.positionStaleMs >=
    2 *
      policy.positionIntervalMs, 'positionStaleMs', 'must be at least twice positionIntervalMs, or one late position hides a driver');
  require(policy.presenceGraceMs >=
    policy.positionIntervalMs, 'presenceGraceMs', 'must be at least positionIntervalMs, or drivers go offline between two positions');
  const { stalledAfterMs, stalledReplacedAfterMs } = policy;
  require(stalledReplacedAfterMs === 0 ||
    (stalledAfterMs > 0 &&
      stalledReplacedAfterMs >=
        stalledAfterMs), 'stalledReplacedAfterMs', 'must be 0, or at least a stalledAfterMs that is set: a driver is flagged first');
  require(policy.offersMax >= policy.parallelOffers, 'offersMax', 'must be at least parallelOffers');
  require(policy.escalatedParallelOffers <= policy.offersMax, 'escalatedParallelOffers', 'must be at most offersMax');
  return problems;
}
