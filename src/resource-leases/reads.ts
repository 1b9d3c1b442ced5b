/** What is known of resource leases: their state by the database's clock, and their terms. */
import type { Sql } from '../database/connection.ts';

export const LEASE_STATES = ['active', 'renewed', 'confirmed', 'released', 'expired', 'recovered', 'broken'] as const;
export type LeaseState = (typeof LEASE_STATES)[number];

export interface LeaseRecord {
  readonly resource: string;
  /** `renewed` is active, and renewed at least once. */
  readonly state: LeaseState;
  readonly holder: string;
  readonly fence: number;
  readonly grantedAt: string;
  readonly renewedAt: string | null;
  readonly renewals: number;
  readonly confirmedAt: string | null;
  readonly data: unknown;
  /** The end, past or to come; null for a confirmed one. */
  readonly endsAt: string | null;
  readonly expiresInMs: number | null;
}

export interface LeaseTermRecord {
  readonly fence: number;
  readonly holder: string;
  readonly grantedAt: string;
  readonly renewedAt: string | null;
  readonly renewals: number;
  readonly confirmedAt: string | null;
  readonly data: unknown;
  /** Null for the term that runs. */
  readonly endedAt: string | null;
  readonly endedAs: 'released' | 'expired' | 'recovered' | 'broken' | null;
  readonly endedBy: string | null;
}

interface Row {
  readonly resource: string;
  readonly state: LeaseState;
  readonly holder: string;
  readonly fence: number;
  readonly granted_at: Date;
  readonly renewed_at: Date | null;
  readonly renewals: number;
  readonly confirmed_at: Date | null;
  readonly data: unknown;
  readonly ends_at: Date | null;
  readonly left_ms: number | null;
  readonly broken_by: string | null;
}

/** A term that ran out is over, whether or not anybody has written that down. */
const recorded = (sql: Sql) => sql`
  select l.resource, l.holder, l.fence::float8, l.granted_at, l.renewed_at, l.renewals, l.confirmed_at, l.data, l.ends_at,
    greatest(0, floor(extract(epoch from l.ends_at - clock_timestamp()) * 1000))::float8 as left_ms, l.broken_by,
    case
      when l.status not in ('active', 'confirmed') then l.status
      when clock_timestamp() < l.ends_at or l.ends_at is null then
        case when l.status = 'active' and l.renewals > 0 then 'renewed' else l.status end
      when l.ends_at = l.break_at then 'broken'
      when l.ends_at = l.recover_at then 'recovered'
      else 'expired'
    end as state
  from resource_leases l`;

export async function findLease(sql: Sql, resource: string): Promise<LeaseRecord | null> {
  const [row] = await sql<Row[]>`${recorded(sql)} where l.resource = ${resource} and l.fence > 0`;
  return row === undefined ? null : leaseOf(row);
}

const SCANNED_MAX = 5_000;

/**
 * A page of leases in the order of their names. Of a filter's rare hits it looks through so many rows and no more: a
 * short page with a cursor says that there may be others.
 */
export async function listLeases(
  sql: Sql,
  query: { readonly state: LeaseState | undefined; readonly after: string; readonly limit: number },
): Promise<{ items: LeaseRecord[]; next: string | null }> {
  const { state, after, limit } = query;
  const scanned = state === undefined ? limit : SCANNED_MAX;
  const rows = await sql<Row[]>`
    ${recorded(sql)} where l.resource > ${after} and l.fence > 0 order by l.resource limit ${scanned + 1}`;
  const looked = rows.slice(0, scanned);
  const hits = looked.filter((row) => fits(row.state, state));
  const page = hits.slice(0, limit);
  const last = hits.length > limit ? page.at(-1) : rows.length > scanned ? looked.at(-1) : undefined;
  return { items: page.map(leaseOf), next: last?.resource ?? null };
}

/** Whoever asks for active ones means the renewed as well. */
const fits = (state: LeaseState, wanted: LeaseState | undefined): boolean =>
  wanted === undefined || state === wanted || (wanted === 'active' && state === 'renewed');

/** A resource's terms, the newest first; null when it was never leased. */
export async function listTerms(
  sql: Sql,
  resource: string,
  query: { readonly before: number | null; readonly limit: number },
): Promise<{ items: LeaseTermRecord[]; next: string | null } | null> {
  const [current] = await sql<Row[]>`${recorded(sql)} where l.resource = ${resource} and l.fence > 0`;
  if (current === undefined) return null;
  const { before, limit } = query;
  const ended = await sql<
    (Omit<Row, 'state'> & { ended_at: Date; ended_as: LeaseTermRecord['endedAs']; ended_by: string | null })[]
  >`
    select t.fence::float8, t.holder, t.granted_at, t.renewed_at, t.renewals, t.confirmed_at, t.data, t.ended_at, t.ended_as, t.ended_by
    from resource_lease_terms t where t.resource = ${resource} and t.fence < ${before ?? Number.MAX_SAFE_INTEGER}::float8
    order by t.fence desc limit ${limit + 1}`;
  const items = ended.map((row) => ({
    ...termOf(row),
    endedAt: row.ended_at.toISOString(),
    endedAs: row.ended_as,
    endedBy: row.ended_by,
  }));
  // Not in the history yet: it runs, or nobody has found out that it is over.
  if (before === null && items[0]?.fence !== current.fence)
    items.unshift(runningTerm(current) as (typeof items)[number]);
  const page = items.slice(0, limit);
  return { items: page, next: items.length > limit ? String(page.at(-1)!.fence) : null };
}

function runningTerm(row: Row): LeaseTermRecord {
  const over = { broken: 'broken', recovered: 'recovered', expired: 'expired' } as const;
  const endedAs = row.state in over ? over[row.state as keyof typeof over] : null;
  return {
    ...termOf(row),
    endedAt: endedAs === null ? null : row.ends_at!.toISOString(),
    endedAs,
    endedBy: endedAs === 'broken' ? row.broken_by : null,
  };
}

const termOf = (row: Omit<Row, 'state'>): Omit<LeaseTermRecord, 'endedAt' | 'endedAs' | 'endedBy'> => ({
  fence: row.fence,
  holder: row.holder,
  grantedAt: row.granted_at.toISOString(),
  renewedAt: row.renewed_at?.toISOString() ?? null,
  renewals: row.renewals,
  confirmedAt: row.confirmed_at?.toISOString() ?? null,
  data: row.data,
});

const leaseOf = (row: Row): LeaseRecord => ({
  resource: row.resource,
  state: row.state,
  holder: row.holder,
  fence: row.fence,
  grantedAt: row.granted_at.toISOString(),
  renewedAt: row.renewed_at?.toISOString() ?? null,
  renewals: row.renewals,
  confirmedAt: row.confirmed_at?.toISOString() ?? null,
  data: row.data,
  endsAt: row.ends_at?.toISOString() ?? null,
  expiresInMs: row.left_ms,
});

/**
 * From the last sign of life of the holder before (its release, or its last renewal) to this term's grant, in
 * milliseconds; null for a resource's first term.
 */
export async function msSinceFormerHolder(sql: Sql, resource: string, fence: number): Promise<number | null> {
  const [row] = await sql<{ ms: number }[]>`
    select extract(epoch from l.granted_at - case t.ended_as when 'expired' then coalesce(t.renewed_at, t.granted_at)
      else t.ended_at end)::float8 * 1000 as ms
    from resource_leases l join resource_lease_terms t on t.resource = l.resource and t.fence = l.fence - 1
    where l.resource = ${resource} and l.fence = ${fence}`;
  return row?.ms ?? null;
}
