/**
 * What is verified: the design's invariants, each with the checks that the records can prove it by. A check's id is
 * its invariant's number and a letter; the SQL of each is in the file of the rows it looks at.
 */
export interface Invariant {
  readonly number: number;
  readonly title: string;
  readonly checks: Readonly<Record<string, string>>;
}

export const invariants = [
  {
    number: 1,
    title:
      'A driver holds at most one live lease or assignment; a ride at most one live assignment, and no more live leases than its policy allows',
    checks: {
      I1a: 'a driver has one state, and at most one pending offer or live assignment',
      I1b: 'the assignments of a ride never overlap',
      I1c: 'the terms and assignments of a driver never overlap',
      I1d: 'no offer was made beyond parallelOffers or offersMax of the policy it was made under',
      I1e: 'a ride counts its pending offers, and its offers in all, and lists whom it excludes, why and when',
      I1f: 'a ride goes to a better driver at once, and at most once',
    },
  },
  {
    number: 2,
    title: 'No two lease terms of one driver overlap in time; fences rise by exactly one per grant',
    checks: {
      I2a: 'the terms of a driver, in the order of their fences, never overlap',
      I2b: 'the fences of a driver are 1, 2, 3, … in each epoch, without a gap or a repeat',
      I2c: "a driver's fence is that of the last term",
    },
  },
  {
    number: 3,
    title: 'Every assignment was confirmed with the token of its own term, before that term’s expiry',
    checks: {
      I3a: 'each assignment has exactly one accepted offer of its ride, driver and fence, and the other way round',
      I3b: 'each acceptance was shown the token of its own term, within that term',
      I3c: 'granted ≤ received ≤ ended, and a term lapses only after its end',
      I3d: 'each term lasted as long as its policy says',
    },
  },
  {
    number: 4,
    title: 'Nothing a stale token asked for ever changed a row',
    checks: {
      I4a: 'a term without acceptance ended by its own token in time, by the clock, by the ride, or by its driver going offline',
      I4b: 'an offer is made, perhaps received, ended once, and only an accepted one is heard of again',
      I4c: 'offers and events tell the same',
      I4d: "each event carries its offer's driver and fence",
      I4e: 'a live token is the one its offer recorded',
      I4g: 'an offer is of the search try it was made in, and accepted in no other',
      I4f: 'an offer withdrawn without a token lost its ride to a cancellation, a hold or another acceptance',
      I4h: 'a ride is held with no offer out, and held and stalled as the events tell',
    },
  },
  {
    number: 5,
    title: 'An acknowledged confirm is never lost',
    checks: {
      I5a: 'each acceptance has its assignment, which ended when and as the events tell',
      I5b: 'each idempotency key leads to the ride or offer that was made',
    },
  },
  {
    number: 6,
    title:
      'Every ride ends, or is searched within its patience; every lease ends; no lease without its offer, no ended ride with either',
    checks: {
      I6a: 'no ride is searching past its patience (and what an open offer and a recovery may add)',
      I6b: 'a searching ride is queued or offered, and no other ride is queued',
      I6c: 'no ended ride has a pending offer or a live assignment',
      I6d: 'each leased driver has a pending offer of a searching ride, and the other way round',
      I6e: 'each assigned driver has the live assignment of a ride that names both, and the other way round',
      I6f: 'each offer ended, or is pending, due, and not long over',
      I6g: "a ride's status, driver and end are those of its last event",
    },
  },
  {
    number: 7,
    title: 'A ride’s events carry consecutive numbers',
    checks: {
      I7a: 'the events of a ride are numbered 1, 2, 3, … up to its event_seq',
      I7b: 'the times of the events never go back, and lie between request and last change',
      I7c: 'the events of a ride come in a legal order',
    },
  },
  {
    number: 8,
    title: 'A resource has one holder at a time, and the history keeps every term',
    checks: {
      I8a: 'the terms of a resource, in the order of their fences, never overlap',
      I8b: 'the fences of a resource are 1, 2, 3, … in each epoch, without a gap or a repeat, up to its own',
      I8c: 'a term was renewed and confirmed within itself',
      I8d: 'a resource’s last end is that of its last term',
    },
  },
] as const satisfies readonly Invariant[];

type ChecksOf<T> = T extends { checks: infer C } ? keyof C : never;
export type CheckId = ChecksOf<(typeof invariants)[number]>;

/** Every check with its title, in order. */
export const checkTitles = Object.assign({}, ...invariants.map(({ checks }) => checks)) as Readonly<
  Record<CheckId, string>
>;

export const checkIds = Object.keys(checkTitles) as CheckId[];
