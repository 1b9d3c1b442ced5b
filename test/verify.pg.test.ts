import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { newId } from '../src/leasing/ids.ts';
import * as t from '../src/leasing/transitions.ts';
import { checkIds, type CheckId } from '../src/verify/catalog.ts';
import { formatVerification } from '../src/verify/report.ts';
import { Chains, type Run } from '../src/verify/terms.ts';
import { verify, verifyExitCode, type Verification } from '../src/verify/verify.ts';
import { addDrivers, addRegion, addRides, lease } from './support/city.ts';
import { createTestDatabase, urlOfDatabase, type TestDatabase } from './support/database.ts';
import {
  age,
  copyDatabase,
  dropConstraints,
  recordHistory,
  withDatabase,
  type History,
  type RideName,
  type TermName,
} from './support/records.ts';

let healthy: TestDatabase;
let history: History;
beforeAll(async () => {
  healthy = await createTestDatabase();
  history = await withDatabase(healthy.url, recordHistory);
});
afterAll(() => healthy[Symbol.asyncDispose]());

const violated = ({ invariants }: Verification): CheckId[] =>
  invariants.filter(({ violations }) => violations > 0).map(({ id }) => id);

/** What the tests write into the records: rows of the history, by what became of them. */
interface Rows {
  /** The number of the region that driver d12 moved to. */
  readonly other: number;
  /** A ride's id, quoted. */
  readonly rideId: (name: RideName) => string;
  /** `rides where …`: the row of that ride. */
  readonly ride: (name: RideName) => string;
  readonly offer: (name: TermName) => string;
  readonly assignment: (name: TermName) => string;
  readonly driver: (id: string) => string;
  /** The event of that type about that offer. */
  readonly event: (name: TermName, type: string) => string;
  /** Appends an event to a ride, numbered as it should be, at the time of its last change. */
  readonly append: (name: RideName, type: string, term?: TermName) => string;
}

function rowsOf({ region, other, ride, term }: History): Rows {
  const appended = (rideId: string, type: string, about: string): string => `
    update rides set event_seq = event_seq + 1 where region = ${region} and id = '${rideId}';
    insert into ride_events (region, ride_id, seq, type, at, driver_id, offer_id, fence)
    select region, id, event_seq, '${type}', updated_at, ${about} from rides where region = ${region} and id = '${rideId}';`;
  return {
    other,
    rideId: (name) => `'${ride[name]}'`,
    ride: (name) => `region = ${region} and id = '${ride[name]}'`,
    offer: (name) => `region = ${region} and id = '${term[name].offerId}'`,
    assignment: (name) => `region = ${region} and offer_id = '${term[name].offerId}'`,
    driver: (id) => `region = ${region} and driver_id = '${id}'`,
    event: (name, type) => `region = ${region} and offer_id = '${term[name].offerId}' and type = '${type}'`,
    append: (name, type, about) =>
      appended(
        ride[name],
        type,
        about === undefined
          ? 'null, null, null'
          : `'${term[about].driverId}', '${term[about].offerId}', ${term[about].fence}`,
      ),
  };
}

interface Corruption {
  readonly what: string;
  readonly plant: (rows: Rows) => string;
  /** The check that has to find it, then the others that see it as well; nothing else may. */
  readonly finds: readonly CheckId[];
}

/** Ends a ride by cancellation as it should be recorded, and does nothing about its offers, assignment and driver. */
const cancelRideOnly = ({ ride, rideId, append }: Rows, name: RideName, about?: TermName): string => `
  ${append(name, 'ride_cancelled', about)}
  update ride_events e set reason = 'rider:changed_mind'
    from rides r where r.region = e.region and r.id = e.ride_id and e.seq = r.event_seq and r.id = ${rideId(name)};
  update rides set cancel_phase = status, status = 'cancelled', ended_at = updated_at, queue_at = null,
    cancel_source = 'rider', cancel_reason = 'changed_mind' where ${ride(name)};`;

const corruptions: readonly Corruption[] = [
  {
    what: 'a driver has two states',
    plant: ({ driver }) => `insert into driver_state select * from driver_state where ${driver('d11')}`,
    finds: ['I1a'],
  },
  {
    what: 'a leased driver was leased again',
    plant: ({ offer, ride, rideId }) => `
      insert into offers select region, '${newId(1)}', ${rideId('queued')}, driver_id, fence + 1, status,
        sha256('again'), proof, clock_timestamp(), received_at, clock_timestamp() + interval '4 s',
        clock_timestamp() + interval '30 s', ended_at, end_reason, due_at, decision_ttl_ms, pickup_eta_s, policy_version, version
        from offers where ${offer('offered')};
      insert into ride_events select r.region, r.id, r.event_seq + 1, 'offer_made', o.granted_at, o.driver_id, o.id, o.fence
        from rides r join offers o on o.ride_id = r.id and o.due_at is not null where r.id = ${rideId('queued')};
      update rides set event_seq = event_seq + 1, live_offers = 1, offers_made = offers_made + 1, updated_at = clock_timestamp()
        where ${ride('queued')};
      update driver_state d set offer_id = o.id, leased_to_ride_id = o.ride_id, fence = o.fence, lease_token = 'again',
        lease_granted_at = o.granted_at, lease_received_at = null, lease_expires_at = o.expires_at, updated_at = o.granted_at
        from offers o where o.token_hash = sha256('again') and d.driver_id = 'd5'`,
    finds: ['I1a', 'I2a', 'I6d'],
  },
  {
    what: 'an assignment outlived its being given back',
    plant: ({ assignment }) =>
      `update assignments set ended_at = null, ended_as = null where ${assignment('givenBack')}`,
    finds: ['I1b', 'I5a', 'I6e'],
  },
  {
    what: 'two assignments of a ride overlapped',
    plant: ({ assignment }) => `update assignments set ended_at = clock_timestamp() where ${assignment('givenBack')}`,
    finds: ['I1b', 'I5a'],
  },
  {
    what: 'a driver was leased before his trip had ended',
    plant: ({ assignment }) => `update assignments set ended_at = clock_timestamp() where ${assignment('quick')}`,
    finds: ['I1c', 'I5a'],
  },
  {
    what: 'more drivers than allowed held an offer of a ride at once',
    plant: () => `update policies set document = jsonb_set(document, '{parallelOffers}', '1')`,
    finds: ['I1d'],
  },
  {
    what: 'a ride used up more offers than allowed',
    plant: () => `update policies set document = jsonb_set(document, '{offersMax}', '3')`,
    finds: ['I1d'],
  },
  {
    what: 'a ride miscounts its live offers',
    plant: ({ ride }) => `update rides set live_offers = 0 where ${ride('offered')}`,
    finds: ['I1e'],
  },
  {
    what: 'a ride miscounts its offers',
    plant: ({ ride }) => `update rides set offers_made = offers_made + 1 where ${ride('completed')}`,
    finds: ['I1e'],
  },
  {
    what: 'a term went on after the next had begun',
    plant: ({ offer }) => `update offers set ended_at = (
      select granted_at + interval '1 ms' from offers where ${offer('released')}) where ${offer('undeliverable')}`,
    finds: ['I2a', 'I4c'],
  },
  {
    what: 'a fence was left out',
    plant: ({ offer, assignment, driver }) => `
      update offers set fence = 3 where ${offer('completed')};
      update assignments set fence = 3 where ${assignment('completed')};
      update ride_events set fence = 3 where ${assignment('completed')};
      update driver_state set fence = 3 where ${driver('d1')}`,
    finds: ['I2b'],
  },
  {
    what: 'a fence was used twice',
    plant: ({ offer, assignment, driver }) => `
      update offers set fence = 1 where ${offer('completed')};
      update assignments set fence = 1 where ${assignment('completed')};
      update ride_events set fence = 1 where ${assignment('completed')};
      update driver_state set fence = 1 where ${driver('d1')}`,
    finds: ['I2b'],
  },
  {
    what: 'a region change lost the fence',
    plant: ({ other }) => `
      update offers set fence = 1 where region = ${other};
      update assignments set fence = 1 where region = ${other};
      update ride_events set fence = 1 where region = ${other} and fence is not null;
      update driver_state set fence = 1 where region = ${other}`,
    finds: ['I2b'],
  },
  {
    what: 'a fence went back',
    plant: ({ driver }) => `update driver_state set fence = 1 where ${driver('d1')}`,
    finds: ['I2c'],
  },
  {
    what: 'a fence rose without a grant',
    plant: ({ driver }) => `update driver_state set fence = 1 where ${driver('d11')}`,
    finds: ['I2c'],
  },
  {
    what: 'a driver with terms has no state',
    plant: ({ driver }) => `delete from driver_state where ${driver('d1')}`,
    finds: ['I2c'],
  },
  {
    what: 'an assignment has another fence than its term',
    plant: ({ assignment }) => `update assignments set fence = fence + 1 where ${assignment('completed')}`,
    finds: ['I3a'],
  },
  {
    what: 'an assignment has another driver than its term',
    plant: ({ assignment }) => `update assignments set driver_id = 'd11' where ${assignment('completed')}`,
    finds: ['I3a'],
  },
  {
    what: 'an assignment has no offer',
    plant: ({ assignment }) => `insert into assignments
      select region, '${newId(1)}', ride_id, 'd11', 1, assigned_at, ended_at, ended_as from assignments where ${assignment('completed')}`,
    finds: ['I3a'],
  },
  {
    what: 'an acceptance has lost its assignment',
    plant: ({ assignment }) => `delete from assignments where ${assignment('completed')}`,
    finds: ['I3a', 'I5a'],
  },
  {
    what: 'an acceptance has two assignments',
    plant: ({ assignment }) => `insert into assignments select * from assignments where ${assignment('completed')}`,
    finds: ['I3a', 'I1b'],
  },
  {
    what: 'an acceptance has two assignments, of which the second outlived the driver’s next term',
    plant: ({ assignment }) => `insert into assignments select region, offer_id, ride_id, driver_id, fence, assigned_at,
      clock_timestamp(), ended_as from assignments where ${assignment('quick')}`,
    finds: ['I3a', 'I1b', 'I1c', 'I5a'],
  },
  {
    what: 'an offer was accepted with another token',
    plant: ({ offer }) => `update offers set proof = sha256('stale') where ${offer('completed')}`,
    finds: ['I3b'],
  },
  {
    what: 'an offer was accepted without a token',
    plant: ({ offer }) => `update offers set proof = null where ${offer('completed')}`,
    finds: ['I3b'],
  },
  {
    what: 'an offer was accepted after its term',
    plant: ({ offer }) => `update offers set expires_at = ended_at where ${offer('completed')}`,
    finds: ['I3b', 'I3d'],
  },
  {
    what: 'an assignment began after its acceptance',
    plant: ({ assignment }) =>
      `update assignments set assigned_at = assigned_at + interval '1 microsecond' where ${assignment('completed')}`,
    finds: ['I3b', 'I5a'],
  },
  {
    what: 'an offer was received after its end',
    plant: ({ offer, event }) => `
      update offers set received_at = ended_at + interval '1 ms', expires_at = ended_at + interval '15001 ms' where ${offer('declined')};
      update ride_events set at = (select received_at from offers where ${offer('declined')}) where ${event('declined', 'offer_received')}`,
    finds: ['I3c', 'I7b'],
  },
  {
    what: 'an offer lapsed before its end',
    plant: ({ offer }) => `update offers set expires_at = ended_at + interval '1 ms' where ${offer('undeliverable')}`,
    finds: ['I3c', 'I3d'],
  },
  {
    what: 'a term was renewed past what its policy allows',
    plant: ({ driver }) =>
      `update driver_state set lease_expires_at = lease_expires_at + interval '1 min' where ${driver('d5')}`,
    finds: ['I3d'],
  },
  {
    what: 'a term was longer than its policy allows',
    plant: ({ offer }) => `update offers set expires_at = expires_at + interval '10 ms' where ${offer('declined')}`,
    finds: ['I3d'],
  },
  {
    what: 'an offer was declined without a token',
    plant: ({ offer }) => `update offers set proof = null where ${offer('declined')}`,
    finds: ['I4a'],
  },
  {
    what: 'an offer was released with another token',
    plant: ({ offer }) => `update offers set proof = sha256('stale') where ${offer('released')}`,
    finds: ['I4a'],
  },
  {
    what: 'an offer was released for no reason of its ride and without a token',
    plant: ({ offer }) => `update offers set proof = null where ${offer('released')}`,
    finds: ['I4a'],
  },
  {
    what: 'an offer was declined after its term',
    plant: ({ offer }) => `update offers set expires_at = ended_at where ${offer('declined')}`,
    finds: ['I4a', 'I3d'],
  },
  {
    what: 'a token ended a term that had lapsed',
    plant: ({ offer }) => `update offers set proof = token_hash where ${offer('expired')}`,
    finds: ['I4a'],
  },
  {
    what: 'an offer was ended twice',
    plant: ({ append }) => append('queued', 'offer_declined', 'shiftEnd'),
    finds: ['I4b'],
  },
  {
    what: 'an offer was received after it had ended',
    plant: ({ append }) => append('queued', 'offer_received', 'shiftEnd'),
    finds: ['I4b', 'I4c'],
  },
  {
    what: "an offer's end isn't the one told of",
    plant: ({ offer }) => `update offers set status = 'declined' where ${offer('released')}`,
    finds: ['I4c'],
  },
  {
    what: "an offer's reason isn't the one told of",
    plant: ({ offer }) => `update offers set end_reason = 'other' where ${offer('declined')}`,
    finds: ['I4c'],
  },
  {
    what: 'no event tells of an offer',
    plant: ({ event }) => `update ride_events set offer_id = '${newId(1)}' where ${event('withdrawn', 'offer_made')}`,
    finds: ['I4c', 'I4b'],
  },
  {
    what: 'an offer was made that no event knows of',
    plant: ({ offer }) => `
      insert into offers select region, '${newId(1)}', ride_id, driver_id, fence, status, token_hash, proof, granted_at, received_at,
        expires_at, lifetime_ends_at, ended_at, end_reason, due_at, decision_ttl_ms, pickup_eta_s, search_try, policy_version, version
        from offers where ${offer('declined')}`,
    finds: ['I4c', 'I2a', 'I2b'],
  },
  {
    what: 'an offer belongs to another ride than its events',
    plant: ({ offer, assignment, rideId }) => `
      update offers set ride_id = ${rideId('early')} where ${offer('completed')};
      update assignments set ride_id = ${rideId('early')} where ${assignment('completed')}`,
    finds: ['I4c'],
  },
  {
    what: 'a live term was received, and no event tells of it',
    plant: ({ event }) =>
      `update ride_events set at = at - interval '1 microsecond' where ${event('offered', 'offer_received')}`,
    finds: ['I4c'],
  },
  {
    what: 'a step of the trip was taken under another fence',
    plant: ({ event }) => `update ride_events set fence = 99 where ${event('completed', 'driver_arrived')}`,
    finds: ['I4d'],
  },
  {
    what: 'a step of the trip was taken by another driver',
    plant: ({ event }) => `update ride_events set driver_id = 'd11' where ${event('completed', 'ride_completed')}`,
    finds: ['I4d', 'I6g'],
  },
  {
    what: 'an event doesn’t say whose offer it is about',
    plant: ({ event }) => `update ride_events set driver_id = null where ${event('completed', 'offer_received')}`,
    finds: ['I4d'],
  },
  {
    what: 'a live token isn’t the one of its offer',
    plant: ({ driver }) => `update driver_state set lease_token = 'another' where ${driver('d5')}`,
    finds: ['I4e'],
  },
  {
    what: 'an offer was withdrawn for a cancellation that never was',
    plant: ({ offer, event }) => `
      update offers set proof = null, end_reason = 'ride_cancelled' where ${offer('released')};
      update ride_events set reason = 'ride_cancelled' where ${event('released', 'offer_withdrawn')}`,
    finds: ['I4f'],
  },
  {
    what: 'an offer was withdrawn for an acceptance that never was',
    plant: ({ offer, event }) => `
      update offers set end_reason = 'ride_taken' where ${offer('withdrawn')};
      update ride_events set reason = 'ride_taken' where ${event('withdrawn', 'offer_withdrawn')}`,
    finds: ['I4f'],
  },
  {
    what: 'an assignment ended in another way than told',
    plant: ({ assignment }) => `update assignments set ended_as = 'cancelled' where ${assignment('completed')}`,
    finds: ['I5a'],
  },
  {
    what: 'a completed assignment is open again',
    plant: ({ assignment }) =>
      `update assignments set ended_as = null, ended_at = null where ${assignment('completed')}`,
    finds: ['I5a', 'I6c', 'I6e'],
  },
  {
    what: 'an idempotency key leads nowhere',
    plant: () => `update idempotency_keys set result_id = '${newId(1)}' where route = 'rides'`,
    finds: ['I5b'],
  },
  {
    what: 'an idempotency key of an offer leads to a ride',
    plant: ({ rideId }) => `update idempotency_keys set result_id = ${rideId('keyed')} where route = 'offers'`,
    finds: ['I5b'],
  },
  {
    what: 'a ride is searching long past its patience',
    plant: ({ ride }) => `
      update rides set patience_until = patience_until - interval '1 hour' where ${ride('queued')};
      update presence_epochs set since = since - interval '1 hour'`,
    finds: ['I6a'],
  },
  {
    what: 'a searching ride was forgotten',
    plant: ({ ride }) => `update rides set queue_at = null where ${ride('queued')}`,
    finds: ['I6b'],
  },
  {
    what: 'a ride that has ended is queued',
    plant: ({ ride }) => `update rides set queue_at = updated_at where ${ride('givenUp')}`,
    finds: ['I6b'],
  },
  {
    what: 'a ride was cancelled and its offer left open',
    plant: (rows) => cancelRideOnly(rows, 'keyed'),
    finds: ['I6c', 'I6d'],
  },
  {
    what: 'a ride was cancelled and its driver kept',
    plant: (rows) => cancelRideOnly(rows, 'assigned', 'assigned'),
    finds: ['I6c', 'I5a', 'I6e'],
  },
  {
    what: 'a driver was freed and the offer left open',
    plant: ({ driver }) => `update driver_state set status = 'available', leased_to_ride_id = null, offer_id = null,
      lease_token = null, lease_granted_at = null, lease_expires_at = null where ${driver('d10')}`,
    finds: ['I6d'],
  },
  {
    what: 'a driver is leased without an offer',
    plant: ({
      driver,
    }) => `update driver_state set status = 'leased', leased_to_ride_id = '${newId(1)}', offer_id = '${newId(1)}',
      lease_token = 'x', lease_granted_at = updated_at, lease_expires_at = clock_timestamp() + interval '4 s' where ${driver('d11')}`,
    finds: ['I6d', 'I4c', 'I4e'],
  },
  {
    what: 'an available driver still holds a token',
    plant: ({ driver }) => `update driver_state set lease_token = 'x' where ${driver('d11')}`,
    finds: ['I6d'],
  },
  {
    what: 'a driver on a trip was freed',
    plant: ({ driver }) =>
      `update driver_state set status = 'available', leased_to_ride_id = null, offer_id = null where ${driver('d6')}`,
    finds: ['I6e'],
  },
  {
    what: 'a driver is assigned to nothing',
    plant: ({ driver }) =>
      `update driver_state set status = 'assigned', leased_to_ride_id = '${newId(1)}', offer_id = '${newId(1)}' where ${driver('d11')}`,
    finds: ['I6e'],
  },
  {
    what: 'a ride on its way has lost its assignment’s driver',
    plant: ({ ride, assignment }) => `
      update rides set assigned_driver_id = 'd11' where ${ride('assigned')};
      update assignments set driver_id = 'd11' where ${assignment('assigned')}`,
    finds: ['I6e', 'I3a', 'I6g'],
  },
  {
    what: 'a pending offer is never due',
    plant: ({ offer }) => `update offers set due_at = null where ${offer('undelivered')}`,
    finds: ['I6f', 'I1e'],
  },
  {
    what: 'an ended offer is still due',
    plant: ({ offer }) => `update offers set due_at = ended_at where ${offer('declined')}`,
    finds: ['I6f', 'I1e', 'I6c', 'I6d'],
  },
  {
    what: 'a lease is long over and was never freed',
    plant: ({ driver }) =>
      `update driver_state set lease_expires_at = lease_expires_at - interval '1 hour' where ${driver('d10')}`,
    finds: ['I6f', 'I3d'],
  },
  {
    what: "a ride's status isn't the one told of",
    plant: ({ ride }) => `update rides set status = 'in_progress' where ${ride('assigned')}`,
    finds: ['I6g'],
  },
  {
    what: 'a ride ended at another time than told',
    plant: ({ ride }) => `update rides set ended_at = requested_at where ${ride('completed')}`,
    finds: ['I6g'],
  },
  {
    what: 'a ride was cancelled in another phase than told',
    plant: ({ ride }) => `update rides set cancel_phase = 'driver_arrived' where ${ride('cancelledWhenAssigned')}`,
    finds: ['I6g'],
  },
  {
    what: 'an event is missing at the end',
    plant: ({ ride }) => `update rides set event_seq = event_seq + 1 where ${ride('completed')}`,
    finds: ['I7a'],
  },
  {
    what: 'an event is missing in the middle',
    plant: ({ event }) => `delete from ride_events where ${event('completed', 'driver_arrived')}`,
    finds: ['I7a', 'I4b', 'I7c'],
  },
  {
    what: 'two events have one number',
    plant: ({ event }) =>
      `insert into ride_events select * from ride_events where ${event('offered', 'offer_received')}`,
    finds: ['I7a', 'I4b'],
  },
  {
    what: 'events have no ride',
    plant: ({ ride }) => `delete from rides where ${ride('completed')}`,
    finds: ['I7a'],
  },
  {
    what: 'a ride is recorded twice',
    plant: ({ ride }) => `insert into rides select * from rides where ${ride('completed')}`,
    finds: ['I7a'],
  },
  {
    what: 'time went back between two events',
    plant: ({ event }) => `update ride_events set at = at - interval '1 s' where ${event('completed', 'ride_started')}`,
    finds: ['I7b'],
  },
  {
    what: 'an event is later than the last change',
    plant: ({ ride }) => `update rides set updated_at = requested_at where ${ride('completed')}`,
    finds: ['I7b'],
  },
  {
    what: 'a ride was requested twice',
    plant: ({ append }) => append('queued', 'ride_requested'),
    finds: ['I7c'],
  },
  {
    what: 'a ride that had ended went on',
    plant: ({ append }) => append('givenUp', 'no_drivers_available'),
    finds: ['I7c'],
  },
  {
    what: 'an event has a type of its own',
    plant: ({ event }) =>
      `update ride_events set type = 'offer_forgotten' where ${event('declined', 'offer_received')}`,
    finds: ['I7c', 'I4b', 'I4c'],
  },
  {
    what: 'a ride excludes a driver without a reason',
    plant: ({ ride }) =>
      `update rides set excluded_driver_ids = excluded_driver_ids || 'd9'::text where ${ride('queued')}`,
    finds: ['I1e'],
  },
  {
    what: 'a ride that nobody waits for would be cancelled as a no-show',
    plant: ({ ride }) => `update rides set no_show_at = clock_timestamp() where ${ride('queued')}`,
    finds: ['I6g'],
  },
  {
    what: 'a ride went to a better driver twice',
    plant: ({ ride, event }) => `
      update rides set excluded_as = array['replaced', 'replaced'], excluded_driver_ids = array['d15', 'd2'],
        excluded_at = array[updated_at, updated_at] where ${ride('driving')};
      update ride_events set reason = 'system:replaced', type = 'driver_unassigned' where ${event('givenBack', 'driver_cancelled')};
      update assignments set ended_as = 'unassigned' where offer_id in (select offer_id from ride_events where type = 'driver_unassigned')`,
    finds: ['I1f'],
  },
  {
    what: 'the events tell of a better driver, and the ride doesn’t',
    plant: ({ ride }) => `update rides set excluded_as = array['cancelled'] where ${ride('replaced')}`,
    finds: ['I1f'],
  },
  {
    what: 'a ride was held while an offer of it was out',
    plant: ({ append }) => append('offered', 'ride_held') + append('offered', 'ride_released'),
    finds: ['I4h'],
  },
  {
    what: 'an operator’s hold isn’t told of',
    plant: ({ ride }) => `update rides set held_until = clock_timestamp() where ${ride('queued')}`,
    finds: ['I4h'],
  },
  {
    what: 'a driver stands still whom nobody flagged',
    plant: ({ ride }) => `update rides set stalled_since = clock_timestamp() where ${ride('assigned')}`,
    finds: ['I4h'],
  },
  {
    what: 'an offer is said to be withdrawn for a hold that there wasn’t',
    plant: ({ offer, event }) => `
      update offers set end_reason = 'ride_held' where ${offer('lost')};
      update ride_events set reason = 'ride_held' where ${event('lost', 'offer_withdrawn')}`,
    finds: ['I4f'],
  },
  {
    what: 'an offer of an old search was accepted in a new one',
    plant: ({ offer }) => `update offers set search_try = search_try + 1 where ${offer('completed')}`,
    finds: ['I4g'],
  },
  {
    what: 'a resource was leased while another had it',
    plant: () => `update resource_lease_terms set ended_at = clock_timestamp() where resource = 'job' and fence = 2`,
    finds: ['I8a'],
  },
  {
    what: 'a resource was leased while it was another’s in the history',
    plant: () => `update resource_lease_terms set ended_at = clock_timestamp() where resource = 'job' and fence = 1`,
    finds: ['I8a'],
  },
  {
    what: 'a term vanished from the history of a resource',
    plant: () => `delete from resource_lease_terms where resource = 'job' and fence = 1`,
    finds: ['I8b'],
  },
  {
    what: 'a resource’s fence was given twice',
    plant: () => `update resource_leases set fence = 2 where resource = 'job'`,
    finds: ['I8b'],
  },
  {
    what: 'a resource was renewed after its term’s end',
    plant: () =>
      `update resource_lease_terms set renewed_at = ended_at + interval '1 s' where resource = 'job' and fence = 2`,
    finds: ['I8c'],
  },
  {
    what: 'a resource’s end isn’t that of its last term',
    plant: () => `update resource_lease_terms set ended_as = 'expired' where resource = 'done'`,
    finds: ['I8d'],
  },
];

describe('a healthy history', () => {
  test('has no violations, and every check looked at something', async () => {
    const verification = await verify(healthy.url);
    expect(violated(verification)).toEqual([]);
    expect(verification.invariants.map(({ id }) => id)).toEqual(checkIds);
    expect(verification.invariants.filter(({ checked }) => checked === 0)).toEqual([]);
    expect(verifyExitCode(verification)).toBe(0);
  });

  test('is summed up in facts', async () => {
    const { facts } = await verify(healthy.url);
    expect(facts).toMatchObject({
      rides: {
        searching: 4,
        assigned: 3,
        driver_arrived: 1,
        in_progress: 1,
        completed: 4,
        cancelled: 2,
        no_drivers_available: 1,
      },
      ridesEverAssigned: 10,
      offers: { pending: 2, accepted: 12, declined: 2, expired: 1, withdrawn: 4, undeliverable: 1 },
      leasesGranted: 22,
      assignments: { live: 5, completed: 4, cancelled: 1, driver_cancelled: 1 },
    });
    // The sweeps came 5 s and 1 s late, after terms of 15 s and 4 s.
    expect(facts.sweeperLagMs.p50).toBeGreaterThan(950);
    expect(facts.sweeperLagMs.p99).toBeLessThan(5_500);
    expect(facts.holdMs.p99).toBeGreaterThan(19_500);
  });

  test('reads the same in steps of one row, over one connection or four', async () => {
    const whole = await verify(healthy.url);
    const inSteps = await verify(healthy.url, { stepRowsMax: 1, connections: 1 });
    const sideBySide = await verify(healthy.url, { stepRowsMax: 1, connections: 4 });
    expect([inSteps, sideBySide]).toEqual([whole, whole]);
  });

  test('needs no constraint to pass', async () => {
    await using copy = await copyDatabase(healthy.url);
    await withDatabase(copy.url, dropConstraints);
    expect(violated(await verify(copy.url))).toEqual([]);
  });

  test('is verified by someone who may read the tables and nothing else', async () => {
    await using copy = await copyDatabase(healthy.url);
    const reader = `reader_${newId(1).replaceAll('-', '')}`;
    await withDatabase(copy.url, (sql) =>
      sql.unsafe(
        `create role ${reader} login password 'secret'; grant select on all tables in schema public to ${reader}`,
      ),
    );
    const url = Object.assign(new URL(copy.url), { username: reader, password: 'secret' }).href;
    const verification = await verify(url);
    await withDatabase(copy.url, (sql) => sql.unsafe(`drop owned by ${reader}; drop role ${reader}`));
    expect(violated(verification)).toEqual([]);
  });

  test('isn’t broken by lying around, but by a service that goes on without ending what is over', async () => {
    await using copy = await copyDatabase(healthy.url);
    await withDatabase(copy.url, (sql) => age(sql, 86_400_000));
    expect(violated(await verify(copy.url))).toEqual([]);
    await withDatabase(
      copy.url,
      (sql) => sql`update driver_presence set seen_at = clock_timestamp() where driver_id = 'd11'`,
    );
    expect(violated(await verify(copy.url))).toEqual(['I6a', 'I6f']);
  });

  test('may have a ride that was held and released again and again', async () => {
    await using copy = await copyDatabase(healthy.url);
    await withDatabase(copy.url, (sql) =>
      sql.unsafe(`
        insert into ride_events (region, ride_id, seq, type, at)
        select region, id, event_seq + n, case n % 2 when 1 then 'ride_held' else 'ride_released' end, updated_at
        from rides, generate_series(1, 40000) n where ${rowsOf(history).ride('queued')};
        update rides set event_seq = event_seq + 40000 where ${rowsOf(history).ride('queued')}`),
    );
    expect(violated(await verify(copy.url))).toEqual([]);
  });

  test('is reported check by check, with the verdict in the last line', async () => {
    const lines = formatVerification(await verify(healthy.url)).split('\n');
    for (const id of checkIds)
      expect(lines.filter((line) => line.includes(` ${id} `) && line.endsWith(': ok'))).toHaveLength(1);
    expect(lines.at(-1)).toMatch(/^verify: \d+ rows in \d+ checks, 0 violations$/);
  });
});

describe('a planted corruption is found', () => {
  test.each(corruptions)('$what', async ({ plant, finds }) => {
    await using copy = await copyDatabase(healthy.url);
    await withDatabase(copy.url, async (sql) => {
      await dropConstraints(sql);
      await sql.unsafe(plant(rowsOf(history)));
    });
    const verification = await verify(copy.url);
    expect(violated(verification)).toEqual(finds.toSorted());
    expect(verifyExitCode(verification)).toBe(1);
    const found = verification.invariants.find(({ id }) => id === finds[0])!;
    expect(found.examples.length).toBeGreaterThan(0);
    expect(formatVerification(verification)).toContain(found.examples[0]);
  });

  test('every check has a corruption that it is there to find', () => {
    expect([...new Set(corruptions.map(({ finds }) => finds[0]!))].toSorted()).toEqual(checkIds.toSorted());
  });
});

describe('an empty history', () => {
  test('proves nothing: exit code 2, with or without drivers', async () => {
    await using database = await createTestDatabase();
    const nothing = await verify(database.url);
    expect(nothing).toMatchObject({ empty: true, violations: 0, checked: 0 });
    expect(verifyExitCode(nothing)).toBe(2);
    await withDatabase(database.url, async (sql) => addDrivers(sql, await addRegion(sql), 3));
    const waiting = await verify(database.url);
    expect(verifyExitCode(waiting)).toBe(2);
    expect(formatVerification(waiting)).toContain('nothing was verified');
  });
});

describe('a database that can’t be read', () => {
  test('is named: nobody there, or nothing migrated', async () => {
    await expect(verify('postgres://nobody@127.0.0.1:1/none')).rejects.toMatchObject({ code: 'database_unreachable' });
    const unmigrated = urlOfDatabase(inject('adminUrl'), 'template1');
    await expect(verify(unmigrated)).rejects.toMatchObject({ code: 'not_migrated' });
  });

  test('an aborted verification ends with the reason', async () => {
    const aborted = new AbortController();
    const verification = verify(healthy.url, {
      signal: aborted.signal,
      onProgress: () => aborted.abort(new Error('enough')),
    });
    await expect(verification).rejects.toThrow('enough');
  });
});

describe('a service at work', () => {
  test('gives no false alarm, whenever it is looked at', async () => {
    await using database = await createTestDatabase();
    await withDatabase(database.url, async (sql) => {
      const region = await addRegion(sql, 'berlin', { parallelOffers: 2 });
      const driverIds = await addDrivers(sql, region, 12);
      let isOver = false;
      const verifications = (async () => {
        const all: Verification[] = [];
        while (!isOver || all.length < 3) all.push(await verify(database.url, { stepRowsMax: 7 }));
        return all;
      })();
      await Promise.all([0, 1, 2].map((nth) => driveRides(sql, region, driverIds.slice(nth * 4, nth * 4 + 4), 40)));
      isOver = true;
      const all = await verifications;
      expect(all.flatMap(({ invariants }) => invariants.flatMap(({ examples }) => examples))).toEqual([]);
      const last = await verify(database.url);
      expect(last).toMatchObject({ violations: 0, facts: { rides: { completed: 120 } } });
    });
  });
});

/** Rides one after the other, each with an offer declined, one lost to the other, and a trip to its end. */
async function driveRides(
  sql: Parameters<typeof lease>[0],
  region: number,
  drivers: string[],
  count: number,
): Promise<void> {
  for (let i = 0; i < count; i += 1) {
    const [rideId] = await addRides(sql, region, 1);
    const [first, second, third] = [0, 1, 2].map((offset) => drivers[(i + offset) % drivers.length]!);
    const declined = await lease(sql, region, rideId!, first!, { parallelOffers: 2 });
    await t.returnOffers(sql, region, [{ ...declined, reason: 'too_far' }], 'declined', true);
    const [won] = await Promise.all(
      [second, third].map((driverId) => lease(sql, region, rideId!, driverId!, { parallelOffers: 2 })),
    );
    await t.receiveOffers(sql, region, [won!], true);
    await t.confirmOffers(sql, region, [won!], true);
    for (const status of ['driver_arrived', 'in_progress', 'completed'] as const) {
      await t.advanceRides(sql, region, [{ rideId: rideId!, driverId: won!.driverId, status }], true);
    }
  }
}

describe('the terms of a driver, read in pieces', () => {
  const piece = (firstFence: number, lastFence: number, from: number, to: number | null): Run => ({
    driverId: 'd1',
    firstFence,
    lastFence,
    firstGrantedAt: from,
    lastEndedAt: to,
    lastFreeAt: to,
    terms: lastFence - firstFence + 1,
  });
  const checksOf = (fenceBefore: number, fenceAfter: number | null, ...runs: Run[]): string[] => {
    const chains = new Chains();
    chains.expect('d1', fenceBefore);
    for (const run of runs) chains.add(run);
    return chains.breaks('d1', fenceAfter).map(({ check }) => check);
  };

  test('make one chain in whatever order they come', () => {
    expect(checksOf(9, 9, piece(7, 9, 70, 95), piece(1, 3, 10, 35), piece(4, 6, 40, 65))).toEqual([]);
    expect(checksOf(9, 9, piece(4, 6, 40, 65), piece(7, 9, 70, 95), piece(1, 3, 10, 35))).toEqual([]);
  });

  test('make one chain of two epochs, though the first of the later one comes before the last of the earlier', () => {
    const epoch = 2 ** 32;
    const [first, second, third] = [piece(1, 1, 10, 15), piece(2, 2, 20, 25), piece(epoch + 1, epoch + 2, 30, 45)];
    expect(checksOf(epoch + 2, epoch + 2, first, third, second)).toEqual([]);
    expect(checksOf(epoch + 2, epoch + 2, third, second, first)).toEqual([]);
    expect(checksOf(epoch + 2, epoch + 2, third, first)).toEqual([]);
    expect(checksOf(epoch + 2, epoch + 2, third, second)).toEqual(['I2b']);
    expect(checksOf(epoch + 2, epoch + 2, first, second, piece(epoch + 2, epoch + 2, 40, 45))).toEqual(['I2b']);
    expect(checksOf(epoch + 1, epoch + 1, third, piece(1, 2, 10, 35))).toContain('I2a');
  });

  test('what was granted while they were read is left to the next time', () => {
    // The fence was 3; 4 had begun when its piece was read, 5 was missed, 6 was seen.
    expect(checksOf(3, 6, piece(1, 3, 10, 35), piece(4, 4, 40, null), piece(6, 6, 60, null))).toEqual([]);
  });

  test('up to the fence read first nothing is forgiven', () => {
    expect(checksOf(6, 6, piece(1, 3, 10, 35), piece(5, 6, 50, 65))).toEqual(['I2b']);
    expect(checksOf(6, 6, piece(1, 3, 10, null), piece(4, 6, 40, 65))).toEqual(['I2a']);
    expect(checksOf(6, 6, piece(1, 3, 10, 45), piece(4, 6, 40, 65))).toEqual(['I2a']);
    expect(checksOf(7, 7, piece(1, 6, 10, 65))).toEqual(['I2c']);
  });

  test('beyond the fence read last there can be nothing', () => {
    expect(checksOf(5, 5, piece(1, 6, 10, 65))).toEqual(['I2c']);
    expect(checksOf(0, null, piece(1, 1, 10, 15))).toEqual(['I2c']);
  });

  test('an overlap is one also beyond the fence read first, once both times are known', () => {
    const chains = new Chains();
    for (const run of [piece(1, 1, 10, 25), piece(2, 2, 20, 30)]) chains.add(run);
    chains.expect('d1', 0);
    expect(chains.breaks('d1', 2).map(({ check }) => check)).toEqual(['I2a']);
  });
});
