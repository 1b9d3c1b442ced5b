/** The specification against its own promises, whatever is asked of it in whatever order, while time goes by. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LeaseStore } from '../../domain/lease-store.ts';
import { command, runs, type Command } from '../leasing/commands.ts';
import { Cast, copyOf, specify, Specified, TERMS, type Outcome, type Request } from '../leasing/requests.ts';

const RUNS = runs(20_000, 4_000);
/** Of an hour, so that terms, holds and patience run out by themselves, too. */
const STEP_MS = 60_000;
const steps = fc.array(fc.tuple(command, fc.constantFrom(0, 0, 0, 0, 1, 5, 20)), { maxLength: 60 });
const HELD: readonly string[] = ['assigned', 'driver_arrived', 'in_progress'];

interface Step {
  readonly request: Request;
  readonly outcome: Outcome;
  readonly before: LeaseStore;
  readonly after: LeaseStore;
  readonly nowMs: number;
}

/** Runs commands one by one; `look` sees the store before and after each. */
function play(commands: readonly [Command, number][], look: (step: Step) => void): void {
  const state = new Specified(new Cast(1));
  let nowMs = 0;
  for (const [asked, minutes] of commands) {
    nowMs += minutes * STEP_MS;
    const request = state.resolve(asked);
    if (request === null) continue;
    const before = copyOf(state.store);
    const outcome = specify(state.store, request, nowMs);
    look({ request, outcome, before, after: state.store, nowMs });
  }
}

/** Fails like `expect`, at a hundredth of its cost: this is asked millions of times. */
function holds(isTrue: boolean, what: string): void {
  if (!isTrue) expect.fail(what);
}

const check = (look: () => (step: Step) => void): void =>
  fc.assert(
    fc.property(steps, (commands) => play(commands, look())),
    { numRuns: RUNS },
  );

/** Nothing but the step itself: the test has changed these. */
const CIRCUMSTANCES = new Set(['lapse', 'lookEarly', 'block', 'outlastHold', 'outlastWait', 'outlastPatience']);

describe(`in ${RUNS} sequences of commands`, () => {
  it('a driver holds one ride at most, a ride one driver, and never more offers than its policy allows', () => {
    check(() => ({ after: { rides, drivers, offers } }) => {
      const pending = [...offers.values()].filter(({ status }) => status === 'pending');
      for (const driver of drivers.values()) {
        const own = pending.filter(({ driverId }) => driverId === driver.id);
        holds(
          own.length === (driver.status === 'leased' ? 1 : 0),
          'one live lease of a leased driver, and of no other',
        );
        if (driver.status === 'leased') holds(own[0]!.id === driver.term.offerId, 'the lease is the driver’s term');
        if (driver.status !== 'assigned') continue;
        const ride = rides.get(driver.rideId)!;
        holds(ride.assignment?.driverId === driver.id, 'an assigned driver has the ride');
        holds(ride.assignment?.offerId === driver.offerId && HELD.includes(ride.status), 'by the offer accepted');
      }
      for (const ride of rides.values()) {
        const open = pending.filter(({ rideId }) => rideId === ride.id);
        holds(open.length === ride.liveOffers && open.length <= TERMS.parallelOffers, 'offers are counted');
        holds(ride.status === 'searching' || open.length === 0, 'only a ride that searches has offers out');
        holds(ride.offersMade <= TERMS.offersMax, 'no more offers than allowed');
        const holders = [...drivers.values()].filter((each) => each.status === 'assigned' && each.rideId === ride.id);
        holds(holders.length === (HELD.includes(ride.status) ? 1 : 0), 'one driver for each ride under way');
      }
    });
  });

  it('fences rise by one at each grant and at nothing else, and no two terms of a driver have the same', () => {
    check(() => ({ before, after, outcome, request }) => {
      const made = [...after.offers.values()].filter(({ id }) => !before.offers.has(id));
      for (const { id, fence } of after.drivers.values()) {
        const grants = made.filter(({ driverId }) => driverId === id);
        holds(fence - before.drivers.get(id)!.fence === grants.length && grants.length <= 1, 'one grant, one fence');
        for (const grant of grants) holds(grant.fence === fence, 'a grant has the new fence');
      }
      const isGrant = ['lease', 'assign', 'reassign'].includes(request.kind) && outcome.applied;
      holds(made.length === (isGrant ? 1 : 0), 'a grant, and nothing else, makes an offer');
    });
  });

  it('what has ended stays as it ended; what is over stays over', () => {
    check(() => ({ before, after }) => {
      for (const [id, offer] of before.offers)
        if (offer.status !== 'pending') holds(after.offers.get(id) === offer, 'an ended term never changes');
      for (const [id, ride] of before.rides)
        if (['completed', 'cancelled', 'no_drivers_available'].includes(ride.status))
          holds(after.rides.get(id)!.status === ride.status, 'a ride that is over stays over');
    });
  });

  it('a change raises the version by one or more, and what is refused or repeated changes nothing', () => {
    check(() => ({ before, after, outcome, request }) => {
      if (CIRCUMSTANCES.has(request.kind)) return;
      for (const of of ['rides', 'drivers', 'offers'] as const)
        for (const [id, is] of after[of]) {
          const was = before[of].get(id);
          if (was === is) continue;
          holds(outcome.applied, `${request.kind}, ${outcome.refused ?? 'repeated'}, changed one of ${of}`);
          holds(was === undefined || is.version > was.version, 'a change without a version');
        }
    });
  });

  it('a lease is confirmed by its own token, before its end, while its ride searches', () => {
    check(() => ({ before, after, request, nowMs }) => {
      for (const [id, offer] of before.offers) {
        if (offer.status !== 'pending' || after.offers.get(id)!.status !== 'accepted') continue;
        const driver = before.drivers.get(offer.driverId)!;
        holds(request.kind === 'confirm' && request.offerId === id && request.token === offer.token, 'by its token');
        holds(driver.status === 'leased' && nowMs < driver.term.expiresAtMs, 'before its end');
        holds(before.rides.get(offer.rideId)!.status === 'searching', 'while the ride searches');
      }
    });
  });

  it('a command that was applied and comes again at once is repeated: it is answered alike, and changes nothing', () => {
    const repeatable = new Set(['receive', 'confirm', 'decline', 'release', 'cancel', 'online', 'offline', 'advance']);
    check(() => ({ request, outcome, after, nowMs }) => {
      if (!outcome.applied || !repeatable.has(request.kind)) return;
      const again = specify(copyOf(after), request, nowMs);
      holds(again.refused === null && !again.applied, `${request.kind} again: ${again.refused ?? 'applied'}`);
      holds(request.kind !== 'confirm' || again.fence === outcome.fence, 'the same assignment');
    });
  });

  it('a confirm that was granted is granted again, for ever; one that was refused for its end never is', () => {
    check(() => {
      const said = new Map<string, boolean>();
      return ({ after, nowMs }) => {
        for (const { id, token, status } of after.offers.values()) {
          if (status === 'pending') continue;
          const { refused, applied } = after.confirm({ offerId: id, token, driverId: null }, nowMs);
          holds(!applied, 'what has ended is confirmed');
          holds((said.get(id) ?? refused === null) === (refused === null), 'another answer than the first');
          said.set(id, refused === null);
        }
      };
    });
  });
});
