/*
 * The lease protocol, small enough to look at every state it can be in.
 *
 * WHAT IS MODELLED. Two rides, two drivers, and everybody who acts on them, in any order and at any speed: two matchers
 * that read, pause, lease or crash; devices that confirm, acknowledge (which renews) and release, with any token they
 * ever had, late, twice, or for an offer that isn't theirs; riders who cancel; drivers who give a ride back or complete
 * it; a sweeper; the clock. A ride has room for two offers at a time and for OFFERS_MAX in all, which is the policy's own
 * bound and the only one: nothing is cut off to make the model end.
 *
 *     docs/lease.md, src/leasing/            here
 *     lease       lease_drivers.sql          lease(ride, driver)
 *     received    receive_offers.sql         receive(offer, sender)
 *     confirm     confirm_offers.sql         confirm(offer, sender), assign(offer)
 *     release     return_offers.sql          release(offer, sender); a decline is the same
 *     expire      expire_leases.sql          expire(driver)
 *     cancel      cancel_rides.sql           cancel(ride)
 *     unassign    unassign_rides.sql         give_back(ride)
 *     complete    advance_rides.sql          complete(ride); arriving and starting are parts of TAKEN
 *     give up     settle_rides.sql           give_up(ride)
 *     judge_terms.sql, end_offers.sql        the conditions own_token, is_current, is_in_term; end_offer(offer, how)
 *
 * ONE TRANSACTION IS ONE STEP. A transition locks all its rows first, then reads, judges and writes under them, so to
 * everybody else it happens at once. That is why each is a `d_step` here. Nothing is assumed about what a client read
 * earlier: a matcher's look and its lease are two steps, and everything may happen between them. (CONFIRM_IN_TWO_STEPS
 * shows what becomes of a transition that judges before it locks.)
 *
 * A REQUEST ON ITS WAY NEEDS NO STATE. Who can send the same claim at any time, any number of times, has sent it late,
 * twice, after a lost answer and after a pause of any length. So a message is only the step in which it arrives.
 *
 * TIME is what is left of each term, in ticks of one clock. A term begins with DELIVERY_TTL, a receipt makes it
 * DECISION_TTL, and never more than is left of MAX_LIFETIME. In the service only the first receipt renews; here each
 * does, so that the lifetime alone has to end the lease. `left` is 0, and nothing else, where the column is null.
 *
 * GHOSTS are what no program may read: who truly holds a driver, whatever the columns say; the highest fence; what was
 * answered first. Tables show that something went wrong only when two rows disagree. A stale token that frees its
 * successor's lease leaves them in perfect order, and is seen only by asking of each effect: whose term was it, and who
 * asked? Of the 19 mutations of safety seven leave the tables in order in every state there is: TOKEN_UNCHECKED,
 * TOKEN_RESET_ON_FREE, EXPIRY_UNCHECKED, EXPIRED_TERM_RENEWED, SWEEP_WITHOUT_EXPIRY, CONFIRM_NOT_IDEMPOTENT and
 * FENCE_RESET_ON_FREE. An offer's number is its identity: rows are never used again. Its token is a column like others.
 *
 * LEFT OUT, because it adds nothing that could break these rules, or because tests are the better tool for it:
 * - sets: a set reaches what its items reach one after the other; that it does is tested on the database;
 * - `busy`, waiting and SKIP LOCKED: a request that judged nothing changes nothing, and may be sent again;
 * - the guards in each UPDATE's WHERE, the constraints, the foreign keys, search_try: second fences behind the judgement.
 *   The model has none of them, so what it proves doesn't lean on them;
 * - who is near, excluded, blocked, held, offline: such rules make matchers ask less, and here they may ask anybody;
 * - patience: a ride with no offer out may be given up at any time;
 * - assign_drivers.sql and reassign_ride.sql, which are steps of this model in a row;
 * - which kind of refusal it was, events, the outbox, pushes;
 * - a clock that steps back: here it only goes on;
 * - whether a give-back or a step of the trip is late: they name the ride and the driver and no lease, so here they come
 *   from whoever is assigned.
 *
 * TO READ ON: the tables, the conditions, what must hold, the transitions, who takes them. model/check.ts runs it all.
 */

#ifndef OFFERS_MAX
#define OFFERS_MAX 2
#endif
#define RIDES 2
#define DRIVERS 2
#define MATCHERS 2
#define PARALLEL_OFFERS 2
#define OFFERS (RIDES * OFFERS_MAX)
#define NONE 255

/* Of a `d_step` pan tells only whether it was reached, of an `atomic` which of its statements were. */
#ifdef STATEMENT_BY_STATEMENT
#define d_step atomic
#endif

#define DELIVERY_TTL 1
#define DECISION_TTL 2
#define MAX_LIFETIME 2

/* ---- The tables ---- */

#ifndef ENDS_ALIKE
mtype:ride = { SEARCHING, TAKEN, COMPLETED, CANCELLED, NO_DRIVERS };
mtype:offer = { UNMADE, PENDING, ACCEPTED, RETURNED, WITHDRAWN, EXPIRED };
#else
/* How a ride ended, and how an offer did that wasn't accepted, is for those who read the records: no transition asks. To
   the liveness runs and to those of the night, which are large, each such end is the same. */
mtype:ride = { SEARCHING, TAKEN, OVER };
mtype:offer = { UNMADE, PENDING, ACCEPTED, ENDED };
#define COMPLETED OVER
#define CANCELLED OVER
#define NO_DRIVERS OVER
#define RETURNED ENDED
#define WITHDRAWN ENDED
#define EXPIRED ENDED
#endif
mtype:driver = { AVAILABLE, LEASED, ASSIGNED };

typedef Ride {
  mtype:ride status = SEARCHING;
  byte offer = NONE;  /* assigned_offer_id */
  byte live;          /* live_offers */
  byte made           /* offers_made */
}
typedef Driver {
  mtype:driver status = AVAILABLE;
  byte offer = NONE;  /* offer_id: whose term this is */
  byte left;          /* lease_expires_at, from now */
  byte life;          /* lifetime_ends_at, from now */
  byte fence
}
typedef Offer {
  mtype:offer status = UNMADE;
  byte driver;
  byte token          /* token_hash */
}

Ride rides[RIDES];
Driver drivers[DRIVERS];
Offer offers[OFFERS];

#define ride_of(o) ((o) / OFFERS_MAX)
#define driver_of(o) offers[o].driver

/* ---- The ghosts ---- */

mtype:answer = { NOTHING, YES, NO };

byte holder[DRIVERS] = NONE;                   /* the offer whose term truly holds the driver */
byte last_fence[DRIVERS];                      /* the highest one granted */
mtype:answer first_answer[OFFERS] = NOTHING;   /* to the first confirm by the offer's own driver */

/* For use within one step, and no part of the state. Only a search breadth first, for the shortest way, can't hide any. */
#ifdef BREADTH_FIRST
#define hidden
#endif
hidden byte i, j, n, who;
hidden mtype:answer answer;

/* ---- The conditions of the transitions, and the mutations that drop them (model/check.ts names each) ---- */

#ifdef TOKEN_UNCHECKED
#define own_token(o, sender) true
#else
#define own_token(o, sender) (offers[o].token == offers[sender].token)
#endif

#define is_current(o) (offers[o].status == PENDING && drivers[driver_of(o)].offer == (o))
#define is_in_term(o) (drivers[driver_of(o)].left > 0)

#if defined(EXPIRY_UNCHECKED)
#define may_confirm(o) is_current(o)
#elif defined(TERM_UNCHECKED)
#define may_confirm(o) is_in_term(o)
#else
#define may_confirm(o) (is_current(o) && is_in_term(o))
#endif

#ifdef CONFIRM_NOT_IDEMPOTENT
#define is_repeated(o) false
#else
#define is_repeated(o) (offers[o].status == ACCEPTED)
#endif

#ifdef EXPIRED_TERM_RENEWED
#define may_receive(o) is_current(o)
#else
#define may_receive(o) (is_current(o) && is_in_term(o))
#endif

#ifdef RELEASE_WITHOUT_STATUS
#define may_release(o) (drivers[driver_of(o)].offer == (o))
#else
#define may_release(o) (is_current(o) && is_in_term(o))
#endif

#ifdef RIDE_UNCHECKED
#define is_searching(r) true
#else
#define is_searching(r) (rides[r].status == SEARCHING)
#endif

#ifdef LEASE_OF_LEASED
#define is_free(d) (drivers[d].status != ASSIGNED)
#else
#define is_free(d) (drivers[d].status == AVAILABLE)
#endif

#define has_room(r) (rides[r].live < PARALLEL_OFFERS && rides[r].made < OFFERS_MAX)

#ifdef LEASE_JUDGED_WHEN_READ
#define may_lease(r, d) (rides[r].made < OFFERS_MAX)
#else
#define may_lease(r, d) (is_searching(r) && has_room(r) && is_free(d))
#endif

#if defined(SWEEP_WITHOUT_STATUS)
#define is_over(d) (drivers[d].offer != NONE && drivers[d].left == 0)
#elif defined(SWEEP_WITHOUT_EXPIRY)
#define is_over(d) (drivers[d].status == LEASED)
#else
#define is_over(d) (drivers[d].status == LEASED && drivers[d].left == 0)
#endif

#ifdef GIVEN_UP_WITH_OFFERS_OUT
#define is_idle(r) (rides[r].status == SEARCHING)
#else
#define is_idle(r) (rides[r].status == SEARCHING && rides[r].live == 0)
#endif

#ifdef TOKEN_RESET_ON_FREE
#define fresh_token(o, d) (OFFERS + d)
#else
#define fresh_token(o, d) (o)
#endif

#ifdef RENEWAL_WITHOUT_CAP
#define renewed(d) DECISION_TTL
#else
#define renewed(d) (DECISION_TTL < drivers[d].life -> DECISION_TTL : drivers[d].life)
#endif

/* ---- What must hold, by name: pan tells the name of what didn't ---- */

#ifndef ONLY
#define must(name, condition) name = (condition); assert(name)
#else
#define must(name, condition) name = (condition); assert(ONLY)
#endif

hidden byte own_instance = 1, within_its_term = 1, term_was_over = 1, same_answer = 1, fence_rises = 1;
hidden byte one_ride_per_driver = 1, one_driver_per_ride = 1, records_agree = 1, offers_belong_to_searches = 1;

/* Of a change that a token asked for: it changes the term that the token was given for, while that is still on. */
inline effect_of(o, sender) {
  must(own_instance, (sender) == (o) && holder[driver_of(o)] == (o));
  must(within_its_term, drivers[driver_of(o)].left > 0)
}

/* Of the tables, whenever one was written. */
inline records_hold() {
  for (i : 0 .. DRIVERS - 1) {
    n = 0;
    for (j : 0 .. OFFERS - 1) { n = n + (offers[j].status == PENDING && driver_of(j) == i) }
    for (j : 0 .. RIDES - 1) { n = n + (rides[j].status == TAKEN && driver_of(rides[j].offer) == i) }
    must(one_ride_per_driver, n <= 1);
    must(records_agree, n == (drivers[i].status != AVAILABLE) && (n == 1) == (drivers[i].offer != NONE))
  }
  for (i : 0 .. RIDES - 1) {
    n = 0;
    for (j : 0 .. DRIVERS - 1) { n = n + (drivers[j].status == ASSIGNED && ride_of(drivers[j].offer) == i) }
    must(one_driver_per_ride, n <= 1);
    must(records_agree, n == (rides[i].status == TAKEN));
    n = 0;
    for (j : 0 .. OFFERS - 1) { n = n + (offers[j].status == PENDING && ride_of(j) == i) }
    must(offers_belong_to_searches, n == 0 || rides[i].status == SEARCHING);
    must(records_agree, n == rides[i].live)
  }
  i = 0; j = 0; n = 0
}

/* ---- What must be able to happen: with -DGOAL=name, pan shows the shortest way to it ---- */

#ifndef GOAL
#define GOAL false
#endif
#define shown(name, condition) name = (condition); assert(!(GOAL))

hidden byte driver_gone_since_read, ride_gone_since_read, matcher_crashed, wrong_token, renewal_capped;
hidden byte confirm_after_expiry, confirm_after_sweep, confirm_after_cancel, confirm_after_loss;
hidden byte retry_after_takeover, retry_after_reassignment, repeated_release, stale_release, taken_again, given_up;

/* ---- The transitions ---- */

inline free(d) {
  drivers[d].status = AVAILABLE;
  drivers[d].offer = NONE;
  drivers[d].left = 0;
  drivers[d].life = 0;
#ifdef FENCE_RESET_ON_FREE
  drivers[d].fence = 0;
#endif
  holder[d] = NONE
}

inline end_offer(o, how) {
  offers[o].status = how;
  who = driver_of(o);
  free(who);
#ifdef RIDE_NOT_REQUEUED
  skip
#else
  rides[ride_of(o)].live--
#endif
}

inline withdraw_offers(r) {
  for (i : 0 .. OFFERS - 1) {
    if
    :: ride_of(i) == r && offers[i].status == PENDING -> end_offer(i, WITHDRAWN)
    :: else
    fi
  }
}

inline lease(r, d) {
  if
  :: may_lease(r, d) ->
    n = r * OFFERS_MAX + rides[r].made;
    rides[r].made++;
    rides[r].live++;
    drivers[d].status = LEASED;
    drivers[d].offer = n;
    drivers[d].left = DELIVERY_TTL;
    drivers[d].life = MAX_LIFETIME;
    drivers[d].fence++;
    offers[n].status = PENDING;
    offers[n].driver = d;
    offers[n].token = fresh_token(n, d);
    printf("a matcher leases driver %d to ride %d: offer %d, fence %d\n", d, r, n, drivers[d].fence);
    must(fence_rises, drivers[d].fence > last_fence[d]);
    last_fence[d] = drivers[d].fence;
    holder[d] = n;
    records_hold()
  :: else ->
    printf("a matcher is refused driver %d for ride %d\n", d, r);
    shown(driver_gone_since_read, !is_free(d));
    shown(ride_gone_since_read, !is_searching(r))
  fi
}

inline receive(o, sender) {
  printf("offer %d's driver acknowledges offer %d\n", sender, o);
  if
  :: own_token(o, sender) && may_receive(o) ->
    effect_of(o, sender);
    who = driver_of(o);
    n = renewed(who);
    shown(renewal_capped, n < DECISION_TTL);
    drivers[who].left = (n > drivers[who].left -> n : drivers[who].left);
    n = 0
  :: else
  fi
}

/* The first accept wins: the ride's other offers are withdrawn. */
inline assign(o) {
  printf("driver %d is assigned to ride %d\n", driver_of(o), ride_of(o));
  offers[o].status = ACCEPTED;
  drivers[driver_of(o)].status = ASSIGNED;
  drivers[driver_of(o)].left = 0;
  drivers[driver_of(o)].life = 0;
  rides[ride_of(o)].status = TAKEN;
  rides[ride_of(o)].offer = o;
  rides[ride_of(o)].live--;
  shown(taken_again, o % OFFERS_MAX > 0 && offers[o - 1].status == ACCEPTED);
#ifndef LOSERS_KEPT
  withdraw_offers(ride_of(o));
#endif
  records_hold()
}

inline confirm(o, sender) {
  printf("offer %d's driver confirms offer %d\n", sender, o);
  answer = NO;
  if
  :: !own_token(o, sender) -> shown(wrong_token, is_current(o) && is_in_term(o))
  :: else ->
    if
    :: is_repeated(o) ->
      answer = YES;
      shown(retry_after_takeover, holder[driver_of(o)] != NONE && holder[driver_of(o)] != o);
      shown(retry_after_reassignment, rides[ride_of(o)].status == TAKEN && rides[ride_of(o)].offer != o)
    :: !is_repeated(o) && may_confirm(o) ->
      effect_of(o, sender);
      assign(o);
      answer = YES
    :: else ->
      shown(confirm_after_expiry, is_current(o));
      shown(confirm_after_sweep, offers[o].status == EXPIRED);
      shown(confirm_after_cancel, offers[o].status == WITHDRAWN && rides[ride_of(o)].status == CANCELLED);
      shown(confirm_after_loss, offers[o].status == WITHDRAWN && rides[ride_of(o)].status == TAKEN)
    fi
  fi;
  printf("and is told: %e\n", answer);
  if
  :: sender == o ->
    must(same_answer, first_answer[o] == NOTHING || first_answer[o] == answer);
    first_answer[o] = answer
  :: else ->
    must(own_instance, answer == NO)
  fi
}

inline release(o, sender) {
  printf("offer %d's driver releases offer %d\n", sender, o);
  if
  :: own_token(o, sender) && may_release(o) ->
    effect_of(o, sender);
    end_offer(o, RETURNED);
    records_hold()
  :: else ->
    printf("and is refused\n");
    shown(repeated_release, own_token(o, sender) && offers[o].status == RETURNED);
    shown(stale_release, own_token(o, sender) && holder[driver_of(o)] != NONE && holder[driver_of(o)] != o)
  fi
}

inline expire(o, d) {
  printf("the sweeper ends offer %d: driver %d is free\n", o, d);
  must(own_instance, holder[d] == o);
  must(term_was_over, drivers[d].left == 0);
  end_offer(o, EXPIRED);
  records_hold()
}

inline leave(r, status_after) {
  who = driver_of(rides[r].offer);
  free(who);
  rides[r].offer = NONE;
  rides[r].status = status_after
}

inline cancel(r) {
  printf("the rider cancels ride %d\n", r);
  if
  :: rides[r].status == TAKEN -> leave(r, CANCELLED)
  :: else -> rides[r].status = CANCELLED
  fi;
#ifndef OFFERS_KEPT_ON_CANCEL
  withdraw_offers(r);
#endif
  records_hold()
}

inline give_back(r) {
  printf("ride %d is given back\n", r);
  leave(r, SEARCHING);
  records_hold()
}

inline complete(r) {
  printf("ride %d is completed\n", r);
  leave(r, COMPLETED);
  records_hold()
}

inline give_up(r) {
  printf("ride %d is given up\n", r);
  shown(given_up, true);
  rides[r].status = NO_DRIVERS;
  records_hold()
}

inline tick() {
  printf("time passes\n");
  for (i : 0 .. DRIVERS - 1) {
    if
    :: drivers[i].left > 0 ->
      drivers[i].left--;
      drivers[i].life = (drivers[i].left > 0 && drivers[i].life > 0 -> drivers[i].life - 1 : 0)
    :: else
    fi
  }
  i = 0
}

/* ---- Who takes them ---- */

#define choose(x, fits) if :: fits(0) -> x = 0 :: fits(1) -> x = 1 fi
#if OFFERS_MAX == 2
#define choose_offer(x, fits) if \
  :: fits(0) -> x = 0 :: fits(1) -> x = 1 \
  :: fits(2) -> x = 2 :: fits(3) -> x = 3 fi
#elif OFFERS_MAX == 3
#define choose_offer(x, fits) if \
  :: fits(0) -> x = 0 :: fits(1) -> x = 1 :: fits(2) -> x = 2 \
  :: fits(3) -> x = 3 :: fits(4) -> x = 4 :: fits(5) -> x = 5 fi
#endif

#define was_made(o) (offers[o].status != UNMADE)
#define is_same_drivers(other) (was_made(other) && driver_of(other) == driver_of(o))
#define is_taken(r) (rides[r].status == TAKEN)
#define may_cancel(r) (rides[r].status == SEARCHING || is_taken(r))
#define looks_right(r, d) (rides[r].status == SEARCHING && has_room(r) && drivers[d].status == AVAILABLE)

/* Nobody has to do anything: without it weak fairness would make drivers accept and riders cancel. */
#define DO_NOTHING d_step { i = 0 }

#ifdef SYMMETRY_CUT
/* Drivers are alike and rides are alike, so whichever are the first to be brought together: call them 0. */
#define is_canonical(r, d) (last_fence[0] + last_fence[1] > 0 || (r == 0 && d == 0))
#else
#define is_canonical(r, d) true
#endif

/* What it read may be long over when it asks for the lease. A crash forgets it. */
active [MATCHERS] proctype Matcher() {
  byte r, d;
  do
  :: atomic {
      if
      :: looks_right(0, 0) -> r = 0; d = 0
      :: looks_right(0, 1) -> r = 0; d = 1
      :: looks_right(1, 0) -> r = 1; d = 0
      :: looks_right(1, 1) -> r = 1; d = 1
      fi
    }
    if
    :: d_step { is_canonical(r, d) -> lease(r, d); r = 0; d = 0 }
    :: d_step { printf("a matcher crashes\n"); shown(matcher_crashed, true); r = 0; d = 0 }
    fi
  od
}

/* `sender` is the offer whose token is sent; `o` the offer it is sent for: mostly, but not always, the same. */
active proctype Devices() {
  byte o, sender;
  do
  :: atomic {
      choose_offer(o, was_made);
      choose_offer(sender, is_same_drivers);
      if
      :: d_step { confirm(o, sender); o = 0; sender = 0 }
      :: d_step { receive(o, sender); o = 0; sender = 0 }
      :: d_step { release(o, sender); o = 0; sender = 0 }
      fi
    }
  :: DO_NOTHING
  od
}

active proctype ChangesOfMind() {
  byte r;
  do
  :: atomic { choose(r, may_cancel); d_step { cancel(r); r = 0 } }
  :: atomic { choose(r, is_taken); d_step { give_back(r); r = 0 } }
  :: DO_NOTHING
  od
}

active proctype Trips() {
  byte r;
  do
  :: atomic { choose(r, is_taken); d_step { complete(r); r = 0 } }
  od
}

active proctype Clock() {
  do
  :: d_step { drivers[0].left > 0 || drivers[1].left > 0 -> tick() }
  od
}

/* Whoever does this: match rounds free what is over and give up, the sweeper frees where there are no rounds. */
active proctype Sweeper() {
  byte d, r;
  do
  :: atomic { choose(d, is_over); d_step { n = drivers[d].offer; expire(n, d); d = 0 } }
  :: atomic { choose(r, is_idle); d_step { give_up(r); r = 0 } }
  od
}

/* ---- Mutations that are processes: each judges in one step and writes in another ---- */

#ifdef SWEEP_IN_TWO_STEPS
active proctype HastySweeper() {
  byte d, seen;
  do
  :: atomic { choose(d, is_over); seen = drivers[d].offer; printf("a sweeper reads: offer %d is over\n", seen) }
    d_step { expire(seen, d); d = 0; seen = 0 }
  od
}
#endif

#ifdef CONFIRM_IN_TWO_STEPS
active proctype HastyDevice() {
  byte judged;
  do
  :: atomic { choose_offer(judged, may_confirm); printf("a confirm is judged: offer %d is live\n", judged) }
    d_step { effect_of(judged, judged); assign(judged); judged = 0 }
  od
}
#endif

/* ---- Liveness, under weak fairness: a process that can always go on does, sooner or later ---- */

#ifdef LIVENESS
ltl leases_end { [] <> (drivers[0].status != LEASED) && [] <> (drivers[1].status != LEASED) }
ltl rides_end { <> (rides[0].status == OVER && rides[1].status == OVER) }
#endif
