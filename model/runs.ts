/**
 * What is asked of the model, one search each:
 *
 * - `proof`: nothing that must hold can be broken, and every lease and ride ends. Only an exhaustive search counts.
 * - `mutation`: without one of its conditions the protocol is broken, and the model notices. What isn't noticed when it is
 *   missing was never checked.
 * - `goal`: what the protocol is for does happen in the model: a retry after a takeover, a confirm after a sweep. A rule
 *   about what never happens would hold, and say nothing.
 *
 * The goals are those that model/lease.pml names; that the mutations here are all of its mutations, and that each of its
 * assertions is broken by one, is checked.
 */

export interface Run {
  readonly kind: 'proof' | 'mutation' | 'goal';
  readonly name: string;
  readonly about: string;
  readonly defines: readonly string[];
  /** Breadth first finds the shortest way to a violation; depth first needs less memory for all there is. */
  readonly search: 'depth' | 'breadth';
  /** The liveness property that is checked; null: the assertions are. */
  readonly claim: string | null;
  /** What has to be found; null: nothing may be. */
  readonly violates: string | null;
  /** Fewer states mean that the model lost behaviour, whatever it proves. 0 for a search that stops at what it finds. */
  readonly statesMin: number;
  readonly memoryMb: number;
  readonly deadlineMs: number;
}

const MINUTE_MS = 60_000;
/** Large enough for every search here, and pan fails when it isn't. */
export const DEPTH_MAX = 100_000;
/** A search that can tell which statements it never reached. */
export const STATEMENT_BY_STATEMENT = 'STATEMENT_BY_STATEMENT';

const proof = (name: string, about: string, defines: readonly string[], bounds: Partial<Run>): Run => ({
  kind: 'proof',
  name,
  about,
  defines,
  search: 'depth',
  claim: null,
  violates: null,
  statesMin: 100_000,
  memoryMb: 600,
  deadlineMs: 10 * MINUTE_MS,
  ...bounds,
});

const liveness = (claim: string, about: string, statesMin: number): Run =>
  proof(claim, about, ['LIVENESS', 'ENDS_ALIKE', 'SYMMETRY_CUT'], { claim, statesMin });

const proofs: readonly Run[] = [
  proof('safety', 'two offers for each ride', ['SYMMETRY_CUT'], { statesMin: 1_900_000 }),
  proof(
    'coverage',
    'statement by statement, each is reached',
    ['STATEMENT_BY_STATEMENT', 'ENDS_ALIKE', 'SYMMETRY_CUT'],
    {
      statesMin: 170_000,
    },
  ),
  liveness('leases_end', 'under weak fairness every lease ends', 250_000),
  liveness('rides_end', 'under weak fairness every ride ends', 150_000),
];

const nightlyProofs: readonly Run[] = [
  proof('safety, three offers', 'three offers for each ride', ['OFFERS_MAX=3', 'ENDS_ALIKE', 'SYMMETRY_CUT'], {
    statesMin: 7_500_000,
    memoryMb: 2_000,
    deadlineMs: 30 * MINUTE_MS,
  }),
  proof('safety, uncut', 'two offers for each ride, without leaving out what is alike', [], {
    statesMin: 4_200_000,
    memoryMb: 2_000,
    deadlineMs: 30 * MINUTE_MS,
  }),
];

/** What a mutation leaves out, and what that breaks. */
const safetyMutations: readonly (readonly [name: string, breaks: string, about: string])[] = [
  ['TOKEN_UNCHECKED', 'own_instance', "the token isn't compared"],
  ['TERM_UNCHECKED', 'own_instance', "a confirm isn't compared with the driver's present term"],
  ['TOKEN_RESET_ON_FREE', 'own_instance', 'a freed driver goes back to an old token'],
  ['SWEEP_IN_TWO_STEPS', 'own_instance', 'the sweep selects, then updates by id'],
  ['EXPIRY_UNCHECKED', 'within_its_term', 'a confirm may come after expiry'],
  ['EXPIRED_TERM_RENEWED', 'within_its_term', 'a receipt may come after expiry'],
  ['SWEEP_WITHOUT_EXPIRY', 'term_was_over', "the sweep doesn't see that a term was renewed"],
  ['CONFIRM_NOT_IDEMPOTENT', 'same_answer', 'a repeated confirm is judged anew'],
  ['FENCE_RESET_ON_FREE', 'fence_rises', 'freeing sets the fence back'],
  ['LEASE_OF_LEASED', 'one_ride_per_driver', 'a leased driver can be leased'],
  ['LEASE_JUDGED_WHEN_READ', 'one_ride_per_driver', 'a matcher leases what it once read to be free'],
  ['CONFIRM_IN_TWO_STEPS', 'one_ride_per_driver', 'a confirm judges before it locks'],
  ['RELEASE_WITHOUT_STATUS', 'one_ride_per_driver', 'a release frees who is assigned already'],
  ['SWEEP_WITHOUT_STATUS', 'one_ride_per_driver', 'the sweep frees who is assigned already'],
  ['RIDE_UNCHECKED', 'one_driver_per_ride', "a lease doesn't ask whether the ride still searches"],
  ['LOSERS_KEPT', 'one_driver_per_ride', "a confirm leaves the ride's other offers open"],
  ['OFFERS_KEPT_ON_CANCEL', 'offers_belong_to_searches', 'a cancel leaves offers open'],
  ['GIVEN_UP_WITH_OFFERS_OUT', 'offers_belong_to_searches', 'a ride is given up while drivers decide'],
  ['RIDE_NOT_REQUEUED', 'records_agree', "an ended offer isn't taken off its ride's count"],
];

const livenessMutations: readonly (readonly [name: string, claim: string, about: string])[] = [
  ['RENEWAL_WITHOUT_CAP', 'leases_end', 'renewals know no lifetime'],
  ['RENEWAL_WITHOUT_CAP', 'rides_end', 'renewals know no lifetime'],
  ['RIDE_NOT_REQUEUED', 'rides_end', "an ended offer isn't taken off its ride's count"],
];

const found = (kind: 'mutation' | 'goal', run: Pick<Run, 'name' | 'about' | 'defines' | 'violates'>): Run => ({
  kind,
  search: 'breadth',
  claim: null,
  statesMin: 0,
  memoryMb: 600,
  deadlineMs: 5 * MINUTE_MS,
  ...run,
});

const mutations = (): readonly Run[] => [
  ...safetyMutations.map(([name, breaks, about]) =>
    found('mutation', { name, about, defines: ['BREADTH_FIRST', name, `ONLY=${breaks}`], violates: breaks }),
  ),
  ...livenessMutations.map(([name, claim, about]): Run => {
    const defines = ['LIVENESS', 'ENDS_ALIKE', 'SYMMETRY_CUT', name];
    const run = found('mutation', { name, about: `${about} (${claim})`, defines, violates: 'acceptance cycle' });
    return { ...run, search: 'depth', claim };
  }),
];

const goals = (model: string): readonly Run[] =>
  namesIn(model, /\bshown\((\w+),/g).map((name) =>
    found('goal', {
      name,
      about: name.replaceAll('_', ' '),
      defines: ['BREADTH_FIRST', `GOAL=${name}`],
      violates: `!(${name})`,
    }),
  );

export const runsOf = (model: string, isNightly: boolean): readonly Run[] => [
  ...(isNightly ? nightlyProofs : []),
  ...proofs,
  ...mutations(),
  ...goals(model),
];

/** What sets up a search and is no mutation. */
const SETTINGS = new Set([
  'OFFERS_MAX',
  STATEMENT_BY_STATEMENT,
  'ENDS_ALIKE',
  'BREADTH_FIRST',
  'ONLY',
  'GOAL',
  'SYMMETRY_CUT',
  'LIVENESS',
]);

/** Where the model and the list of runs don't fit together, one sentence each. */
export function mismatches(model: string): string[] {
  const switches = namesIn(model, /^#ifn?def (\w+)|\bdefined\((\w+)\)/gm).filter((name) => !SETTINGS.has(name));
  const listed = new Set([...safetyMutations, ...livenessMutations].map(([name]) => name));
  const breakable = new Set(safetyMutations.map(([, breaks]) => breaks));
  return [
    ...switches.filter((name) => !listed.has(name)).map((name) => `${name} is a mutation that no run tries`),
    ...[...listed].filter((name) => !switches.includes(name)).map((name) => `${name} is no mutation of the model`),
    ...namesIn(model, /\bmust\((\w+), /g)
      .filter((name) => !breakable.has(name))
      .map((name) => `${name} is asserted, and no mutation breaks it`),
  ];
}

const namesIn = (model: string, pattern: RegExp): string[] =>
  [...new Set([...model.matchAll(pattern)].map(([, first, second]) => first ?? second ?? ''))].filter(
    (name) => name !== 'name',
  );
