/** The Idempotency-Keys that the service kept, beside those of the history. Read in the order of their own key. */
import type { HistoryPass } from './pass.ts';

interface KeyRow {
  readonly subject: string;
  readonly route: string;
  readonly key: string;
  readonly resultId: string;
}

const STEP_ROWS = 5_000;

const keysSql = `
select subject, route, key, result_id::text as "resultId" from idempotency_keys
where region = $1::int2 and (subject, route, key) > ($2::text, $3::text, $4::text)
order by subject, route, key limit ${STEP_ROWS}`;

const commands: Readonly<Record<string, 'request' | 'offer'>> = { rides: 'request', offers: 'offer' };

export async function checkKeys(pass: HistoryPass): Promise<void> {
  if (pass.stories.keys.size === 0) return;
  const found = new Map<string, string>();
  let after: Pick<KeyRow, 'subject' | 'route' | 'key'> | null = { subject: '', route: '', key: '' };
  while (after !== null) {
    const rows: KeyRow[] = await pass.reader.ask<KeyRow>(keysSql, [pass.region, after.subject, after.route, after.key]);
    for (const row of rows) judgeKey(pass, row, found);
    after = rows.length < STEP_ROWS ? null : rows.at(-1)!;
  }
}

function judgeKey({ tally, stories }: HistoryPass, { route, key, resultId }: KeyRow, found: Map<string, string>): void {
  const command = commands[route];
  if (command === undefined) return;
  const name = `${command} ${key}`;
  const asks = stories.keys.get(name);
  if (asks === undefined) return;
  const other = found.get(name);
  found.set(name, resultId);
  const told = command === 'request' ? asks.rideId : asks.offerId;
  tally.judge(
    'H4b',
    other === undefined && (told ?? resultId) === resultId,
    () => `${asks.toString()}: its key leads to ${resultId}, and to ${told ?? other}`,
  );
  // A refused lease keeps no key: what a network delivers twice may be refused, and then granted.
  if (command === 'request')
    tally.judge('H3b', asks.mayBeDone, () => `${asks.toString()}: was refused, and made ${resultId}`);
  // Nobody was told, so only the key says whose it is.
  if (asks.isDone) return;
  if (command === 'request') stories.ride(resultId).request ??= asks;
  else stories.offer(resultId).grant ??= asks;
}
