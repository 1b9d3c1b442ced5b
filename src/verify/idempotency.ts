/** Whether what a repeated request would be answered with is there. */
import { runChecks, type Source, type Tally } from './checks.ts';
import { inRange, lookUp, paramsOf, type Range, type Reader } from './reader.ts';

const keys: Source = {
  name: `format('key %s of %s on %s', k.key, k.subject, k.route)`,
  from: `(select * from idempotency_keys where ${inRange('subject', 'text')}) k
    ${lookUp('rides', 'r', 'id = k.result_id')}
    ${lookUp('offers', 'o', 'id = k.result_id')}`,
  checks: [
    {
      id: 'I5b',
      holds: `case k.route when 'rides' then r.id is not null when 'offers' then o.id is not null
        else num_nonnulls(r.id, o.id) = 1 end`,
      shows: `format('%s isn''t there', k.result_id)`,
    },
  ],
};

export const checkKeys = (reader: Reader, tally: Tally, range: Range): Promise<void> =>
  runChecks(reader, tally, { sources: [keys] }, paramsOf(range));
