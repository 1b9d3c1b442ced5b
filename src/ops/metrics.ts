/** What a process measures about itself, in Prometheus' words. One instance for each process (or test). */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';

const LATENCY_BUCKETS_S = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

export type TransitionName =
  | 'request'
  | 'lease'
  | 'assign'
  | 'received'
  | 'confirm'
  | 'decline'
  | 'release'
  | 'expire'
  | 'cancel'
  | 'driver_cancel'
  | 'reassign'
  | 'hold'
  | 'release_hold'
  | 'stall'
  | 'replace_stalled'
  | 'no_show'
  | 'arrive'
  | 'start'
  | 'complete'
  | 'give_up'
  | 'online'
  | 'offline'
  | 'retire';

export type Metrics = ReturnType<typeof createMetrics>;

export function createMetrics() {
  const registry = new Registry();
  // How late the event loop is, looked at 20 times a second, and how busy, once: 100 and 10 times, the defaults, are most
  // of an idle process's wake-ups.
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 50, eventLoopUtilizationTimeout: 1_000 });
  const registers = [registry];
  const histogram = (name: string, help: string, buckets = LATENCY_BUCKETS_S) =>
    new Histogram({ name, help, buckets, registers });

  const transitions = new Counter({
    name: 'cabrank_transitions_total',
    help: 'Commands judged, by transition and outcome: applied, repeated, or the refusal code.',
    labelNames: ['transition', 'outcome'],
    registers,
  });

  const leaseCommands = new Counter({
    name: 'cabrank_lease_commands_total',
    help: 'Resource-lease commands judged, by command and outcome: applied, repeated, or the refusal code.',
    labelNames: ['command', 'outcome'],
    registers,
  });

  return {
    registry,
    /** Counts commands judged; `outcome` is `applied`, `repeated` or a refusal code. */
    countTransition(transition: TransitionName, outcome: string, count = 1): void {
      if (count > 0) transitions.inc({ transition, outcome }, count);
    },
    /** Counts resource-lease commands judged; `outcome` is `applied`, `repeated` or a refusal code. */
    countLease(command: string, outcome: string): void {
      leaseCommands.inc({ command, outcome });
    },
    ridesGivenUp: new Counter({
      name: 'cabrank_rides_given_up_total',
      help: 'Rides that ended as no_drivers_available, by what kept drivers from their last look, by region and policy version.',
      labelNames: ['reason', 'region', 'policy'],
      registers,
    }),
    emptyLooks: new Counter({
      name: 'cabrank_empty_looks_total',
      help: 'Looks of a ride at the drivers near it that led to no offer, by the reason.',
      labelNames: ['reason'],
      registers,
    }),
    hiddenSupply: new Counter({
      name: 'cabrank_hidden_supply_total',
      help: 'Looks of a ride that led to no offer while a driver near it, who suits it, was held by another ride’s offer.',
      registers,
    }),
    ridesToRescue: new Counter({
      name: 'cabrank_rides_to_rescue_total',
      help: 'Rides that found nobody within their patience and were put on the operators’ list, by the reason.',
      labelNames: ['reason'],
      registers,
    }),
    exclusionsLifted: new Counter({
      name: 'cabrank_exclusions_lifted_total',
      help: 'Exclusions for lapsed offers that were lifted because a ride found nobody else.',
      registers,
    }),
    epoch: new Gauge({
      name: 'cabrank_database_epoch',
      help: 'How often the database has been promoted or restored; fences of different epochs never meet.',
      registers,
    }),
    leaderships: new Counter({
      name: 'cabrank_leaderships_total',
      help: 'Elections of this process to a job that one process does, by job.',
      labelNames: ['job'],
      registers,
    }),
    takeover: new Histogram({
      name: 'cabrank_takeover_seconds',
      help: 'From the last sign of life of a job’s former holder to its successor’s election.',
      labelNames: ['job'],
      buckets: LATENCY_BUCKETS_S,
      registers,
    }),
    fenceRefusals: new Counter({
      name: 'cabrank_fence_refusals_total',
      help: 'Writes refused because a newer holder exists, by job.',
      labelNames: ['job'],
      registers,
    }),
    publishedEvents: new Counter({
      name: 'cabrank_published_events_total',
      help: 'Ride events that were published.',
      registers,
    }),
    outboxLag: histogram('cabrank_outbox_lag_seconds', 'From the oldest event of a batch to its publishing.'),
    deliveries: new Counter({
      name: 'cabrank_webhook_deliveries_total',
      help: 'Tries to deliver an event, by webhook and outcome: delivered, failed, dead.',
      labelNames: ['webhook', 'outcome'],
      registers,
    }),
    webhookBreakers: new Gauge({
      name: 'cabrank_webhook_breaker_open',
      help: '1 while a webhook that keeps failing is left alone.',
      labelNames: ['webhook'],
      registers,
    }),
    lostClaims: new Counter({
      name: 'cabrank_lost_work_claims_total',
      help: 'Completions and the like that were refused because the claim was lost, by queue.',
      labelNames: ['queue'],
      registers,
    }),
    leaseWait: histogram('cabrank_lease_wait_seconds', 'How long queued acquires of resource leases waited.'),
    leaseSweeperLag: histogram(
      'cabrank_lease_sweeper_lag_seconds',
      'From the moment a resource was free to the moment its term was written to the history.',
    ),
    requestToOffer: histogram('cabrank_request_to_offer_seconds', 'From a ride’s request to its first offer.'),
    requestToAssigned: new Histogram({
      name: 'cabrank_request_to_assigned_seconds',
      help: 'From a ride’s request to its assignment, by region and the policy version it was requested under.',
      labelNames: ['region', 'policy'],
      buckets: LATENCY_BUCKETS_S,
      registers,
    }),
    offerToAnswer: histogram('cabrank_offer_to_answer_seconds', 'From an offer to the driver’s accept or decline.'),
    leaseHold: new Histogram({
      name: 'cabrank_lease_hold_seconds',
      help: 'How long leases were held, by how they ended.',
      labelNames: ['ended_as'],
      buckets: LATENCY_BUCKETS_S,
      registers,
    }),
    sweeperLag: histogram('cabrank_sweeper_lag_seconds', 'From the end of a term to the moment it was swept.'),
    setSize: new Histogram({
      name: 'cabrank_set_size',
      help: 'Items that shared a transaction, by transition.',
      labelNames: ['transition'],
      buckets: [1, 2, 5, 10, 20, 50],
      registers,
    }),
    roundDuration: histogram('cabrank_round_seconds', 'Duration of match rounds.'),
    roundRides: histogram('cabrank_round_rides', 'Rides looked at in a match round.', [0, 1, 5, 10, 50, 100, 250, 500]),
    roundFailures: new Counter({ name: 'cabrank_round_failures_total', help: 'Match rounds that failed.', registers }),
    pushes: new Counter({
      name: 'cabrank_offer_pushes_total',
      help: 'Offers sent to a device: first pushes and repeated ones.',
      labelNames: ['kind'],
      registers,
    }),
    statesCorrected: new Counter({
      name: 'cabrank_driver_states_corrected_total',
      help: 'Drivers told their state anew, because something else held than what they had been told.',
      registers,
    }),
    connectedDrivers: new Gauge({
      name: 'cabrank_connected_drivers',
      help: 'Drivers with a socket on this process.',
      registers,
    }),
    drivers: new Gauge({
      name: 'cabrank_drivers',
      help: 'Drivers by state.',
      labelNames: ['region', 'status'],
      registers,
    }),
    rides: new Gauge({
      name: 'cabrank_open_rides',
      help: 'Rides that haven’t ended, by state.',
      labelNames: ['region', 'status'],
      registers,
    }),
  };
}
