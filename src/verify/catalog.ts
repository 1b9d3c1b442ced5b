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

/** What must hold between a history and the records: what was answered is what is there. */
export const historyInvariants = [
  {
    number: 1,
    title: 'The history is whole: each line of its format, from its run to its end, and no secret in it',
    checks: {
      H1a: 'each line is of the format, and none is cut off',
      H1b: 'the run comes first, the end last, and all times lie between them',
      H1c: 'ids are unique, and a repetition asks the same as the earlier ask that it names',
      H1d: 'no line shows a token',
    },
  },
  {
    number: 2,
    title: 'What was acknowledged is there for ever',
    checks: {
      H2a: 'each acknowledged confirm has its acceptance and assignment, with that driver, ride, fence and token',
      H2b: 'each acknowledged decline, release and receipt happened to that term, by that token',
      H2c: 'each acknowledged request and lease has its ride and its offer, as they were told',
      H2d: 'each acknowledged cancellation and step of a trip happened, by whom it was asked',
    },
  },
  {
    number: 3,
    title: 'No means never',
    checks: {
      H3a: 'nothing that a term refused for good was done by that token',
      H3b: 'no ride was cancelled that could no longer be, or made by a refused request',
    },
  },
  {
    number: 4,
    title: 'Asked again, it is answered as the first time',
    checks: {
      H4a: 'no two answers to a confirm, decline, release or cancellation disagree',
      H4b: 'an Idempotency-Key leads to one ride or offer, whoever asks how often',
      H4c: 'no receipt was granted after it had been refused for good',
    },
  },
  {
    number: 5,
    title: 'Nothing happened that nobody asked for',
    checks: {
      H5a: 'each acceptance, decline and release was asked for, with the token of its term',
      H5b: 'each ride, cancellation and step of a trip was asked for, by whose it is',
    },
  },
  {
    number: 6,
    title: 'In time, by the database’s clock',
    checks: {
      H6a: 'no confirm was acknowledged that was asked for only after its term’s end',
      H6b: 'each lapsed term was freed within a sweep, and what the faults took',
    },
  },
  {
    number: 7,
    title: 'A device is shown what is its own, and the newest last',
    checks: {
      H7a: 'what a device was shown is its driver’s, with that fence and token, and assigned if it says so',
      H7b: 'each offer that was received or accepted had reached its driver, or its holder',
      H7c: 'no device was shown an older offer as new after a newer one',
    },
  },
  {
    number: 8,
    title: 'When all is healed and the load is over, nothing is left',
    checks: {
      H8a: 'no offer is pending',
      H8b: 'no ride is searching past its patience',
      H8c: 'no driver is leased',
    },
  },
] as const satisfies readonly Invariant[];
export type HistoryCheckId = ChecksOf<(typeof historyInvariants)[number]>;

const titlesOf = (of: readonly Invariant[]): Record<string, string> =>
  Object.assign({}, ...of.map(({ checks }) => checks)) as Record<string, string>;

/** Every check with its title, in order. */
export const checkTitles = titlesOf(invariants) as Readonly<Record<CheckId, string>>;
export const historyCheckTitles = titlesOf(historyInvariants) as Readonly<Record<HistoryCheckId, string>>;

export const checkIds = Object.keys(checkTitles) as CheckId[];
export const historyCheckIds = Object.keys(historyCheckTitles) as HistoryCheckId[];
