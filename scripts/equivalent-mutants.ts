/** Mutations that no test can catch, and why: each takes nothing away. */

export interface Excuse {
  readonly file: string;
  readonly functionName: string;
  /** Of the mutation, as the script prints it. */
  readonly text: string;
  /** A piece of the line it begins in, where the function has the text more than once. */
  readonly line?: string;
  readonly reason: string;
}

const GUARD =
  'Judged under locks that are still held. The guard stays in the update: it is the arbiter, should a caller forget its locks.';
const KEY = 'The key by which the row is found; the other conditions name the same row, but not through an index.';
const TERM = 'A pending offer is its driver’s live term, and the other way round: either condition says the same.';
const LOOK = 'Spares a look at rows that hold nothing to be found.';
const ID = 'An id names one row in all regions. The region says in which part of the database the row is.';

const excuses = (file: string, functionName: string, reason: string, ...texts: string[]): Excuse[] =>
  texts.map((text) => ({ file, functionName, reason, text }));

export const EQUIVALENT: readonly Excuse[] = [
  ...excuses('lease_drivers.sql', 'lease_drivers', GUARD, "d.status = 'available'"),

  ...excuses('judge_terms.sql', 'judge_terms', TERM, "o.status = 'pending'", 'd.offer_id = o.id'),
  ...excuses('confirm_offers.sql', 'confirm_offers', LOOK, 'live_offers > 1', 'w.ride_id = any(v_shared)'),
  {
    file: 'confirm_offers.sql',
    functionName: 'confirm_offers',
    text: 'region = p_region',
    line: 'v_shared uuid[]',
    reason: LOOK,
  },
  ...excuses(
    'confirm_offers.sql',
    'confirm_offers',
    'A ride with one offer, of which the driver is held by somebody else, is busy anyway.',
    'o.ride_id = any(v_shared)',
  ),
  ...excuses('confirm_offers.sql', 'assign_offers', KEY, 'd.driver_id = o.driver_id', 'd.driver_id = w.driver_id'),
  ...excuses(
    'confirm_offers.sql',
    'assign_offers',
    GUARD,
    'd.offer_id = o.id',
    "o.status = 'pending'",
    "d.status = 'leased'",
    'd.offer_id = w.id',
    "r.status = 'searching'",
  ),

  ...excuses('end_offers.sql', 'end_offers', KEY, 'd.driver_id = o.driver_id', 'd.driver_id = e.driver_id'),
  ...excuses(
    'end_offers.sql',
    'end_offers',
    GUARD,
    "o.status = 'pending'",
    'd.offer_id = o.id',
    "d.status = 'leased'",
    'd.offer_id = e.id',
  ),

  ...excuses('expire_leases.sql', 'expire_leases', KEY, 'd.driver_id = a.driver_id', 'd.driver_id = o.driver_id'),
  ...excuses('expire_leases.sql', 'expire_leases', TERM, "o.status = 'pending'", 'd.offer_id = o.id'),
  ...excuses(
    'expire_leases.sql',
    'expire_leases',
    'Of an offer that ended between the look and the locks, and whose driver had another term that ran out between them, too.',
    'd.offer_id = a.id',
  ),
  ...excuses(
    'expire_leases.sql',
    'expire_leases',
    'Whose ride and driver are both locked here, is due: a driver has one offer.',
    'o.id = any(v_due)',
  ),
  ...excuses(
    'expire_leases.sql',
    'expire_leases',
    'Said by the comparison as well; in these words the index of open offers is found.',
    'o.due_at is not null',
  ),
  ...excuses(
    'expire_leases.sql',
    'expire_leases',
    'What is over has been ended by then.',
    'd.lease_expires_at > greatest(v_now, d.updated_at)',
  ),

  ...excuses('receive_offers.sql', 'receive_offers', KEY, 'd.driver_id = w.driver_id'),
  ...excuses('receive_offers.sql', 'receive_offers', GUARD, "d.status = 'leased'", 'd.offer_id = w.offer_id'),
  ...excuses('receive_offers.sql', 'receive_offers', ID, 'o.region = p_region'),

  ...excuses('cancel_rides.sql', 'cancel_rides', LOOK, 'live_offers > 0', 'assigned_driver_id is not null'),
  {
    file: 'cancel_rides.sql',
    functionName: 'cancel_rides',
    text: 'region = p_region',
    line: 'v_offered uuid[]',
    reason: LOOK,
  },
  {
    file: 'cancel_rides.sql',
    functionName: 'cancel_rides',
    text: 'ride_id = any(v_offered)',
    line: 'v_offers := array',
    reason: LOOK,
  },
  ...excuses(
    'cancel_rides.sql',
    'cancel_rides',
    'The place in the set names the same rides; in these words they are found by their key.',
    'r.id = any(v_cancelled)',
  ),
  ...excuses(
    'cancel_rides.sql',
    'cancel_rides',
    GUARD,
    "r.status in ('searching', 'assigned', 'driver_arrived')",
    's.ended_at is null',
    "d.status = 'assigned'",
    'd.leased_to_ride_id = e.id',
  ),
  {
    file: 'cancel_rides.sql',
    functionName: 'cancel_rides',
    text: 'due_at is not null',
    line: 'and due_at is not null);',
    reason: 'Only pending offers are ended.',
  },
  ...excuses('cancel_rides.sql', 'cancel_rides', KEY, 'd.driver_id = e.assigned_driver_id'),
  ...excuses('cancel_rides.sql', 'judge_cancels', LOOK, 'r.live_offers > 0'),

  ...excuses(
    'unassign_rides.sql',
    'unassign_rides',
    GUARD,
    "r.status in ('assigned', 'driver_arrived')",
    'r.assigned_driver_id = l.driver_id',
    's.ended_at is null',
    "d.status = 'assigned'",
    'd.leased_to_ride_id = l.id',
  ),

  ...excuses('unassign_rides.sql', 'unassign_rides', KEY, 'r.id = l.id', 'd.driver_id = l.driver_id'),

  ...excuses('advance_rides.sql', 'advance_rides', KEY, 'r.id = g.id', 'd.driver_id = g.driver_id'),
  ...excuses(
    'advance_rides.sql',
    'advance_rides',
    GUARD,
    'r.status = g.phase',
    'r.assigned_driver_id = g.driver_id',
    's.ended_at is null',
    "d.status = 'assigned'",
    'd.leased_to_ride_id = g.id',
  ),

  ...(
    [
      ['p.region = p_region', 'left join driver_presence p'],
      ['p.driver_id = d.driver_id', 'left join driver_presence p'],
      ['d.region = p_region', 'd.driver_id = any(v_looked)'],
      ["d.status = 'available'", 'd.driver_id = any(v_looked)'],
      ['(p.seen_at is null or p.seen_at < v_seen_since or p.seen_at > v_seen_until)', 'p.seen_at is null'],
    ] as const
  ).map(([text, line]) => ({
    file: 'driver_shifts.sql',
    functionName: 'retire_absent',
    text,
    line,
    reason: 'Says whom to lock. The update says once more who goes.',
  })),

  ...excuses(
    'driver_shifts.sql',
    'retire_absent',
    'Asked once a walk: each further step would hear the same.',
    "p_after = ''",
  ),
  ...excuses(
    'clock_ahead.sql',
    'bring_rides_forward',
    'Bounds the walk along the index; what it adds is for policies older than the settings.',
    'queue_at > v_now + make_interval(secs => 1 + p_wait_max_ms / 1000.0)',
  ),
  ...excuses(
    'driver_shifts.sql',
    'watch_regions',
    'Locks the regions in order. The update says which ones.',
    'e.region = any(p_regions)',
  ),

  ...excuses(
    'assign_drivers.sql',
    'assign_drivers',
    'The offer of a pair that was refused doesn’t exist: nothing is assigned by it.',
    'l.refused is null',
  ),

  ...excuses(
    'reassign_ride.sql',
    'reassign_ride',
    'What was refused wasn’t applied either: the one condition says both, the other says which.',
    'v_step.refused is not null',
  ),

  ...excuses('hold_ride.sql', 'hold_ride', GUARD, "r.status = 'searching'"),
  ...excuses(
    'hold_ride.sql',
    'hold_ride',
    'Whoever ends a lease locks its ride first, which is locked here. The lock of the drivers keeps the one order of locks.',
    'lock_drivers(p_region, array(',
  ),
  ...excuses('hold_ride.sql', 'release_hold', GUARD, "r.status = 'searching'"),

  ...(['array(select o.ride_id', 'array(select o.driver_id'] as const).flatMap((line) =>
    ['o.region = p_region', 'o.id = any(p_offer_ids)'].map((text) => ({
      file: 'clock_ahead.sql',
      functionName: 'end_terms_ahead',
      text,
      line,
      reason: 'Says whom to lock. What ends is said once more below.',
    })),
  ),
  ...excuses('clock_ahead.sql', 'end_terms_ahead', KEY, 'd.driver_id = o.driver_id'),
  ...excuses('clock_ahead.sql', 'end_terms_ahead', TERM, "o.status = 'pending'", 'd.offer_id = o.id'),
  {
    file: 'clock_ahead.sql',
    functionName: 'end_terms_ahead',
    text: 'o.id = any(p_offer_ids)',
    line: "o.status = 'pending'",
    reason: 'Whose ride and driver are both locked here, is named: a driver has one offer.',
  },
];
