/** A city with match rounds to run by hand, and nothing else around them. */
import { noFaults } from '../../src/dispatch/faults.ts';
import { watchPickups } from '../../src/dispatch/pickups.ts';
import { runRound } from '../../src/dispatch/round.ts';
import { Supply } from '../../src/dispatch/supply.ts';
import { createLeasing } from '../../src/leasing/leasing.ts';
import * as transitions from '../../src/leasing/transitions.ts';
import { createMetrics, type Metrics } from '../../src/ops/metrics.ts';
import { Regions } from '../../src/regions.ts';
import { newRide, openCity, type City } from './city.ts';

export interface Town extends City {
  /** Runs a round now, with every waiting ride due; the offers it made, as `ride driver`. */
  readonly round: () => Promise<string[]>;
  /** Looks once at the drivers on their way. */
  readonly watch: () => Promise<void>;
  readonly ask: (patch?: Partial<transitions.NewRide>) => Promise<string>;
  readonly profile: (driverId: string, columns: Record<string, unknown>) => Promise<unknown>;
  /** As if the ride had waited so long. */
  readonly letWait: (rideId: string, ms: number) => Promise<unknown>;
  readonly metrics: Metrics;
  readonly reasonOfEnd: (rideId: string) => Promise<unknown>;
}

export async function openTown(drivers: number, policy: Parameters<typeof openCity>[1] = {}): Promise<Town> {
  const city = await openCity(drivers, policy);
  const { sql, region } = city;
  const metrics = createMetrics();
  const leasing = createLeasing(city.database, metrics, { tell: () => {}, wake: () => {}, regionId: String });
  const regions = new Regions(city.database);
  const known = (await regions.byNumber(region))!;
  await sql`insert into presence_epochs (region, since) values (${region}, now() - interval '1 day')`;
  return {
    ...city,
    metrics,
    [Symbol.asyncDispose]: () => city[Symbol.asyncDispose](),
    round: async () => {
      await sql`update rides set queue_at = requested_at where queue_at is not null`;
      const before = await sql<{ id: string }[]>`select id from offers`;
      await runRound({ sql, leasing, regions, metrics, faults: noFaults, supply: new Supply(sql) }, known);
      const made = await sql<{ ride_id: string; driver_id: string }[]>`
        select ride_id, driver_id from offers where id <> all(${before.map(({ id }) => id)}::uuid[]) order by driver_id`;
      return made.map(({ ride_id: rideId, driver_id: driverId }) => `${rideId} ${driverId}`);
    },
    watch: () => watchPickups({ sql, leasing, regions, metrics }, known),
    ask: async (patch = {}) => (await transitions.createRides(sql, region, [newRide(region, patch)]))[0]!.ride_id,
    profile: (driverId, columns) =>
      sql`update driver_state set ${sql(columns as { seats: number })} where driver_id = ${driverId}`,
    letWait: async (rideId, ms) => {
      const by = `${ms} milliseconds`;
      await sql.begin(async (tx) => {
        await tx`update rides set requested_at = requested_at - ${by}::interval,
          excluded_at = array(select at - ${by}::interval from unnest(excluded_at) at) where id = ${rideId}`;
        await tx`update ride_events set at = at - ${by}::interval where ride_id = ${rideId} and seq = 1`;
      });
    },
    reasonOfEnd: async (rideId) => {
      const [row] = await sql<{ reason: string }[]>`
        select reason from ride_events where ride_id = ${rideId} and type = 'no_drivers_available'`;
      return row?.reason;
    },
  };
}
