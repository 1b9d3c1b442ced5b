/**
 * A dense solver of the assignment problem, for comparison: shortest augmenting paths over the full matrix of costs
 * (Jonker and Volgenant, 1987, without their initial reductions), rows ≤ columns.
 */
export function solveDense(
  rows: number,
  columns: number,
  cost: Float32Array,
): { total: number; columnOfRow: Int32Array } {
  const rowOfColumn = new Int32Array(columns).fill(-1);
  const columnOfRow = new Int32Array(rows).fill(-1);
  const u = new Float64Array(rows);
  const v = new Float64Array(columns);
  const shortest = new Float64Array(columns);
  const from = new Int32Array(columns);
  const isDone = new Uint8Array(columns);
  for (let start = 0; start < rows; start++) {
    shortest.fill(Infinity);
    isDone.fill(0);
    let row = start;
    let reached = 0;
    let sink = -1;
    while (sink < 0) {
      let nearest = -1;
      let nearestCost = Infinity;
      const base = row * columns;
      for (let column = 0; column < columns; column++) {
        if (isDone[column] === 1) continue;
        const through = reached + cost[base + column]! - u[row]! - v[column]!;
        if (through < shortest[column]!) {
          shortest[column] = through;
          from[column] = row;
        }
        if (shortest[column]! < nearestCost) {
          nearestCost = shortest[column]!;
          nearest = column;
        }
      }
      reached = nearestCost;
      isDone[nearest] = 1;
      if (rowOfColumn[nearest] === -1) sink = nearest;
      else row = rowOfColumn[nearest]!;
    }
    u[start]! += reached;
    for (let column = 0; column < columns; column++) {
      if (isDone[column] === 0 || column === sink) continue;
      u[rowOfColumn[column]!]! += reached - shortest[column]!;
      v[column]! -= reached - shortest[column]!;
    }
    augment(sink, start, from, rowOfColumn, columnOfRow);
  }
  let total = 0;
  for (let row = 0; row < rows; row++) total += cost[row * columns + columnOfRow[row]!]!;
  return { total, columnOfRow };
}

function augment(
  sink: number,
  start: number,
  from: Int32Array,
  rowOfColumn: Int32Array,
  columnOfRow: Int32Array,
): void {
  let column = sink;
  while (true) {
    const row = from[column]!;
    const before = columnOfRow[row]!;
    rowOfColumn[column] = row;
    columnOfRow[row] = column;
    if (row === start) return;
    column = before;
  }
}
