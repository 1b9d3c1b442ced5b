// oxlint-disable typescript/no-non-null-assertion -- every index is in range once `check` has passed, in the innermost loops
/**
 * The assignment problem on a sparse bipartite graph, solved exactly: as many rows matched as possible, and among all
 * ways to match so many, one of least total cost.
 *
 * Rows enter one after another, each along a shortest augmenting path (Dijkstra over reduced costs; Edmonds & Karp
 * 1972, Tomizawa 1971, after the greedy start of Jonker & Volgenant 1987). Think of every row as owning a private
 * column, worth an infinite amount M, that says "left out". Then a path from a new row ends in one of two ways: at a
 * free real column, or, when none can be reached, at a row on the way that gives its column up. M never becomes a
 * number: it would swallow the costs' digits. Costs are pairs (count of M, real cost) compared in that order, and the
 * count needs one bit per column:
 *
 *   When no free column can be reached, the columns that were reached are matched to rows which lead to nothing but
 *   these columns. They are *saturated*, for good: a path may still enter them, but only to push some row out (one M).
 *   So a search tries all other columns first, and only then, with no free column among them, the saturated ones.
 *
 * Hence how many rows are matched never depends on rounding, and with whole-number costs (and expectations) nothing does.
 *
 * Only columns carry a price (the dual variable v ≤ 0, 0 while free unless another was expected); a matched row's own
 * price is what its edge costs less its column's price, computed when needed, so that matched edges have no reduced
 * cost, exactly.
 */

/** Edges row by row (CSR): those of row `i` are `rowStart[i] … rowStart[i + 1] - 1` in `column` and `cost`. */
export interface AssignmentProblem {
  readonly rows: number;
  readonly columns: number;
  readonly rowStart: Int32Array;
  readonly column: Int32Array;
  /** Finite. */
  readonly cost: Float64Array;
  /**
   * One tier per row: as many rows as possible of the lowest tier are matched, then as many as possible of the next
   * without losing any of those, and so on; the cost decides last. (That never lessens how many are matched in all:
   * the sets of rows that can be matched together form a matroid.) Absent, all rows are alike.
   */
  readonly tier?: Int32Array;
  readonly expected?: Expectations | undefined;
}

/** What the answer may look like. Where that is nearly right it is found sooner; whatever is expected, it is of least cost. */
export interface Expectations {
  /** One per column, from -1e12 to 0: beyond, costs would lose their digits. */
  readonly price: Float64Array;
  /** One per row: 1 if it is expected to be left out. */
  readonly leftOut: Uint8Array;
}

export interface Assignment {
  /** -1: left out. */
  readonly columnOfRow: Int32Array;
  /**
   * One per column: a negative number, the lower the dearer; 0 where it is free. If no row was left out, each row has the
   * column whose cost less its price is least. Of columns for which rows were left out only differences mean anything.
   */
  readonly price: Float64Array;
}

/** A row per entry of `options`, an edge for each of them. */
export function problemOf<Option>(
  options: readonly (readonly Option[])[],
  columns: number,
  columnOf: (option: Option) => number,
  costOf: (option: Option) => number,
): AssignmentProblem {
  const rowStart = new Int32Array(options.length + 1);
  for (const [row, { length }] of options.entries()) rowStart[row + 1] = rowStart[row]! + length;
  const edges = rowStart[options.length]!;
  const column = new Int32Array(edges);
  const cost = new Float64Array(edges);
  let edge = 0;
  for (const ofRow of options) {
    for (const option of ofRow) {
      column[edge] = columnOf(option);
      cost[edge++] = costOf(option);
    }
  }
  return { rows: options.length, columns, rowStart, column, cost };
}

/**
 * The same problem always gets the same answer. Takes at most one search per row, and one per column that is wrongly expected
 * to have a price, each touching a column and an edge at most twice.
 * Throws `RangeError` on arrays that don't fit together and on numbers that are out of range.
 */
export function solveAssignment(problem: AssignmentProblem): Assignment {
  check(problem);
  const { rows, tier, expected } = problem;
  const order = Int32Array.from({ length: rows }, (_, row) => row);
  // Who is left out anyhow comes last: it soon finds that nobody should go instead.
  const isLate = (row: number): number => expected?.leftOut[row] ?? 0;
  if (tier || expected) order.sort((a, b) => tierOf(tier, a) - tierOf(tier, b) || isLate(a) - isLate(b) || a - b);

  const solver = new Solver(problem);
  for (let from = 0, to = 0; from < rows; from = to) {
    while (to < rows && tierOf(tier, order[to]!) === tierOf(tier, order[from]!)) to++;
    solver.enter(order.subarray(from, to));
  }
  solver.forgetExpectations();
  return solver.assignment();
}

function tierOf(tier: Int32Array | undefined, row: number): number {
  return tier ? tier[row]! : 0;
}

function check({ rows, columns, rowStart, column, cost, tier, expected }: AssignmentProblem): void {
  const edges = column.length;
  const fits = rowStart.length === rows + 1 && rowStart[0] === 0 && rowStart[rows] === edges && cost.length === edges;
  const expects = !expected || (expected.price.length === columns && expected.leftOut.length === rows);
  if (!fits || !expects || (tier && tier.length !== rows))
    throw new RangeError('the arrays of the assignment problem differ in length');
  for (let row = 0; row < rows; row++) {
    if (rowStart[row]! > rowStart[row + 1]!) throw new RangeError(`the edges of row ${row} end before they start`);
  }
  for (let edge = 0; edge < edges; edge++) {
    if (!(column[edge]! >= 0 && column[edge]! < columns)) throw new RangeError(`edge ${edge} leads to no column`);
    if (!Number.isFinite(cost[edge]!)) throw new RangeError(`edge ${edge} has no finite cost`);
  }
  const unfit = expected?.price.findIndex((price) => !(price <= 0 && price >= EXPECTED_MIN)) ?? NONE;
  if (unfit !== NONE) throw new RangeError(`column ${unfit} can't have the expected price`);
}

const NONE = -1;
const EXPECTED_MIN = -1e12;
/** `saturatedBy` of a column from which a free column may still be reached. */
const OPEN = 0;

class Solver {
  private readonly problem: AssignmentProblem;
  private readonly price: Float64Array;
  private readonly edgeOfRow: Int32Array;
  private readonly rowOfColumn: Int32Array;
  /** `OPEN`, or the tier during which the column became saturated; tiers are numbered from 1 as they enter. */
  private readonly saturatedBy: Int32Array;
  private readonly tierOfRow: Int32Array;
  private tier = 0;

  // The search under way. A row's offset is its distance from the new row, less its own price.
  private readonly reached: ColumnHeap;
  private readonly reachedFrom: Int32Array;
  private readonly reachedBy: Int32Array;
  private readonly scanned: Int32Array;
  private readonly offset: Float64Array;
  private scannedCount = 0;
  /** Where the shortest path found so far ends: at a free column, or at a row to be left out. */
  private freeColumn = NONE;
  private leftOut = NONE;
  private pathCost = Infinity;

  constructor(problem: AssignmentProblem) {
    const { rows, columns, expected } = problem;
    this.problem = problem;
    this.price = expected?.price.slice() ?? new Float64Array(columns);
    this.edgeOfRow = new Int32Array(rows).fill(NONE);
    this.rowOfColumn = new Int32Array(columns).fill(NONE);
    this.saturatedBy = new Int32Array(columns).fill(OPEN);
    this.tierOfRow = new Int32Array(rows);
    this.reached = new ColumnHeap(columns);
    this.reachedFrom = new Int32Array(columns);
    this.reachedBy = new Int32Array(columns);
    this.scanned = new Int32Array(rows);
    this.offset = new Float64Array(rows);
  }

  assignment(): Assignment {
    const columnOfRow = this.edgeOfRow.map((edge) => (edge === NONE ? NONE : this.problem.column[edge]!));
    // The prices of columns for which rows were left out may be above 0; together they can be anywhere.
    const highest = this.price.reduce((most, price) => Math.max(most, price), 0);
    const price = this.price.map((own, at) => (this.saturatedBy[at] === OPEN ? own : own - highest));
    return { columnOfRow, price };
  }

  /** Brings in the rows of the next tier. */
  enter(rows: Int32Array): void {
    this.tier++;
    for (const row of rows) this.tierOfRow[row] = this.tier;
    if (this.tier === 1 && this.problem.expected) this.raiseExpectations(rows);
    const late = rows.filter((row) => this.edgeOfRow[row] === NONE && !this.takeCheapest(row));
    for (const row of late) {
      this.search(row);
      this.reprice();
      this.augment(row);
    }
  }

  /**
   * Raises each expected price as far as it can be: to where the column is the cheapest for some row. The row has it,
   * unless it got another (Jonker & Volgenant's column reduction). Without it searches took half as long again.
   */
  private raiseExpectations(rows: Int32Array): void {
    const { columns, rowStart, column, cost } = this.problem;
    const raised = new Float64Array(columns).fill(Infinity);
    const rowOf = new Int32Array(columns).fill(NONE);
    const edgeOf = new Int32Array(columns);
    for (const row of rows) {
      let least = Infinity;
      for (let edge = rowStart[row]!; edge < rowStart[row + 1]!; edge++)
        least = Math.min(least, cost[edge]! - this.price[column[edge]!]!);
      for (let edge = rowStart[row]!; edge < rowStart[row + 1]!; edge++) {
        const at = column[edge]!;
        if (cost[edge]! - least >= raised[at]!) continue;
        raised[at] = cost[edge]! - least;
        rowOf[at] = row;
        edgeOf[at] = edge;
      }
    }
    for (let at = 0; at < columns; at++) {
      this.price[at] = Math.min(0, raised[at]!);
      const row = rowOf[at]!;
      if (row === NONE || raised[at]! > 0 || this.edgeOfRow[row] !== NONE) continue;
      this.edgeOfRow[row] = edgeOf[at]!;
      this.rowOfColumn[at] = row;
    }
  }

  /**
   * A free column has no price. One that was only expected to have one loses it. If that makes it worth having, rows move up:
   * one takes it, another takes that one's column, and so on, to the column that is missed least. The path is found by a
   * search backwards from the free one.
   */
  forgetExpectations(): void {
    const priced = [...this.price.keys()].filter((at) => this.rowOfColumn[at] === NONE && this.price[at]! < 0);
    if (priced.length === 0) return;
    const backwards = byColumn(this.problem);
    for (const column of priced) this.moveUp(column, this.searchBack(column, backwards));
  }

  /** Finds the column that becomes free (the one itself, if nobody should move up), and raises prices accordingly. */
  private searchBack(start: number, { columnStart, edgesOfColumn, rowOfEdge }: ByColumn): number {
    const { column, cost } = this.problem;
    const { price, reached, edgeOfRow } = this;
    reached.clear();
    let end = start;
    let pathCost = -price[start]!;
    for (let at = start, distance = 0; at !== NONE; at = reached.popBelow(pathCost)) {
      if (at !== start) distance = reached.distance[at]!;
      for (let nth = columnStart[at]!; nth < columnStart[at + 1]!; nth++) {
        const edge = edgesOfColumn[nth]!;
        const own = edgeOfRow[rowOfEdge[edge]!]!;
        if (own === NONE || own === edge) continue;
        const from = column[own]!;
        const costsMore = cost[edge]! - price[at]! - (cost[own]! - price[from]!);
        const further = distance + Math.max(0, costsMore);
        if (further >= reached.distance[from]! || further >= pathCost || !reached.lower(from, further)) continue;
        this.reachedFrom[from] = at;
        this.reachedBy[from] = edge;
        if (further - price[from]! >= pathCost) continue;
        pathCost = further - price[from]!;
        end = from;
      }
    }
    price[start] = Math.min(0, price[start]! + pathCost);
    for (let nth = 0; nth < reached.poppedCount; nth++) {
      const at = reached.popped[nth]!;
      price[at] = Math.min(0, price[at]! + Math.max(0, pathCost - reached.distance[at]!));
    }
    price[end] = 0;
    return end;
  }

  private moveUp(start: number, end: number): void {
    for (let at = end, row = this.rowOfColumn[end]!; at !== start;) {
      const to = this.reachedFrom[at]!;
      const next = this.rowOfColumn[to]!;
      this.edgeOfRow[row] = this.reachedBy[at]!;
      this.rowOfColumn[to] = row;
      row = next;
      at = to;
    }
    if (end !== start) this.rowOfColumn[end] = NONE;
  }

  /**
   * The head start: a row whose cheapest column is free has it; that takes no search and moves no price. Jonker &
   * Volgenant's bidding for the taken ones as well was tried and saved nothing on points in a plane (5,000 × 5,000,
   * 20 edges each: 170 ms without, 190 ms with), and cost twice the time with five rows to a column.
   */
  private takeCheapest(row: number): boolean {
    const { rowStart, column, cost } = this.problem;
    let cheapest = NONE;
    let least = Infinity;
    for (let edge = rowStart[row]!; edge < rowStart[row + 1]!; edge++) {
      const at = column[edge]!;
      const reduced = cost[edge]! - this.price[at]!;
      if (reduced >= least) continue;
      least = reduced;
      cheapest = edge;
    }
    if (cheapest === NONE || this.rowOfColumn[column[cheapest]!] !== NONE) return false;
    this.edgeOfRow[row] = cheapest;
    this.rowOfColumn[column[cheapest]!] = row;
    return true;
  }

  /** Finds the shortest path from a new row to a free column or, if there is none, to a row to leave out. */
  private search(row: number): void {
    this.reached.clear();
    this.scannedCount = 0;
    this.freeColumn = NONE;
    this.leftOut = NONE;
    this.pathCost = Infinity;

    this.scan(row, 0, OPEN);
    this.explore(OPEN);
    if (this.freeColumn !== NONE) return;

    // All that was reached is about to be saturated; from any of it the path may go on into what already is. Columns
    // saturated by an earlier tier are out of bounds: entering them would cost that tier a row.
    for (let at = 0, open = this.scannedCount; at < open; at++) this.follow(this.scanned[at]!, this.tier);
    this.explore(this.tier);
  }

  /** Dijkstra's loop over the columns of one level: `OPEN`, or those saturated by this tier. */
  private explore(level: number): void {
    for (;;) {
      const at = this.reached.popBelow(this.pathCost);
      if (at === NONE) return;
      const owner = this.rowOfColumn[at]!;
      const ownPrice = this.problem.cost[this.edgeOfRow[owner]!]! - this.price[at]!;
      this.scan(owner, this.reached.distance[at]! - ownPrice, level);
    }
  }

  private scan(row: number, offset: number, level: number): void {
    this.offset[row] = offset;
    this.scanned[this.scannedCount++] = row;
    this.follow(row, level);
  }

  /** Lowers the distance of the columns of a level that a scanned row leads to. */
  private follow(row: number, level: number): void {
    const { rowStart, column, cost } = this.problem;
    const { price, rowOfColumn, saturatedBy, reached } = this;
    const offset = this.offset[row]!;
    if (level !== OPEN && this.tierOfRow[row] === this.tier && offset < this.pathCost) {
      this.leftOut = row;
      this.pathCost = offset;
    }
    for (let edge = rowStart[row]!, end = rowStart[row + 1]!; edge < end; edge++) {
      const at = column[edge]!;
      const distance = offset + cost[edge]! - price[at]!;
      // The likeliest reason to pass over an edge comes first: neighbours mostly lead to the same columns.
      if (distance >= reached.distance[at]! || distance >= this.pathCost || saturatedBy[at] !== level) continue;
      if (rowOfColumn[at] === NONE) {
        this.freeColumn = at;
        this.pathCost = distance;
      } else if (!reached.lower(at, distance)) continue;
      this.reachedFrom[at] = row;
      this.reachedBy[at] = edge;
    }
  }

  /** Moves prices so that the path just found costs nothing more and no edge costs less than nothing. */
  private reprice(): void {
    const { price, reached, pathCost } = this;
    const leadsNowhere = this.freeColumn === NONE;
    for (let nth = 0; nth < reached.poppedCount; nth++) {
      const at = reached.popped[nth]!;
      const change = reached.distance[at]! - pathCost;
      // A price that rounding alone would raise stays.
      price[at]! += leadsNowhere ? change : Math.min(0, change);
      if (leadsNowhere) this.saturatedBy[at] = this.tier;
    }
  }

  /** Each row on the path takes the column it was followed to, and leaves its own to the row before it. */
  private augment(row: number): void {
    let at = this.freeColumn;
    if (at === NONE) {
      if (this.leftOut === row) return;
      at = this.problem.column[this.edgeOfRow[this.leftOut]!]!;
      this.edgeOfRow[this.leftOut] = NONE;
    }
    for (;;) {
      const taker = this.reachedFrom[at]!;
      const leaves = this.edgeOfRow[taker]!;
      this.edgeOfRow[taker] = this.reachedBy[at]!;
      this.rowOfColumn[at] = taker;
      if (taker === row) return;
      at = this.problem.column[leaves]!;
    }
  }
}

/** The edges of column `i` are `edgesOfColumn[columnStart[i] … columnStart[i + 1] - 1]`. */
interface ByColumn {
  readonly columnStart: Int32Array;
  readonly edgesOfColumn: Int32Array;
  readonly rowOfEdge: Int32Array;
}

function byColumn({ rows, columns, rowStart, column }: AssignmentProblem): ByColumn {
  const columnStart = new Int32Array(columns + 1);
  for (const at of column) columnStart[at + 1]!++;
  for (let at = 0; at < columns; at++) columnStart[at + 1]! += columnStart[at]!;
  const end = columnStart.slice();
  const edgesOfColumn = new Int32Array(column.length);
  for (const [edge, at] of column.entries()) edgesOfColumn[end[at]!++] = edge;
  const rowOfEdge = new Int32Array(column.length);
  for (let row = 0; row < rows; row++) rowOfEdge.fill(row, rowStart[row], rowStart[row + 1]);
  return { columnStart, edgesOfColumn, rowOfEdge };
}

const UNSEEN = -1;
const POPPED = -2;

/** A binary heap of columns by distance, in which a distance can be lowered; a popped column stays popped. */
class ColumnHeap {
  /** `Infinity` until reached. */
  readonly distance: Float64Array;
  /** The columns popped since `clear`, in order: the first `poppedCount`. */
  readonly popped: Int32Array;
  poppedCount = 0;
  private readonly heap: Int32Array;
  private readonly place: Int32Array;
  private size = 0;

  constructor(columns: number) {
    this.distance = new Float64Array(columns).fill(Infinity);
    this.popped = new Int32Array(columns);
    this.heap = new Int32Array(columns);
    this.place = new Int32Array(columns).fill(UNSEEN);
  }

  /** Costs what was used, not what there is: most searches stay small. */
  clear(): void {
    for (let nth = 0; nth < this.size; nth++) this.forget(this.heap[nth]!);
    for (let nth = 0; nth < this.poppedCount; nth++) this.forget(this.popped[nth]!);
    this.size = 0;
    this.poppedCount = 0;
  }

  private forget(column: number): void {
    this.place[column] = UNSEEN;
    this.distance[column] = Infinity;
  }

  /** Takes in a distance less than the column's; refused once it is popped, which only rounding asks for. */
  lower(column: number, distance: number): boolean {
    const place = this.place[column]!;
    if (place === POPPED) return false;
    this.distance[column] = distance;
    this.rise(column, distance, place === UNSEEN ? this.size++ : place);
    return true;
  }

  /** The nearest column, if it is nearer than `limit`; else -1. */
  popBelow(limit: number): number {
    const nearest = this.heap[0]!;
    if (this.size === 0 || this.distance[nearest]! >= limit) return NONE;
    this.place[nearest] = POPPED;
    this.popped[this.poppedCount++] = nearest;
    this.size--;
    if (this.size > 0) this.sink(this.heap[this.size]!);
    return nearest;
  }

  private rise(column: number, distance: number, from: number): void {
    let place = from;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = this.heap[parent]!;
      if (this.distance[above]! <= distance) break;
      this.put(above, place);
      place = parent;
    }
    this.put(column, place);
  }

  private sink(column: number): void {
    const distance = this.distance[column]!;
    let place = 0;
    for (let child = 1; child < this.size; child = 2 * place + 1) {
      const right = child + 1;
      if (right < this.size && this.distance[this.heap[right]!]! < this.distance[this.heap[child]!]!) child = right;
      const below = this.heap[child]!;
      if (this.distance[below]! >= distance) break;
      this.put(below, place);
      place = child;
    }
    this.put(column, place);
  }

  private put(column: number, place: number): void {
    this.heap[place] = column;
    this.place[column] = place;
  }
}
