/**
 * Points on the globe, and a fixed grid over it. The Earth is taken as a sphere: against the ellipsoid that is at
 * most about 0.5 % of a distance, far below what a straight line misses of the streets.
 */

/** WGS 84 in degrees: `lat` within ±90; `lng` of any turn (it is wrapped), usually within ±180. */
export interface Point {
  readonly lat: number;
  readonly lng: number;
}

/** Mean Earth radius R1 = (2a + b) / 3 of WGS 84 (IUGG). */
export const EARTH_RADIUS_M = 6_371_008.8;

const RADIANS = Math.PI / 180;

/** Longitude brought into [-180, 180). */
export function wrapLng(lng: number): number {
  if (lng >= -180 && lng < 180) return lng;
  const turns = (((lng + 180) % 360) + 360) % 360;
  return turns - 180;
}

/**
 * Great-circle distance in metres (haversine). Good to well under a millimetre at a city's scale; only within metres
 * of the antipode does rounding cost more, some decimetres.
 */
export function greatCircleM(a: Point, b: Point): number {
  const sinLat = Math.sin(((b.lat - a.lat) * RADIANS) / 2);
  const sinLng = Math.sin(((b.lng - a.lng) * RADIANS) / 2);
  const h = sinLat * sinLat + Math.cos(a.lat * RADIANS) * Math.cos(b.lat * RADIANS) * sinLng * sinLng;
  return 2 * EARTH_RADIUS_M * Math.asin(Math.min(1, Math.sqrt(h)));
}

/** The point `distanceM` metres from `origin` along the great circle that leaves at `bearingRad`, clockwise from north. */
export function offsetPoint(origin: Point, bearingRad: number, distanceM: number): Point {
  const angle = distanceM / EARTH_RADIUS_M;
  const lat = origin.lat * RADIANS;
  const northward = Math.sin(angle) * Math.cos(bearingRad);
  // The new point as a vector whose x lies in the origin's meridian: atan2 keeps its precision at the poles, asin doesn't.
  const x = Math.cos(lat) * Math.cos(angle) - Math.sin(lat) * northward;
  const y = Math.sin(angle) * Math.sin(bearingRad);
  const z = Math.sin(lat) * Math.cos(angle) + Math.cos(lat) * northward;
  return {
    lat: Math.atan2(z, Math.hypot(x, y)) / RADIANS,
    lng: wrapLng(origin.lng + Math.atan2(y, x) / RADIANS),
  };
}

/*
 * The grid: rows of 1/200° of latitude (556 m); each row is cut into as many columns as make its cells about square,
 * so that a radius costs the same number of cells in Quito and in Tromsø.
 */
const ROWS_PER_DEGREE = 200;
const ROWS = 180 * ROWS_PER_DEGREE;
const COLUMNS_AT_EQUATOR = 360 * ROWS_PER_DEGREE;

/** Of each cell, about. */
export const CELL_AREA_M2 = ((Math.PI * EARTH_RADIUS_M) / ROWS) ** 2;

/** More cells than this are no longer worth looking up one by one: about 20 km of radius. */
export const CELLS_MAX = 4096;

/** Covers the rounding of `greatCircleM` and of the cells' own edges, both far below a millimetre. */
const SAFETY_M = 0.001;

/** How many cells a row has: at least 3, next to the poles. */
export function columnsOfRow(row: number): number {
  const middle = ((row + 0.5) / ROWS_PER_DEGREE - 90) * RADIANS;
  return Math.max(1, Math.round(COLUMNS_AT_EQUATOR * Math.cos(middle)));
}

/** Zero is the equator's first row, so that every number fits PostgreSQL's int4: ±1,296,000,000. */
function cellNumber(row: number, column: number): number {
  return (row - ROWS / 2) * COLUMNS_AT_EQUATOR + column;
}

function rowOf(lat: number): number {
  return Math.min(ROWS - 1, Math.max(0, Math.floor((lat + 90) * ROWS_PER_DEGREE)));
}

/** Unwrapped: a longitude outside ±180 gives a column outside the row. */
function columnOf(lng: number, columns: number): number {
  return Math.floor(((lng + 180) / 360) * columns);
}

/** The cell a point lies in, as an int4. */
export function cellOf(point: Point): number {
  const row = rowOf(point.lat);
  const columns = columnsOfRow(row);
  return cellNumber(row, Math.min(columns - 1, columnOf(wrapLng(point.lng), columns)));
}

/**
 * Cells that together hold every point within `radiusM` of the centre, each once, for `cell = ANY(…)`; they hold
 * points beyond the radius too, so the exact distance is still to be checked. `'everywhere'` when that would be more
 * than `CELLS_MAX`: scan the region instead.
 */
export function cellsWithin(center: Point, radiusM: number): number[] | 'everywhere' {
  const reach = (radiusM + SAFETY_M) / EARTH_RADIUS_M;
  const reachDegrees = reach / RADIANS;
  const lastRow = rowOf(center.lat + reachDegrees);
  const firstRow = rowOf(center.lat - reachDegrees);
  // Said this way round, a radius that is not a number is everywhere too, instead of nowhere.
  if (!(lastRow - firstRow < CELLS_MAX)) return 'everywhere';

  const cells: number[] = [];
  for (let row = firstRow; row <= lastRow; row++) {
    const columns = columnsOfRow(row);
    const [first, count] = columnsWithin(center, reach, row, columns);
    if (cells.length + count > CELLS_MAX) return 'everywhere';
    for (let step = 0; step < count; step++) {
      cells.push(cellNumber(row, (((first + step) % columns) + columns) % columns));
    }
  }
  return cells;
}

/** The columns of one row that a circle (its radius `reach` in radians, under 90°) touches: the first, and how many. */
function columnsWithin(center: Point, reach: number, row: number, columns: number): [first: number, count: number] {
  const lat = widestLatitude(center, reach, row);
  const centerLat = center.lat * RADIANS;
  // Haversine solved for the longitude at which the circle crosses this latitude; acos would lose small circles.
  const across = Math.sin(reach / 2) ** 2 - Math.sin((lat - centerLat) / 2) ** 2;
  const ratio = Math.max(0, across) / (Math.cos(centerLat) * Math.cos(lat));
  if (!(ratio < 1)) return [0, columns];

  const halfWidth = (2 * Math.asin(Math.sqrt(ratio))) / RADIANS;
  const lng = wrapLng(center.lng);
  const first = columnOf(lng - halfWidth, columns);
  const last = columnOf(lng + halfWidth, columns);
  return [first, Math.min(columns, last - first + 1)];
}

/** The latitude (radians) within a row at which a circle is widest in longitude: where a meridian touches it, or as near. */
function widestLatitude(center: Point, reach: number, row: number): number {
  const sine = Math.sin(center.lat * RADIANS) / Math.cos(reach);
  const touching = Math.asin(Math.min(1, Math.max(-1, sine)));
  const south = (row / ROWS_PER_DEGREE - 90) * RADIANS;
  const north = ((row + 1) / ROWS_PER_DEGREE - 90) * RADIANS;
  return Math.min(north, Math.max(south, touching));
}
