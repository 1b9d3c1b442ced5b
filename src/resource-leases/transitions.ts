/** The functions of resource leases on sets: one call is one round trip and one transaction. */
import type { AcquireRequest, ClaimRefusal, LeaseClaim } from '../client/leases/contract.ts';
import type { Sql } from '../database/connection.ts';

export interface AcquireAsk {
  readonly request: AcquireRequest;
  readonly token: string;
  /** Its place in the queue, if it has one. */
  readonly ticket: number | null;
}

/** Of each ask one row for each resource that it got, or that it couldn't get. */
export interface AcquireRow {
  readonly ord: number;
  readonly refused: 'held' | 'lease_expired' | 'idempotency_key_reused' | 'busy' | null;
  readonly applied: boolean;
  readonly resource: string;
  /** Null: free, and yet not for this ask, which isn't the first in the queue or needs others as well. */
  readonly holder: string | null;
  readonly fence: number;
  /** Until the term's end; of a refusal until it may be worth asking again, null when nothing is known. */
  readonly left_ms: number | null;
}

export function resourcesOf(request: AcquireRequest): readonly string[] {
  if ('resource' in request) return [request.resource];
  return 'anyOf' in request ? request.anyOf : request.allOf;
}

export async function acquireLeases(sql: Sql, asks: readonly AcquireAsk[], wait: boolean): Promise<AcquireRow[]> {
  const flat = asks.flatMap(({ request }, i) => resourcesOf(request).map((resource) => ({ of: i + 1, resource })));
  const all = <Key extends 'ttlMs' | 'maxLifetimeMs' | 'lockDelayMs' | 'graceMs' | 'softTtlMs'>(key: Key) =>
    asks.map(({ request }) => request[key] ?? null);
  return sql<AcquireRow[]>`select ord, refused, applied, resource, holder, fence::float8, left_ms from acquire_leases(
    ${flat.map(({ of }) => of)}::int[], ${flat.map(({ resource }) => resource)}::text[],
    ${asks.map(({ request }) => ('allOf' in request ? 'all' : 'any'))}::text[], ${asks.map(({ request }) => request.holder)}::text[],
    ${asks.map(({ token }) => token)}::text[], ${asks.map(({ request }) => request.formerToken ?? null)}::text[],
    ${all('ttlMs')}::bigint[], ${all('maxLifetimeMs')}::bigint[], ${all('lockDelayMs')}::bigint[],
    ${all('graceMs')}::bigint[], ${all('softTtlMs')}::bigint[],
    ${asks.map(({ ticket }) => ticket)}::bigint[], ${asks.map(({ request }) => request.priority ?? 0)}::int[], ${wait})`;
}

export interface RenewRow {
  readonly refused: ClaimRefusal | 'busy' | null;
  readonly applied: boolean;
  readonly fence: number;
  /** Null: confirmed, without an end. */
  readonly left_ms: number | null;
}

export const renewLeases = async (sql: Sql, claims: readonly LeaseClaim[], wait: boolean): Promise<RenewRow[]> =>
  sql<RenewRow[]>`select refused, applied, fence::float8, left_ms from renew_leases(
    ${claims.map(({ resource }) => resource)}::text[], ${claims.map(({ token }) => token)}::text[], ${wait}) order by ord`;

export interface ReleaseRow {
  readonly refused: ClaimRefusal | 'busy' | null;
  readonly applied: boolean;
}

export const releaseLeases = async (sql: Sql, claims: readonly LeaseClaim[], wait: boolean): Promise<ReleaseRow[]> =>
  sql<ReleaseRow[]>`select refused, applied from release_leases(
    ${claims.map(({ resource }) => resource)}::text[], ${claims.map(({ token }) => token)}::text[], ${wait}) order by ord`;

export interface ConfirmRow {
  readonly refused: ClaimRefusal | null;
  readonly applied: boolean;
  readonly fence: number;
  readonly confirmed_at: Date;
  readonly data: unknown;
}

export async function confirmLease(sql: Sql, { resource, token }: LeaseClaim, data: unknown): Promise<ConfirmRow> {
  const json = data === undefined ? null : JSON.stringify(data);
  const [row] = await sql<ConfirmRow[]>`select refused, applied, fence::float8, confirmed_at, data
    from confirm_lease(${resource}, ${token}, ${json}::text::jsonb)`;
  return row!;
}

export interface BreakRow {
  readonly refused: 'not_held' | null;
  readonly resource: string;
  readonly holder: string;
  readonly fence: number;
  readonly ends_in_ms: number;
}

/** Undefined: nobody ever leased it. With a fence only that term, not the one that may have come after it. */
export async function breakLease(
  sql: Sql,
  {
    resource,
    fence,
    afterMs = 0,
  }: { readonly resource: string; readonly fence?: number | undefined; readonly afterMs?: number | undefined },
  by: string,
): Promise<BreakRow | undefined> {
  const [row] = await sql<BreakRow[]>`select refused, resource, holder, fence::float8, ends_in_ms
    from break_lease(${resource}, ${fence ?? null}::bigint, ${afterMs}::bigint, ${by})`;
  return row;
}

/** Ends up to `limit` terms that are over; each with how long after it became free. */
export const sweepLeases = async (sql: Sql, limit: number): Promise<{ resource: string; late_ms: number }[]> =>
  sql`select resource, late_ms from sweep_leases(${limit}::int)`;

export interface LeaseAhead {
  readonly resource: string;
  readonly fence: number;
  readonly renewals: number;
  /** How long after its last renewal it may be taken. */
  readonly free_after_ms: number;
}

/** Terms that were granted or renewed in the future: the database's clock was put back. */
export const leasesAhead = async (sql: Sql, limit: number): Promise<LeaseAhead[]> =>
  sql<LeaseAhead[]>`select resource, fence::float8, renewals, free_after_ms from leases_ahead(${limit}::int)`;

/** For a caller who has known of each, as it is, for that long. */
export async function endLeasesAhead(sql: Sql, leases: readonly LeaseAhead[]): Promise<void> {
  await sql`select end_leases_ahead(${leases.map(({ resource }) => resource)}::text[],
    ${leases.map(({ fence }) => fence)}::bigint[], ${leases.map(({ renewals }) => renewals)}::int[])`;
}

export async function dropStaleTickets(sql: Sql, limit: number): Promise<number> {
  const [row] = await sql<{ dropped: number }[]>`select drop_stale_tickets(${limit}::int) as dropped`;
  return row!.dropped;
}

export async function takeTicket(sql: Sql, resources: readonly string[], priority: number): Promise<number> {
  const [row] = await sql<{ ticket: number }[]>`
    select take_ticket(${resources as string[]}::text[], ${priority}::int)::float8 as ticket`;
  return row!.ticket;
}

/** Says that these still wait; answers with those that may find a resource free. */
export async function seeTickets(sql: Sql, tickets: readonly number[]): Promise<number[]> {
  const [row] = await sql<
    { callable: string[] }[]
  >`select see_tickets(${tickets as number[]}::bigint[])::text[] as callable`;
  return row!.callable.map(Number);
}

export async function dropTickets(sql: Sql, tickets: readonly number[]): Promise<void> {
  await sql`select drop_tickets(${tickets as number[]}::bigint[])`;
}

/**
 * Whether a term is still its resource's newest; when it is, no newer one begins before the transaction that asks has
 * ended. Ask first in the transaction of a guarded write, and write nothing when the answer is no.
 */
export async function guardFence(sql: Sql, resource: string, fence: number): Promise<boolean> {
  const [row] = await sql<{ held: boolean }[]>`select guard_fence(${resource}, ${fence}::bigint) as held`;
  return row!.held;
}
