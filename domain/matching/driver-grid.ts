// oxlint-disable typescript/no-non-null-assertion -- every index is in range by construction, in the innermost loops
import { EARTH_RADIUS_M, greatCircleM, wrapLng, type Point } from '../geo.ts';

const RADIANS = Math.PI / 180;
/** Few enough that a cell is read at a glance, enough that most cells hold someone. */
const DRIVERS_PER_CELL = 2;
/** Share of the drivers, at each end of each axis, that doesn't stretch the grid. */
const OUTLIERS = 0.02;
/** Covers the rounding of distances and of the cells' edges. */
const SAFETY_M = 0.001;

/** One axis cut into equal parts; what lies beyond an end belongs to the part at that end. */
interface Axis {
  readonly start: number;
  readonly step: number;
  readonly parts: number;
}

/**
 * Where the drivers are: a uniform grid, built anew for every round (10,000 drivers take a few milliseconds), that
 * finds the nearest by rings of cells around a point.
 *
 * The grid is over latitude and longitude, the latter counted from one driver so that the antimeridian is a place like
 * any other. The cells only decide the order of looking; every distance is the great circle's, and the rings end only
 * when no driver outside of them can be nearer than the last one found, anywhere on the globe.
 *
 * It spans the middle of the fleet: a single phone that believes to be at 0° N 0° E would otherwise stretch it until
 * the whole city is one cell.
 */
export class DriverGrid<Driver extends { readonly position: Point }> {
  private readonly drivers: readonly Driver[];
  private readonly originLng: number;
  private readonly lats: Axis;
  private readonly lngs: Axis;
  /** How far west and east of the origin drivers are, beyond the grid's ends too. */
  private readonly westmost: number;
  private readonly eastmost: number;
  /** The drivers of cell `i` are `members[cellStart[i]] … members[cellStart[i + 1] - 1]`, ascending. */
  private readonly cellStart: Int32Array;
  private readonly members: Int32Array;
  /** Where the members are on the unit sphere: x, y, z of each, in the order of `members`. */
  private readonly places: Float64Array;

  constructor(drivers: readonly Driver[]) {
    this.drivers = drivers;
    this.originLng = drivers[0]?.position.lng ?? 0;
    const lats = new Float64Array(drivers.length);
    const lngs = new Float64Array(drivers.length);
    for (const [number, { position }] of drivers.entries()) {
      lats[number] = position.lat;
      lngs[number] = this.relativeLng(position);
    }
    lats.sort();
    lngs.sort();
    this.westmost = lngs[0] ?? 0;
    this.eastmost = lngs.at(-1) ?? 0;

    [this.lats, this.lngs] = axesFor(lats, lngs);
    [this.cellStart, this.members] = this.sortIntoCells();
    this.places = new Float64Array(3 * drivers.length);
    for (const [at, number] of this.members.entries()) this.places.set(onUnitSphere(drivers[number]!.position), 3 * at);
  }

  /**
   * The nearest drivers within `radiusM` metres of `center` that `accepts` lets pass, nearest first, equally near ones
   * in the order they were given; `limit` of them at most.
   */
  nearest(center: Point, radiusM: number, limit: number, accepts: (driver: Driver) => boolean): Driver[] {
    const found = new Nearest(limit, radiusM);
    const row = partOf(this.lats, center.lat);
    const column = partOf(this.lngs, this.relativeLng(center));
    const { places, members, drivers } = this;
    const [x, y, z] = onUnitSphere(center);
    const look = (fromCell: number, toCell: number) => {
      for (let at = this.cellStart[fromCell]!, end = this.cellStart[toCell + 1]!; at < end; at++) {
        // Nearly everyone is passed over here, by the straight line through the globe.
        const dx = places[3 * at]! - x;
        const dy = places[3 * at + 1]! - y;
        const dz = places[3 * at + 2]! - z;
        if (dx * dx + dy * dy + dz * dz > found.reachChord2) continue;
        const number = members[at]!;
        const driver = drivers[number]!;
        if (accepts(driver)) found.offer(number, greatCircleM(center, driver.position));
      }
    };
    for (let ring = 0; ring < Math.max(this.lats.parts, this.lngs.parts); ring++) {
      this.eachRunOfRing(row, column, ring, look);
      if (this.distanceBeyondM(center, row, column, ring) > found.reachM) break;
    }
    return found.numbers.map((number) => this.drivers[number]!);
  }

  /** The cells `ring` steps around a cell, as runs of neighbours within a row. */
  private eachRunOfRing(row: number, column: number, ring: number, look: (from: number, to: number) => void): void {
    const columns = this.lngs.parts;
    const west = Math.max(0, column - ring);
    const east = Math.min(columns - 1, column + ring);
    for (let at = Math.max(0, row - ring); at <= Math.min(this.lats.parts - 1, row + ring); at++) {
      const start = at * columns;
      if (at === row - ring || at === row + ring) look(start + west, start + east);
      else {
        if (west === column - ring) look(start + west, start + west);
        if (east === column + ring) look(start + east, start + east);
      }
    }
  }

  /** No driver outside the block of cells up to `ring` is nearer than this. `Infinity` when nobody is outside. */
  private distanceBeyondM(center: Point, row: number, column: number, ring: number): number {
    const degreesLat = degreesBeyond(this.lats, center.lat, row, ring);
    const lng = this.relativeLng(center);
    const degreesLng = degreesBeyond(this.lngs, lng, column, ring);
    const overLat = degreesLat * RADIANS;
    if (degreesLng === Infinity) return overLat * EARTH_RADIUS_M - SAFETY_M;

    // The other way round the globe may be shorter, when drivers are that far apart.
    const otherWay = 360 - Math.max(lng - this.westmost, this.eastmost - lng);
    const across = Math.min(degreesLng, otherWay) * RADIANS;
    // The shortest way to a meridian; past a quarter turn less than that, which is only more careful.
    const overLng = Math.asin(Math.cos(center.lat * RADIANS) * Math.sin(across));
    return Math.min(overLat, overLng) * EARTH_RADIUS_M - SAFETY_M;
  }

  private relativeLng(point: Point): number {
    return wrapLng(point.lng - this.originLng);
  }

  private cellOf(position: Point): number {
    return partOf(this.lats, position.lat) * this.lngs.parts + partOf(this.lngs, this.relativeLng(position));
  }

  /** Counting sort. */
  private sortIntoCells(): [cellStart: Int32Array, members: Int32Array] {
    const cells = this.lats.parts * this.lngs.parts;
    const cellStart = new Int32Array(cells + 1);
    const cellOfEach = this.drivers.map(({ position }) => this.cellOf(position));
    for (const cell of cellOfEach) cellStart[cell + 1]!++;
    for (let cell = 0; cell < cells; cell++) cellStart[cell + 1]! += cellStart[cell]!;
    const next = cellStart.slice();
    const members = new Int32Array(this.drivers.length);
    for (const [number, cell] of cellOfEach.entries()) members[next[cell]!++] = number;
    return [cellStart, members];
  }
}

/** The nearest drivers so far, by their numbers, nearest first. */
class Nearest {
  readonly numbers: number[] = [];
  /** Only drivers as near as this are still of interest. */
  reachM: number;
  /** The same as the square of a chord of the unit sphere, and a little more. */
  reachChord2: number;
  private readonly distancesM: number[] = [];
  private readonly limit: number;

  constructor(limit: number, radiusM: number) {
    this.limit = limit;
    this.reachM = limit > 0 ? radiusM : -Infinity;
    this.reachChord2 = chord2Of(this.reachM);
  }

  offer(number: number, distanceM: number): void {
    if (!(distanceM <= this.reachM)) return;
    const { numbers, distancesM, limit } = this;
    let place = numbers.length;
    if (place === limit) {
      if (!this.comesBefore(number, distanceM, --place)) return;
    }
    for (; place > 0 && this.comesBefore(number, distanceM, place - 1); place--) {
      numbers[place] = numbers[place - 1]!;
      distancesM[place] = distancesM[place - 1]!;
    }
    numbers[place] = number;
    distancesM[place] = distanceM;
    if (numbers.length < limit) return;
    this.reachM = distancesM[limit - 1]!;
    this.reachChord2 = chord2Of(this.reachM);
  }

  private comesBefore(number: number, distanceM: number, place: number): boolean {
    const other = this.distancesM[place]!;
    return distanceM < other || (distanceM === other && number < this.numbers[place]!);
  }
}

function onUnitSphere({ lat, lng }: Point): [x: number, y: number, z: number] {
  const inPlane = Math.cos(lat * RADIANS);
  return [inPlane * Math.cos(lng * RADIANS), inPlane * Math.sin(lng * RADIANS), Math.sin(lat * RADIANS)];
}

/** No two points of the globe within this distance are farther apart on the unit sphere. */
function chord2Of(distanceM: number): number {
  if (distanceM < 0) return -Infinity;
  const halfAngle = Math.min((distanceM + SAFETY_M) / (2 * EARTH_RADIUS_M), Math.PI / 2);
  return 4 * Math.sin(halfAngle) ** 2;
}

/** Cuts the fleet's middle, given by its sorted coordinates, into cells that are about square on the ground. */
function axesFor(lats: Float64Array, lngs: Float64Array): [lats: Axis, lngs: Axis] {
  const [tall, wide] = [middleSpan(lats), middleSpan(lngs)];
  const metersRatio = Math.max(0.01, Math.cos((tall.start + tall.width / 2) * RADIANS));
  const cells = Math.max(1, lats.length / DRIVERS_PER_CELL);
  const rows = Math.sqrt((cells * tall.width) / (wide.width * metersRatio));
  const latParts = Math.round(Math.min(cells, Math.max(1, rows)));
  const lngParts = Math.max(1, Math.round(cells / latParts));
  return [
    { start: tall.start, step: tall.width / latParts, parts: latParts },
    { start: wide.start, step: wide.width / lngParts, parts: lngParts },
  ];
}

/** Where most of a sorted list lies, never without width. */
function middleSpan(sorted: Float64Array): { start: number; width: number } {
  const skipped = Math.floor(sorted.length * OUTLIERS);
  const start = sorted[skipped] ?? 0;
  const end = sorted[sorted.length - 1 - skipped] ?? 0;
  return { start, width: Math.max(end - start, 1e-6) };
}

function partOf(axis: Axis, value: number): number {
  const part = Math.floor((value - axis.start) / axis.step);
  return Math.min(axis.parts - 1, Math.max(0, part));
}

/** From `value` to the nearer end of the parts within `ring` of `part`; an end of the whole axis has nothing beyond. */
function degreesBeyond(axis: Axis, value: number, part: number, ring: number): number {
  const below = part - ring > 0 ? value - (axis.start + (part - ring) * axis.step) : Infinity;
  const above = part + ring < axis.parts - 1 ? axis.start + (part + ring + 1) * axis.step - value : Infinity;
  return Math.min(below, above);
}
