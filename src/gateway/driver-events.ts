/** What a driver's app says over the socket. Every event is answered `{ok: true, data}` or `{ok: false, error}`. */
import { z } from 'zod';
import { cellOf } from '../../domain/geo.ts';
import { isLockTimeout, isUnreachable } from '../database/connection.ts';
import { OverloadedError } from '../leasing/group-commit.ts';
import { regionOf } from '../leasing/ids.ts';
import type { RideStep } from '../leasing/transitions.ts';
import { acceptPushed, endPush } from './offer-pushes.ts';
import { comeAgain, type GatewayDeps, loseRide, type Seat } from './seat.ts';

/** Events of one driver under way at the same time; an app waits for its answers. */
const IN_HAND_MAX = 16;

const id = z.uuid();
const token = z.string().regex(/^[A-Za-z0-9_-]{1,128}$/);
const shapes = {
  online: z.strictObject({}).optional(),
  offline: z.strictObject({}).optional(),
  location: z.strictObject({ lat: z.number().min(-90).max(90), lng: z.number().min(-180).max(180) }),
  accept: z.strictObject({ offerId: id, leaseToken: token }),
  decline: z.strictObject({
    offerId: id,
    leaseToken: token,
    reasonCode: z
      .string()
      .regex(/^[a-z0-9_]{1,64}$/)
      .optional(),
  }),
  arrive: z.strictObject({ rideId: id }),
  start: z.strictObject({ rideId: id }),
  complete: z.strictObject({ rideId: id }),
  cancel: z.strictObject({ rideId: id, reasonCode: z.string().regex(/^[a-z0-9_]{1,64}$/) }),
} as const;

/** All that is heard. */
export const DRIVER_EVENTS = Object.keys(shapes) as readonly EventName[];

type Shapes = typeof shapes;
type EventName = keyof Shapes;

class EventRefused extends Error {
  readonly code: string;

  constructor(code: string) {
    super(code);
    this.code = code;
  }
}

type Handlers = { [E in EventName]: (data: z.infer<Shapes[E]>) => Promise<unknown> };

export function handleDriverEvents(deps: GatewayDeps, seat: Seat): void {
  const handlers = handlersOf(deps, seat);
  let inHand = 0;
  seat.socket.onAny((event: string, ...args: unknown[]) => {
    const answer = args.at(-1);
    if (Object.hasOwn(shapes, event) || typeof answer !== 'function') return;
    const detail = `there is no event of this name, only ${DRIVER_EVENTS.join(', ')}`;
    (answer as (reply: unknown) => void)({ ok: false, error: { code: 'invalid_request', detail } });
  });
  for (const event of DRIVER_EVENTS) {
    seat.socket.on(event, async (...args: unknown[]) => {
      const answer = args.at(-1);
      const reply = typeof answer === 'function' ? (answer as (reply: unknown) => void) : () => {};
      if (inHand >= IN_HAND_MAX || !deps.mayAsk({ role: 'driver', sub: seat.driverId }))
        return reply({ ok: false, error: { code: 'too_many_requests' } });
      inHand += 1;
      seat.lastSeenAtMs = performance.now();
      try {
        const shape = shapes[event].safeParse(typeof args[0] === 'function' ? undefined : args[0]);
        if (!shape.success) {
          return reply({ ok: false, error: { code: 'invalid_request', detail: z.prettifyError(shape.error) } });
        }
        const handle = handlers[event] as (data: unknown) => Promise<unknown>;
        const data = (await handle(shape.data)) ?? {};
        // Whoever sends positions without end learns nothing from their answers.
        if (event !== 'location') seat.told += 1;
        reply({ ok: true, data });
      } catch (error) {
        reply({ ok: false, error: { code: codeOf(deps, error) } });
      } finally {
        inHand -= 1;
      }
    });
  }
}

function codeOf({ log }: GatewayDeps, error: unknown): string {
  if (error instanceof EventRefused) return error.code;
  if (error instanceof OverloadedError) return 'overloaded';
  if (isUnreachable(error) || isLockTimeout(error)) return 'database_unavailable';
  log.error({ err: error }, 'a driver’s event failed');
  return 'internal_error';
}

/** The id's own region, or the answer for an id that the server can't have made. */
function homeOf(anId: string, code: string): number {
  const region = regionOf(anId.toLowerCase());
  if (region === null) throw new EventRefused(code);
  return region;
}

function orRefuse<A extends { readonly refused: string | null }>(answer: A): A {
  if (answer.refused !== null) throw new EventRefused(answer.refused);
  return answer;
}

function handlersOf({ leasing, positions, regions }: GatewayDeps, seat: Seat): Handlers {
  const { driverId, region } = seat;
  /** Who has moved to another region sits down there, and asks again. */
  const here = <A extends { readonly refused: string | null }>(answer: A): A => {
    if (answer.refused === 'driver_not_found') comeAgain(seat);
    return answer;
  };
  const advance =
    (status: RideStep) =>
    async ({ rideId }: { rideId: string }) => {
      orRefuse(await leasing.advance(homeOf(rideId, 'ride_not_found'), { rideId, driverId, status }));
      if (status === 'completed') loseRide(seat, rideId.toLowerCase());
      return { rideId, status };
    };
  return {
    online: async () => {
      orRefuse(here(await leasing.online(region, { driverId, overSocket: true })));
      if (seat.standing === 'offline') seat.standing = 'free';
    },
    offline: async () => {
      orRefuse(here(await leasing.offline(region, { driverId, overSocket: true })));
      seat.standing = 'offline';
    },
    location: async (position) => {
      positions.report(region, { driverId, position: { ...position, cell: cellOf(position) } });
    },
    accept: async ({ offerId, leaseToken }) => {
      const claim = { offerId, leaseToken, driverId };
      const home = homeOf(offerId, 'offer_not_found');
      const confirmed = await acceptPushed(leasing, seat.push, home, claim, async () =>
        orRefuse(await leasing.confirm(home, claim)),
      );
      seat.standing = confirmed.ride_id;
      return {
        assignment: {
          rideId: confirmed.ride_id,
          driverId,
          offerId,
          fence: confirmed.fence,
          assignedAt: confirmed.assigned_at.toISOString(),
        },
      };
    },
    decline: async ({ offerId, leaseToken, reasonCode }) => {
      if (seat.push?.offer.offerId === offerId) await endPush(seat.push);
      const claim = { offerId, leaseToken, driverId };
      orRefuse(await leasing.decline(homeOf(offerId, 'offer_not_found'), claim, reasonCode ?? 'driver_declined'));
      return { offerId, status: 'declined' };
    },
    arrive: advance('driver_arrived'),
    start: advance('in_progress'),
    complete: advance('completed'),
    cancel: async ({ rideId, reasonCode }) => {
      const home = homeOf(rideId, 'ride_not_found');
      if ((await regions.byNumber(home)) === null) throw new EventRefused('ride_not_found');
      orRefuse(await leasing.unassign(home, { rideId, driverId, reason: reasonCode }));
      loseRide(seat, rideId.toLowerCase());
      return { rideId, status: 'searching' };
    },
  };
}
