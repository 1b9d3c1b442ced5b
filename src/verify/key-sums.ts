/**
 * Whether an offer or an assignment was left out. They are judged where the events of a ride name them, and have no index
 * by ride; so those that no event names are found by sums: for each slice of the keys, how many were reached along the
 * rides and the sum of their hashes, beside the same of the tables themselves. Only where these differ, because something
 * is wrong or was written meanwhile, each row of a slice is asked whether an event names it, and judged if none does.
 *
 * The hashes' seed is drawn for each verification: keys that make up for each other by chance won't in the next.
 */
import { randomInt } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { inRange, paramsOf, walk, wholeOf, type Range, type Reader, type Walk } from './reader.ts';

const SLICES = 256;
const SEEDS = 2 ** 47;

/** How many keys there are in a slice, and the sum of their hashes. */
export interface KeySum {
  readonly slice: number;
  readonly offers: number;
  readonly offersSum: string;
  readonly assignments: number;
  readonly assignmentsSum: string;
}

/** A region's keys, cut into slices at these keys: the first slice is what is below them. */
export interface Slices {
  readonly region: number;
  readonly starts: readonly string[];
  readonly seed: number;
}

/**
 * The `KeySum`s of rows with `id`, an offer's key, and how many `offers` and `assignments` have it. `starts` and `seed` are
 * parameters.
 */
export const keySumsSql = (from: string, starts: string, seed: string): string => `
  select width_bucket(id, ${starts}::uuid[]) as slice,
    sum(offers)::float8 as offers, coalesce(sum(hash) filter (where offers > 0), 0)::text as "offersSum",
    sum(assignments)::float8 as assignments,
    (coalesce(sum(hash) filter (where assignments > 0), 0)
      + coalesce(sum(hash::numeric * (assignments - 1)) filter (where assignments > 1), 0))::text as "assignmentsSum"
  from (select *, uuid_hash_extended(id, ${seed}::int8) as hash from ${from} keyed) hashed group by slice`;

const tablesSql = keySumsSql(
  `(select id, 1 as offers, 0 as assignments from offers where ${inRange('id', 'uuid')}
    union all select offer_id, 0, 1 from assignments where ${inRange('offer_id', 'uuid')})`,
  '$4',
  '$5',
);

const numberOf = (uuid: string): bigint => BigInt(`0x${uuid.replaceAll('-', '')}`);
const uuidOf = (number: bigint): string =>
  number
    .toString(16)
    .padStart(32, '0')
    .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');

/** Slices of the same length: keys are made in the order of time, and those of one moment are neighbours. */
export async function cutIntoSlices(reader: Reader, region: number): Promise<Slices> {
  const keys = [
    ['offers', 'id'],
    ['assignments', 'offer_id'],
  ];
  const ends = keys.flatMap(([table, key]) =>
    ['asc', 'desc'].map(
      (order) => `(select ${key}::text as key from ${table} where region = $1::int2 order by ${key} ${order} limit 1)`,
    ),
  );
  const rows = await reader.ask<{ key: string }>(ends.join(' union all '), [region]);
  const [first, ...others] = rows.map(({ key }) => numberOf(key)).toSorted((a, b) => (a < b ? -1 : Number(a > b)));
  const seed = randomInt(SEEDS);
  if (first === undefined) return { region, starts: [], seed };
  const length = others.at(-1)! - first;
  const starts = Array.from({ length: SLICES }, (_, i) => uuidOf(first + (length * BigInt(i)) / BigInt(SLICES)));
  return { region, starts: [...new Set(starts)], seed };
}

/** The keys of a slice. */
function rangeOf({ region, starts }: Slices, slice: number): Range {
  const before = (start: string | undefined): string | null => {
    const number = start === undefined ? 0n : numberOf(start);
    return number === 0n ? null : uuidOf(number - 1n);
  };
  return { region, after: before(starts[slice - 1]), upTo: before(starts[slice]) };
}

/** What was added up, slice by slice. */
export class KeySums {
  readonly #slices = new Map<number, { counts: [number, number]; sums: [bigint, bigint] }>();

  add({ slice, offers, offersSum, assignments, assignmentsSum }: KeySum): void {
    const { counts, sums } = this.#slices.get(slice) ?? { counts: [0, 0], sums: [0n, 0n] };
    this.#slices.set(slice, {
      counts: [counts[0] + offers, counts[1] + assignments],
      sums: [sums[0] + BigInt(offersSum), sums[1] + BigInt(assignmentsSum)],
    });
  }

  /** The slices that aren't the same here and there. */
  differing(other: KeySums): number[] {
    const slices = new Set([...this.#slices.keys(), ...other.#slices.keys()]);
    return [...slices]
      .filter((slice) => !isDeepStrictEqual(this.#slices.get(slice), other.#slices.get(slice)))
      .toSorted((a, b) => a - b);
  }
}

/** The ranges of those slices whose keys aren't the ones that were reached. */
export async function findLeftOut(
  { reader, stepRowsMax, connections }: Pick<Walk, 'reader' | 'stepRowsMax' | 'connections'>,
  { slices, reached }: { readonly slices: Slices; readonly reached: KeySums },
): Promise<Range[]> {
  const there = new KeySums();
  const keys = { table: 'offers', key: 'id', type: 'uuid', over: wholeOf(slices.region) } as const;
  await walk({ reader, stepRowsMax, connections, ...keys }, async (range) => {
    const params = [...paramsOf(range), slices.starts, slices.seed];
    for (const sum of await reader.ask<KeySum>(tablesSql, params)) there.add(sum);
  });
  return there.differing(reached).map((slice) => rangeOf(slices, slice));
}
