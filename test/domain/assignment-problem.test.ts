import * as fc from 'fast-check';
import { linearSumAssignment } from 'linear-sum-assignment';
import { describe, expect, test } from 'vitest';
import { type AssignmentProblem, problemOf as listEdges, solveAssignment } from '../../domain/assignment-problem.ts';
import { createRandom, type Random } from '../../domain/random.ts';

type Edges = readonly (readonly [column: number, cost: number])[];

function problemOf(columns: number, edgesOfRow: readonly Edges[], tiers?: readonly number[]): AssignmentProblem {
  const problem = listEdges(
    edgesOfRow,
    columns,
    ([column]) => column,
    ([, cost]) => cost,
  );
  return { ...problem, ...(tiers && { tier: Int32Array.from(tiers) }) };
}

const solve = (problem: AssignmentProblem): Int32Array => solveAssignment(problem).columnOfRow;

interface Outcome {
  /** How many rows of each tier, lowest first. */
  matched: number[];
  cost: number;
}

function outcomeOf(edgesOfRow: readonly Edges[], columnOfRow: Int32Array, tiers?: readonly number[]): Outcome {
  const used = columnOfRow.filter((column) => column !== -1);
  expect(new Set(used).size, 'each column is used once').toBe(used.length);
  expect(columnOfRow.length).toBe(edgesOfRow.length);
  const outcome = weigh(edgesOfRow, columnOfRow, tiers);
  expect(outcome.cost, 'only edges are used').toBeLessThan(Infinity);
  return outcome;
}

function weigh(edgesOfRow: readonly Edges[], columnOfRow: Int32Array, tiers?: readonly number[]): Outcome {
  const ranks = [...new Set(tiers ?? [0])].sort((a, b) => a - b);
  const matched = [...edgesOfRow.entries()].filter(([row]) => columnOfRow[row] !== -1);
  return {
    matched: ranks.map((rank) => matched.filter(([row]) => (tiers?.[row] ?? 0) === rank).length),
    cost: matched.reduce((sum, [row, edges]) => sum + costOf(edges, columnOfRow[row]), 0),
  };
}

function costOf(edges: Edges, column: number | undefined): number {
  return edges.reduce((least, edge) => (edge[0] === column ? Math.min(least, edge[1]) : least), Infinity);
}

/** Tries every matching. */
function bruteForce(edgesOfRow: readonly Edges[], tiers?: readonly number[]): Outcome {
  const columnOfRow = new Int32Array(edgesOfRow.length).fill(-1);
  let best: Outcome = { matched: [], cost: Infinity };
  const tryFrom = (row: number): void => {
    if (row === edgesOfRow.length) {
      const outcome = weigh(edgesOfRow, columnOfRow, tiers);
      if (isBetter(outcome, best)) best = outcome;
      return;
    }
    tryFrom(row + 1);
    for (const [column] of edgesOfRow[row] ?? []) {
      if (columnOfRow.includes(column)) continue;
      columnOfRow[row] = column;
      tryFrom(row + 1);
      columnOfRow[row] = -1;
    }
  };
  tryFrom(0);
  return best;
}

function isBetter(a: Outcome, b: Outcome): boolean {
  for (const [tier, count] of a.matched.entries()) {
    const other = b.matched[tier] ?? 0;
    if (count !== other) return count > other;
  }
  return a.cost < b.cost;
}

/** Missing edges at a price that no sum of real ones reaches. */
function oracle(columns: number, edgesOfRow: readonly Edges[]): Outcome {
  const missing = 1e7;
  const dense = edgesOfRow.map((edges) => {
    const costs = new Float64Array(columns).fill(missing);
    for (const [column] of edges) costs[column] = costOf(edges, column);
    return costs;
  });
  const { rowAssignments } = linearSumAssignment(dense, { maximaze: false });
  const columnOfRow = Int32Array.from(rowAssignments, (column, row) => {
    return dense[row]?.[column] === missing ? -1 : column;
  });
  return outcomeOf(edgesOfRow, columnOfRow);
}

function randomEdges(random: Random, columns: number, degree: number, cost: () => number): Edges {
  const reached = new Set(Array.from({ length: degree }, () => random.int(0, columns - 1)));
  return [...reached].map((column) => [column, cost()] as const);
}

/** Rows and columns are points in a square of 1 km; a row knows its nearest columns. */
function planar(random: Random, rows: number, columns: number, degree: number): Edges[] {
  const points = Array.from({ length: columns }, () => [random.next(), random.next()] as const);
  return Array.from({ length: rows }, () => {
    const [x, y] = [random.next(), random.next()];
    const edges = points.map(([px, py], column) => [column, 1000 * Math.hypot(px - x, py - y)] as const);
    return edges.sort((a, b) => a[1] - b[1]).slice(0, degree);
  });
}

const smallProblems = fc.integer({ min: 1, max: 5 }).chain((columns) =>
  fc.record({
    columns: fc.constant(columns),
    edgesOfRow: fc.array(fc.array(fc.tuple(fc.nat(columns - 1), fc.nat(9)), { maxLength: 5 }), { maxLength: 6 }),
  }),
);

const tieredProblems = smallProblems.chain((problem) => {
  const { length } = problem.edgesOfRow;
  return fc.record({
    problem: fc.constant(problem),
    tiers: fc.array(fc.integer({ min: -1, max: 2 }), { minLength: length, maxLength: length }),
  });
});

describe('against every possible matching', () => {
  test('as many rows as possible are matched, and those at the least cost', () => {
    fc.assert(
      fc.property(smallProblems, ({ columns, edgesOfRow }) => {
        const outcome = outcomeOf(edgesOfRow, solve(problemOf(columns, edgesOfRow)));
        expect(outcome).toEqual(bruteForce(edgesOfRow));
      }),
      { numRuns: 2000 },
    );
  });

  test('tier by tier as many rows as possible are matched, before the cost counts', () => {
    fc.assert(
      fc.property(tieredProblems, ({ problem: { columns, edgesOfRow }, tiers }) => {
        const outcome = outcomeOf(edgesOfRow, solve(problemOf(columns, edgesOfRow, tiers)), tiers);
        expect(outcome).toEqual(bruteForce(edgesOfRow, tiers));

        const untiered = outcomeOf(edgesOfRow, solve(problemOf(columns, edgesOfRow)));
        expect(total(outcome)).toBe(total(untiered));
      }),
      { numRuns: 3000 },
    );
  });

  test('costs may be negative', () => {
    fc.assert(
      fc.property(smallProblems, ({ columns, edgesOfRow }) => {
        const shifted = edgesOfRow.map((edges) => edges.map(([column, cost]) => [column, cost - 5] as const));
        const outcome = outcomeOf(shifted, solve(problemOf(columns, shifted)));
        expect(outcome).toEqual(bruteForce(shifted));
      }),
    );
  });
});

describe('whatever is expected', () => {
  const expecting = tieredProblems.chain(({ problem: { columns, edgesOfRow }, tiers }) => {
    const ofEach = <Item>(length: number, item: fc.Arbitrary<Item>) =>
      fc.array(item, { minLength: length, maxLength: length });
    const price = fc.oneof(fc.integer({ min: -12, max: 0 }), fc.double({ min: -12, max: 0, noNaN: true }));
    return fc.record({
      edgesOfRow: fc.constant(edgesOfRow),
      problem: fc.constantFrom(problemOf(columns, edgesOfRow), problemOf(columns, edgesOfRow, tiers)),
      expected: fc.record({
        price: ofEach(columns, price).map((prices) => Float64Array.from(prices)),
        leftOut: ofEach(edgesOfRow.length, fc.nat(1)).map((rows) => Uint8Array.from(rows)),
      }),
    });
  });

  test('as many rows are matched, at the least cost', () => {
    fc.assert(
      fc.property(expecting, ({ edgesOfRow, problem, expected }) => {
        const tiers = problem.tier && [...problem.tier];
        const outcome = outcomeOf(edgesOfRow, solve({ ...problem, expected }), tiers);
        expect(outcome).toEqual(bruteForce(edgesOfRow, tiers));
      }),
      { numRuns: 5000 },
    );
  });

  test('free columns have no price, and where nobody is left out each row has the column that is cheapest for it', () => {
    fc.assert(
      fc.property(expecting, ({ edgesOfRow, problem, expected }) => {
        const { columnOfRow, price } = solveAssignment({ ...problem, expected });
        for (const [column, its] of price.entries()) {
          expect(its).toBeLessThanOrEqual(0);
          if (!columnOfRow.includes(column)) expect(Math.abs(its)).toBe(0);
        }
        if (columnOfRow.includes(-1)) return;
        for (const [row, edges] of edgesOfRow.entries()) {
          const dearness = ([column, cost]: Edges[number]): number => cost - (price[column] ?? NaN);
          const own = columnOfRow[row] ?? -1;
          const its = dearness([own, costOf(edges, own)]);
          for (const edge of edges) expect(its).toBeLessThanOrEqual(dearness(edge) + 1e-9);
        }
      }),
      { numRuns: 5000 },
    );
  });

  const expectTheSameAgain = (columns: number, edgesOfRow: readonly Edges[]): void => {
    const problem = problemOf(columns, edgesOfRow);
    const { columnOfRow, price } = solveAssignment(problem);
    const leftOut = Uint8Array.from(columnOfRow, (column) => (column === -1 ? 1 : 0));
    const again = outcomeOf(edgesOfRow, solve({ ...problem, expected: { price, leftOut } }));
    const before = outcomeOf(edgesOfRow, columnOfRow);
    expect(again.matched).toEqual(before.matched);
    expect(again.cost).toBeCloseTo(before.cost, 6);
  };

  test('prices are such as can be expected again, also where costs that are not whole tie', () => {
    const cost = fc.constantFrom(955.81431485295, 42.86483826801057, 100 / 3, 1e-7, 0);
    const ties = fc.array(fc.array(fc.tuple(fc.nat(3), cost), { maxLength: 4 }), { maxLength: 5 });
    fc.assert(
      fc.property(ties, (edgesOfRow) => {
        expectTheSameAgain(4, edgesOfRow);
      }),
      { numRuns: 5000 },
    );
  });

  test('what was right before is right again', () => {
    expectTheSameAgain(450, planar(createRandom('again'), 500, 450, 12));
  });
});

function total({ matched }: Outcome): number {
  return matched.reduce((sum, count) => sum + count, 0);
}

describe('against another solver', () => {
  const random = createRandom('assignment');

  test.each([
    { rows: 60, columns: 60 },
    { rows: 40, columns: 120 },
    { rows: 120, columns: 40 },
  ])('dense: $rows × $columns', ({ rows, columns }) => {
    const edgesOfRow = Array.from({ length: rows }, () => {
      return Array.from({ length: columns }, (_, column) => [column, random.int(0, 1000)] as const);
    });
    const outcome = outcomeOf(edgesOfRow, solve(problemOf(columns, edgesOfRow)));
    expect(outcome).toEqual(oracle(columns, edgesOfRow));
  });

  test.each([
    { rows: 200, columns: 200, degree: 3 },
    { rows: 200, columns: 200, degree: 1 },
    { rows: 100, columns: 300, degree: 6 },
    { rows: 300, columns: 100, degree: 6 },
    { rows: 300, columns: 290, degree: 20 },
  ])('sparse: $rows × $columns with $degree edges', ({ rows, columns, degree }) => {
    for (let round = 0; round < 5; round++) {
      const few = round % 2 === 0;
      const edgesOfRow = Array.from({ length: rows }, () => {
        return randomEdges(random, columns, degree, () => random.int(0, few ? 3 : 100_000));
      });
      const outcome = outcomeOf(edgesOfRow, solve(problemOf(columns, edgesOfRow)));
      expect(outcome).toEqual(oracle(columns, edgesOfRow));
    }
  });

  test('points in the plane, with costs that are not whole', () => {
    for (const [rows, columns] of [
      [300, 300],
      [300, 250],
      [250, 300],
    ] as const) {
      const edgesOfRow = planar(random, rows, columns, 12);
      const outcome = outcomeOf(edgesOfRow, solve(problemOf(columns, edgesOfRow)));
      const expected = oracle(columns, edgesOfRow);
      expect(outcome.matched).toEqual(expected.matched);
      expect(outcome.cost).toBeCloseTo(expected.cost, 5);
    }
  });
});

test('2,000 points against 2,000 in the plane: no more can be matched, nor as many for less', () => {
  const edgesOfRow = planar(createRandom('plane'), 2000, 2000, 20);
  const columnOfRow = solve(problemOf(2000, edgesOfRow));
  expect(total(outcomeOf(edgesOfRow, columnOfRow))).toBeGreaterThan(1950);
  const moves = movesOf(edgesOfRow, columnOfRow);
  expect(leadsFromOutToFree(moves)).toBe(false);
  expect(hasNegativeCycle(moves)).toBe(false);
});

interface Moves {
  nodes: number;
  /** The place of those who have no column, and of the columns that nobody has. */
  out: number;
  free: number;
  arcs: { from: number; to: number; cost: number }[];
}

/**
 * The ways to change a matching, one arc for each move of a row: to another row's column, to a free one, or out. Who
 * gives way moves on in turn, so a change is a cycle, worth the sum of its costs (Klein 1967: a flow is the cheapest of
 * its size when no cycle is negative), and one more row can be matched when a chain leads from out to free.
 */
function movesOf(edgesOfRow: readonly Edges[], columnOfRow: Int32Array): Moves {
  const [out, free] = [edgesOfRow.length, edgesOfRow.length + 1];
  const ownerOf = new Map(Array.from(columnOfRow, (column, row) => [column, row] as const));
  const arcs: Moves['arcs'] = [];
  for (const [row, edges] of edgesOfRow.entries()) {
    const column = columnOfRow[row];
    const own = column === -1 ? 0 : costOf(edges, column);
    for (const [other, cost] of edges) arcs.push({ from: row, to: ownerOf.get(other) ?? free, cost: cost - own });
    if (column === -1) arcs.push({ from: out, to: row, cost: 0 });
    else arcs.push({ from: row, to: out, cost: -own }, { from: free, to: row, cost: 0 });
  }
  return { nodes: free + 1, out, free, arcs };
}

function leadsFromOutToFree({ out, free, arcs }: Moves): boolean {
  const ahead = Map.groupBy(arcs, ({ from }) => from);
  const seen = new Set([out]);
  for (const node of seen) for (const { to } of ahead.get(node) ?? []) seen.add(to);
  return seen.has(free);
}

/** Bellman & Ford. */
function hasNegativeCycle({ nodes, arcs }: Moves): boolean {
  const distance = new Float64Array(nodes);
  for (let pass = 0; pass <= nodes; pass++) {
    let changed = false;
    for (const { from, to, cost } of arcs) {
      const along = (distance[from] ?? 0) + cost;
      if (along >= (distance[to] ?? 0) - 1e-9) continue;
      distance[to] = along;
      changed = true;
    }
    if (!changed) return false;
  }
  return true;
}

describe('degenerate problems', () => {
  test('no rows, no columns, no edges', () => {
    expect(solve(problemOf(0, []))).toEqual(new Int32Array(0));
    expect(solve(problemOf(5, []))).toEqual(new Int32Array(0));
    expect(solve(problemOf(0, [[], []]))).toEqual(Int32Array.of(-1, -1));
    expect(solve(problemOf(5, [[], [], []]))).toEqual(Int32Array.of(-1, -1, -1));
  });

  test('all rows want the one column: the cheapest has it', () => {
    const edgesOfRow = Array.from({ length: 100 }, (_, row) => [[0, (row + 37) % 100]] as const);
    const columnOfRow = solve(problemOf(1, edgesOfRow));
    expect(columnOfRow[63]).toBe(0);
    expect(outcomeOf(edgesOfRow, columnOfRow)).toEqual({ matched: [1], cost: 0 });
  });

  test('equal costs: everyone is matched', () => {
    const edgesOfRow = Array.from({ length: 200 }, () =>
      Array.from({ length: 200 }, (_, column) => [column, 7] as const),
    );
    expect(outcomeOf(edgesOfRow, solve(problemOf(200, edgesOfRow)))).toEqual({ matched: [200], cost: 1400 });
  });

  test('a long chain of rows gives way so that one more is matched, at whatever cost', () => {
    const length = 3000;
    const edgesOfRow: Edges[] = Array.from({ length }, (_, row) => [
      [row, 0],
      [row + 1, 1e6],
    ]);
    const columnOfRow = solve(problemOf(length + 1, [...edgesOfRow, [[0, 5]]]));
    expect(columnOfRow.every((column) => column !== -1)).toBe(true);
  });

  test('a row is left out for the cheaper ones, also where others were left out before', () => {
    // Columns 0 and 1 are wanted by rows 0–3; row 4 comes late, cheaper than any.
    const edgesOfRow: Edges[] = [
      [[0, 5]],
      [
        [0, 4],
        [1, 9],
      ],
      [[1, 8]],
      [
        [0, 7],
        [1, 7],
      ],
      [[1, 1]],
    ];
    const columnOfRow = solve(problemOf(2, edgesOfRow));
    expect(columnOfRow).toEqual(Int32Array.of(-1, 0, -1, -1, 1));
  });

  test('the same edge twice counts at its lower cost', () => {
    expect(
      outcomeOf(
        [
          [
            [0, 9],
            [0, 2],
          ],
        ],
        solve(
          problemOf(1, [
            [
              [0, 9],
              [0, 2],
            ],
          ]),
        ),
      ),
    ).toEqual({ matched: [1], cost: 2 });
  });

  test('how many are matched does not hang on the size of the costs', () => {
    for (const scale of [1e-12, 1, 1e12]) {
      const edgesOfRow: Edges[] = [
        [
          [0, 0],
          [1, 1e3 * scale],
        ],
        [[0, scale]],
        [
          [0, 0.1 * scale],
          [2, 1e6 * scale],
        ],
      ];
      expect(solve(problemOf(3, edgesOfRow)).filter((column) => column !== -1).length).toBe(3);
    }
  });
});

test('the same problem gets the same answer, and is left as it was', () => {
  const problem = problemOf(100, planar(createRandom('twice'), 100, 100, 5));
  const before = structuredClone(problem);
  expect(solve(problem)).toEqual(solve(problem));
  expect(problem).toEqual(before);
});

test('arrays that do not fit together are refused', () => {
  const good = problemOf(2, [[[0, 1]], [[1, 1]]]);
  const wrong: Partial<AssignmentProblem>[] = [
    { rows: 3 },
    { columns: 1 },
    { rowStart: Int32Array.of(1, 1, 2) },
    { rowStart: Int32Array.of(0, 3, 2) },
    { rowStart: Int32Array.of(0, 1, 1) },
    { column: Int32Array.of(0, -1) },
    { cost: Float64Array.of(1) },
    { cost: Float64Array.of(1, NaN) },
    { cost: Float64Array.of(1, Infinity) },
    { tier: Int32Array.of(0) },
    { expected: { price: Float64Array.of(0), leftOut: Uint8Array.of(0, 0) } },
    { expected: { price: Float64Array.of(0, 0), leftOut: Uint8Array.of(0) } },
    { expected: { price: Float64Array.of(0, 1), leftOut: Uint8Array.of(0, 0) } },
    { expected: { price: Float64Array.of(0, -1e13), leftOut: Uint8Array.of(0, 0) } },
  ];
  for (const change of wrong) expect(() => solve({ ...good, ...change })).toThrow(RangeError);
});
