/** How wild a load was, and how wild it had to be: what never happened under it proves nothing. */
import type { Wild } from './pass.ts';
import type { Stories } from './stories.ts';

export interface Wildness extends Readonly<Wild> {
  readonly commands: number;
  readonly refused: number;
  /** Asks without answer. */
  readonly unknown: number;
  readonly okConfirms: number;
  readonly shown: number;
  /** Confirms, declines and releases that came too late: as the client knew, or by `lease_lost` and `lease_expired`. */
  readonly stale: number;
  readonly faults: number;
  /** Faults whose name has `kill` in it. */
  readonly kills: number;
}

export type Demand = readonly [name: keyof Wildness, atLeast: number];

const names = [
  'commands',
  'refused',
  'unknown',
  'okConfirms',
  'shown',
  'stale',
  'lostReplies',
  'expiriesDuringConfirm',
  'takeovers',
  'faults',
  'kills',
] as const satisfies readonly (keyof Wildness)[];

/** Of every history, whatever else is demanded. */
const LEAST: readonly Demand[] = [
  ['commands', 1],
  ['okConfirms', 1],
];

export const wildnessOf = ({ counts: { lines: _lines, ...counts } }: Stories, wild: Wild): Wildness => ({
  ...counts,
  ...wild,
});

/** `stale=200,kills=5` as demands, with those made of every history. Throws RangeError when it can't be understood. */
export function parseDemands(text: string): readonly Demand[] {
  const demands = new Map<keyof Wildness, number>(LEAST);
  for (const part of text.split(',').filter((each) => each !== '')) {
    const [, name, count] = /^(\w+)=(\d{1,12})$/.exec(part) ?? [];
    const known = names.find((each) => each === name);
    if (known === undefined) throw new RangeError(`"${part}" isn’t NAME=COUNT with a name of ${names.join(', ')}`);
    demands.set(known, Number(count));
  }
  return [...demands];
}
