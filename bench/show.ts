/** Figures as the page of benchmarks has them. */

export type Cell = string | number | null | undefined;

export const show = (cell: Cell): string => {
  if (cell === null || cell === undefined) return '–';
  return typeof cell === 'number' ? cell.toLocaleString('en-US') : cell;
};

/** By how much a ratio is above 1. */
export const showExcess = (ratio: number): string => `${((ratio - 1) * 100).toFixed(1)} %`;
