/**
 * Why a command changed nothing. The union is closed: a caller can handle every refusal by name.
 *
 * For each command the codes are listed in the order in which they are checked, so that of two reasons the
 * caller always hears the same one. What isn't a refusal: a repeated command gets its first answer. `busy` is
 * a row that stayed locked past the deadline: nothing was judged, and the command can be asked again.
 */
export const refusals = {
  lease: [
    'ride_not_found',
    'driver_not_found',
    'busy',
    'ride_not_searching',
    'ride_held',
    'driver_blocked',
    'driver_excluded',
    'driver_unavailable',
    'ride_fully_offered',
  ],
  received: [
    'offer_not_found',
    'wrong_driver',
    'wrong_token',
    'busy',
    'ride_cancelled',
    'ride_taken',
    'lease_lost',
    'lease_expired',
  ],
  confirm: [
    'offer_not_found',
    'wrong_driver',
    'wrong_token',
    'busy',
    'ride_cancelled',
    'ride_taken',
    'lease_lost',
    'lease_expired',
  ],
  decline: [
    'offer_not_found',
    'wrong_driver',
    'wrong_token',
    'busy',
    'ride_cancelled',
    'ride_taken',
    'lease_lost',
    'lease_expired',
  ],
  release: ['offer_not_found', 'wrong_token', 'busy', 'ride_cancelled', 'ride_taken', 'lease_lost', 'lease_expired'],
  cancel: ['ride_not_found', 'wrong_rider', 'busy', 'ride_in_progress', 'ride_over'],
  driverCancel: ['ride_not_found', 'busy', 'wrong_driver', 'ride_in_progress', 'ride_over'],
  reassign: [
    'wrong_phase',
    'ride_not_found',
    'busy',
    'wrong_driver',
    'ride_in_progress',
    'ride_over',
    'driver_not_found',
    'ride_not_searching',
    'driver_blocked',
    'driver_unavailable',
    'ride_fully_offered',
  ],
  hold: ['ride_not_found', 'busy', 'ride_not_searching'],
  advance: ['ride_not_found', 'busy', 'wrong_driver', 'ride_cancelled', 'wrong_phase'],
  online: ['driver_not_found', 'busy'],
  offline: ['driver_not_found', 'busy', 'driver_assigned'],
} as const;

export type Command = keyof typeof refusals;
export type RefusalOf<C extends Command> = (typeof refusals)[C][number];
export type RefusalCode = RefusalOf<Command>;

/** A command that was understood, judged, and changed nothing. */
export interface Refusal<Code extends RefusalCode = RefusalCode> {
  readonly refused: Code;
}

export const isRefusal = (answer: object): answer is Refusal => 'refused' in answer;
