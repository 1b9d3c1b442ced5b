/** Invariant 8: the terms of resource leases. They belong to no region. */
import { runChecks, type Source, type Tally } from './checks.ts';
import { inRange, type Range, type Reader } from './reader.ts';

const within = inRange('resource', 'text').replace('region = $1::int2', '$1::int2 = 0');
const isOpen = `l.status in ('active', 'confirmed')`;

/** The term before, by its fence. */
const before = (row: string): string => `left join lateral (
  select * from resource_lease_terms b where b.resource = ${row}.resource and b.fence = ${row}.fence - 1 offset 0) p on true`;

const terms: Source = {
  name: `format('term %s of %s', t.fence, t.resource)`,
  from: `(select * from resource_lease_terms where ${within}) t ${before('t')}`,
  checks: [
    {
      id: 'I8a',
      of: 'p.fence is not null',
      holds: 't.granted_at >= p.ended_at',
      shows: `format('granted %s, the one before ended %s', t.granted_at, p.ended_at)`,
    },
    { id: 'I8b', holds: 't.fence = 1 or p.fence is not null', shows: `'there is none before it'` },
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
  from: `(select * from resource_leases where ${within}) l ${before('l')}
    left join lateral (select count(*) as terms from resource_lease_terms t where t.resource = l.resource offset 0) h on true
    left join lateral (select * from resource_lease_terms t where t.resource = l.resource and t.fence = l.fence offset 0) t on true`,
  checks: [
    {
      id: 'I8a',
      of: `${isOpen} and p.fence is not null`,
      holds: 'l.granted_at >= p.ended_at',
      shows: `format('granted %s, the one before ended %s', l.granted_at, p.ended_at)`,
    },
    {
      id: 'I8b',
      holds: `h.terms = l.fence - (${isOpen})::int`,
      shows: `format('fence %s, %s, and %s terms that ended', l.fence, l.status, h.terms)`,
    },
    {
      id: 'I8d',
      of: `not ${isOpen} and l.fence > 0`,
      holds: `t.ended_as = l.status and t.ended_at = l.ends_at and t.token_hash = l.token_hash`,
      shows: `format('%s at %s, its term %s at %s', l.status, l.ends_at, t.ended_as, t.ended_at)`,
    },
  ],
};

export const checkResourceLeases = (reader: Reader, tally: Tally, range: Range): Promise<void> =>
  runChecks(reader, tally, { sources: [resources, terms] }, range);
