/**
 * The shapes of the REST contract: each is checked on the way in, described in OpenAPI, and what an answer is
 * serialised by. Those with an `id` of their own become components of the API's description.
 */
import { z } from 'zod';
import { DRIVER_STATUSES, OFFER_STATUSES, RIDE_EVENT_TYPES, RIDE_STATUSES } from '../records.ts';

/** A whole number within bounds. */
export const bounded = ({ min, max }: { min: number; max: number }) => z.int().min(min).max(max);

/** Any text of so many bytes that the database can keep. */
export const named = ({ min, max }: { min: number; max: number }) =>
  z
    .string()
    .refine((text) => text.isWellFormed() && !text.includes('\0') && within(Buffer.byteLength(text), min, max), {
      error: `must be ${min}–${max} bytes of UTF-8, without NUL`,
    });
const within = (value: number, min: number, max: number): boolean => value >= min && value <= max;

/** Regions, riders and drivers are named by the fleet. */
export const FleetId = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,64}$/, 'must be 1–64 of A–Z, a–z, 0–9, _ and -')
  .meta({ description: 'The fleet’s own id.', examples: ['d-17'] });

/** Rides and offers are named by the server: a UUIDv7. Written in capitals it is the same id. */
export const ServerId = z
  .guid('must be a UUID')
  .toLowerCase()
  .meta({ examples: ['01993f3a-7c5e-7001-9d1c-3f0a6b1c2d3e'] });

export const VehicleClass = z
  .string()
  .regex(/^[a-z0-9_-]{1,32}$/, 'must be 1–32 of a–z, 0–9, _ and -')
  .meta({ examples: ['economy'] });

export const Seats = z
  .int()
  .min(1)
  .max(100)
  .meta({ description: 'For how many riders.', examples: [2] });

export const Attributes = z
  .array(z.string().regex(/^[a-z0-9_-]{1,32}$/, 'must be 1–32 of a–z, 0–9, _ and -'))
  .max(20)
  .transform((names) => [...new Set(names)].toSorted())
  .meta({ examples: [['wheelchair', 'pet']] });
/** As it is kept: in order, each once. */
const KeptAttributes = z.array(z.string());

export const ReasonCode = z
  .string()
  .regex(/^[a-z0-9_]{1,64}$/, 'must be 1–64 of a–z, 0–9 and _')
  .meta({ description: 'Why, in the fleet’s own words.', examples: ['changed_mind'] });

export const LeaseToken = z
  .string()
  .regex(/^[A-Za-z0-9_-]{1,128}$/, 'must be 1–128 of A–Z, a–z, 0–9, _ and -')
  .meta({ description: 'Proves who holds the lease.', examples: ['q83vEjRWeJCrze8SNFZ4kA'] });

export const Point = z
  .strictObject({ lat: z.number().min(-90).max(90), lng: z.number().min(-180).max(180) })
  .meta({ id: 'Point', description: 'WGS 84, degrees.', examples: [{ lat: 40.7484, lng: -73.9857 }] });

export const Time = z.iso.datetime().meta({ examples: ['2026-11-21T08:15:30.125Z'] });
/** One that is asked for: of a form and a century that the database reads as well. */
export const NearTime = Time.max(40).refine((time) => time >= '2000' && time < '2200', 'must lie in 2000–2199');
const Fence = z
  .int()
  .meta({ description: 'Counts the driver’s leases: of two holders the one with the higher fence is newer.' });
const Version = z.int().meta({ description: '+1 at every change.' });
export const DurationMs = z.int().min(0);

export const RideStatus = z.enum(RIDE_STATUSES);
export const DriverStatus = z.enum(DRIVER_STATUSES);
export const RideEventType = z.enum(RIDE_EVENT_TYPES);

export const Assignment = z
  .object({ rideId: ServerId, driverId: FleetId, offerId: ServerId, fence: Fence, assignedAt: Time })
  .meta({ id: 'Assignment', description: 'A confirmed lease.' });

export const Ride = z
  .object({
    id: ServerId,
    regionId: FleetId,
    riderId: FleetId,
    status: RideStatus,
    vehicleClass: VehicleClass,
    seats: z.int(),
    attributes: KeptAttributes,
    acceptsLowerClass: z.boolean(),
    pickup: Point,
    dropoff: Point,
    requestedAt: Time,
    patienceUntil: Time.meta({ description: 'The search ends here, unless an offer is still open then.' }),
    rescueUntil: Time.nullable().meta({ description: 'It found nobody, and waits for an operator until then.' }),
    heldUntil: Time.nullable().meta({ description: 'An operator keeps it from the match rounds until then.' }),
    stalledSince: Time.nullable().meta({ description: 'Since then its driver hasn’t come nearer the pickup.' }),
    offersMade: z.int(),
    assignment: Assignment.nullable().meta({
      description: 'Null until a driver has accepted, and to drivers other than that one.',
    }),
    cancellation: z
      .object({
        source: z.enum(['rider', 'driver', 'operator', 'system']),
        reasonCode: z.string(),
        phase: RideStatus.meta({ description: 'The status it was cancelled in.' }),
      })
      .nullable(),
    endedAt: Time.nullable(),
    policyVersion: z.int(),
    version: Version,
    updatedAt: Time,
  })
  .meta({ id: 'Ride', description: 'A rider’s request and what becomes of it.' });

export const TimelineEntry = z
  .object({
    seq: z.int().meta({ description: 'From 1, without gaps.' }),
    type: RideEventType,
    at: Time,
    driverId: FleetId.nullable(),
    offerId: ServerId.nullable(),
    fence: Fence.nullable(),
    reason: z.string().nullable(),
  })
  .meta({ id: 'TimelineEntry', description: 'One thing that happened to a ride.' });

export const CurrentOffer = z
  .object({
    offerId: ServerId,
    rideId: ServerId,
    leaseToken: LeaseToken.nullable().meta({ description: 'To the offer’s own driver alone; to others null.' }),
    fence: Fence,
    expiresInMs: DurationMs.meta({
      description: 'Until the acknowledgement the whole decision window, then what is left of it.',
    }),
    pickup: Point,
    dropoff: Point,
    pickupEtaS: z.number(),
  })
  .meta({ id: 'CurrentOffer', description: 'What a leased driver has to decide on.' });

export const CurrentAssignment = z
  .object({ ...Assignment.shape, pickup: Point, dropoff: Point, rideStatus: RideStatus })
  .meta({ id: 'CurrentAssignment', description: 'The ride that a driver is serving.' });

export const Driver = z
  .object({
    id: FleetId,
    regionId: FleetId,
    status: DriverStatus,
    vehicleClass: VehicleClass,
    seats: z.int(),
    attributes: KeptAttributes,
    maxPickupM: z.number().nullable(),
    shiftEndsAt: Time.nullable(),
    position: Point.nullable(),
    positionAt: Time.nullable(),
    fence: Fence,
    offer: CurrentOffer.nullable(),
    assignment: CurrentAssignment.nullable(),
    version: Version,
    updatedAt: Time,
  })
  .meta({ id: 'Driver', description: 'A driver’s profile, and what the driver is doing now.' });

export const Offer = z
  .object({
    id: ServerId,
    regionId: FleetId,
    rideId: ServerId,
    driverId: FleetId,
    status: z.enum(OFFER_STATUSES),
    fence: Fence,
    leaseToken: LeaseToken.nullable().meta({
      description:
        'Only while pending, to the offer’s own driver, and in the answer to the call that made the offer; null to ' +
        'whoever else reads it, the one who made it included.',
    }),
    expiresInMs: DurationMs.nullable().meta({
      description:
        'Until the acknowledgement the whole decision window, then what is left of it; null when it is over.',
    }),
    pickup: Point,
    dropoff: Point,
    pickupEtaS: z.number(),
    grantedAt: Time,
    receivedAt: Time.nullable(),
    expiresAt: Time,
    endedAt: Time.nullable(),
    endReason: z.string().nullable(),
    policyVersion: z.int(),
  })
  .meta({ id: 'Offer', description: 'What a driver sees of a lease; one for each term.' });

export const EndedOffer = z
  .object({ id: ServerId, rideId: ServerId, driverId: FleetId, status: z.enum(['declined', 'withdrawn']) })
  .meta({ id: 'EndedOffer' });

/** The parts of a request that many routes share. */
export const FleetIdParams = z.strictObject({ id: FleetId });
export const ServerIdParams = z.strictObject({ id: ServerId });
/** Some clients send `{}` where nothing is to be said. */
export const NoBody = z.strictObject({}).optional();
export const LeaseTokenBody = z.strictObject({ leaseToken: LeaseToken });
export const ReturnBody = z.strictObject({ leaseToken: LeaseToken, reasonCode: ReasonCode.optional() });
