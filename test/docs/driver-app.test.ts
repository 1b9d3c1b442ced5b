import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { refusals } from '../../domain/refusals.ts';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const page = read('docs/driver-app.md');

/** Those that the transitions name, that terms lapse with, and with which a late acknowledgement may be refused. */
const reasons = [
  ...[...read('src/leasing/leasing.ts').matchAll(/withdrawn(?:Notices)?\([^;]*?'(\w+)'\)/g)].map(
    ([, reason]) => reason!,
  ),
  ...['expired', 'undeliverable', 'released'],
  ...refusals.received.filter((code) => !['offer_not_found', 'wrong_driver', 'wrong_token', 'busy'].includes(code)),
];

it('the reasons for withdrawing an offer are described, and no other', () => {
  const table = page.slice(page.indexOf('| `reason`'), page.indexOf('Only `offer` is told'));
  const cells = [...table.matchAll(/^\| (`[^|]+) \|/gm)].map(([, cell]) => cell!).slice(1);
  const described = cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/g)].map(([, reason]) => reason!));
  expect(described.toSorted()).toEqual([...new Set(reasons)].toSorted());
});
