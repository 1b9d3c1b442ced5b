/**
 * "Too late" is judged by the last moment at which the service is known to have lived, not by the present: a history
 * that was recorded yesterday, by a service that was stopped with rides open, isn't broken by lying around.
 */
import type { Reader } from './reader.ts';

/** What a sweep, a round or a restart may take beyond the policy's own durations. */
export const GRACE = '30 s';

export interface SignsOfLife {
  /** The last moment that anything of the region was recorded, as text of the database. */
  readonly lastSignAt: string;
  /** Since when drivers' positions are known: before, patience stands still. */
  readonly positionsSince: string;
}

/** The newest rides are enough: requests and rides under way are among them, or nothing moves. */
const NEWEST_RIDES = 2_000;

export async function readSignsOfLife(reader: Reader, region: number): Promise<SignsOfLife> {
  const [recorded] = await reader.ask<{ at: string }>(
    `select least(clock_timestamp(), greatest('-infinity',
      (select max(updated_at) from driver_state where region = $1::int2),
      (select max(updated_at) from (
        select updated_at from rides where region = $1::int2 order by id desc limit ${NEWEST_RIDES}) newest)))::text as at`,
    [region],
  );
  // On a standby the unlogged tables can't even be named.
  const [server] = await reader.ask<{ is_standby: boolean }>('select pg_is_in_recovery() as is_standby', []);
  if (server!.is_standby) return { lastSignAt: recorded!.at, positionsSince: '-infinity' };
  const [seen] = await reader.ask<{ at: string; since: string }>(
    `select greatest($2::text::timestamptz, (
        select least(clock_timestamp(), coalesce(max(seen_at), '-infinity')) from driver_presence where region = $1::int2))::text as at,
      coalesce((select since from presence_epochs where region = $1::int2), '-infinity')::text as since`,
    [region, recorded!.at],
  );
  return { lastSignAt: seen!.at, positionsSince: seen!.since };
}
