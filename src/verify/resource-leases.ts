/** Invariant 8: the terms of resource leases. They belong to no region. */
import { runChecks, type Source, type Tally } from './checks.ts';
import { inRange, paramsOf, type Range, type Reader } from './reader.ts';

const within = inRange('resource', 'text').replace('region = $1::int2', '$1::int2 = 0');

/** Of fences: the next of the same epoch, or the first of a later one, which began when the database was promoted or restored. */
const follow = (fence: string, next: string): string =>
  `(${next} = ${fence} + 1 or (${isFirst(next)} and ${next} >> 32 > ${fence} >> 32))`;
/** The first of its epoch. */
const isFirst = (fence: string): string => `${fence} & 4294967295 = 1`;

const isOpen = `l.status in ('active', 'confirmed')`;

const terms: Source = {
  name: `format('term %s of %s', t.fence, t.resource)`,
  // With the term before, by its fence.
  from: `(select * from resource_lease_terms where ${within}) t left join lateral (
    select * from resource_lease_terms b where b.resource = t.resource and b.fence < t.fence
    order by b.fence desc limit 1) p on true`,
  checks: [
    {
      id: 'I8a',
      of: 'p.fence is not null',
      holds: 't.granted_at >= p.ended_at',
      shows: `format('granted %s, the one before ended %s', t.granted_at, p.ended_at)`,
    },
    { id: 'I8b', holds: follow('coalesce(p.fence, 0)', 't.fence'), shows: `format('it comes after %s', p.fence)` },
    {
      id: 'I8c',
      holds: `t.granted_at <= coalesce(t.renewed_at, t.granted_at) and t.granted_at <= coalesce(t.confirmed_at, t.granted_at)
        and coalesce(t.renewed_at, t.ended_at) <= t.ended_at and coalesce(t.confirmed_at, t.ended_at) <= t.ended_at
        and t.granted_at <= t.ended_at and (t.renewals > 0) = (t.renewed_at is not null)`,
      shows: `format('granted %s, renewed %s (%s ×), confirmed %s, ended %s',
        t.granted_at, t.renewed_at, t.renewals, t.confirmed_at, t.ended_at)`,
    },
  ],
};

const resources: Source = {
  name: `format('resource %s', l.resource)`,
  // With the last of its terms that ended.
  from: `(select * from resource_leases where ${within}) l left join lateral (
    select * from resource_lease_terms t where t.resource = l.resource order by t.fence desc limit 1) t on true`,
  checks: [
    {
      id: 'I8a',
      of: `${isOpen} and t.fence is not null`,
      holds: 'l.granted_at >= t.ended_at',
      shows: `format('granted %s, the one before ended %s', l.granted_at, t.ended_at)`,
    },
    {
      id: 'I8b',
      holds: `case when ${isOpen} then ${follow('coalesce(t.fence, 0)', 'l.fence')} else l.fence = coalesce(t.fence, 0) end`,
      shows: `format('fence %s, %s, and the last term that ended has %s', l.fence, l.status, t.fence)`,
    },
    {
      id: 'I8d',
      of: `not ${isOpen} and l.fence = t.fence`,
      holds: `t.ended_as = l.status and t.ended_at = l.ends_at and t.token_hash = l.token_hash`,
      shows: `format('%s at %s, its term %s at %s', l.status, l.ends_at, t.ended_as, t.ended_at)`,
    },
  ],
};

export const checkResourceLeases = (reader: Reader, tally: Tally, range: Range): Promise<void> =>
  runChecks(reader, tally, { sources: [resources, terms] }, paramsOf(range));
