import type { Point } from '../../domain/geo.ts';
import { DemandError } from './demand.ts';

/** What is read of a row, and the names its column goes by: the first is ours, the others are common elsewhere. */
const names = {
  requestTime: [
    'request_time',
    'requested_at',
    'request_datetime',
    'pickup_datetime',
    'tpep_pickup_datetime',
    'pickup_time',
  ],
  pickupLat: ['pu_lat', 'pickup_lat', 'pickup_latitude', 'start_lat'],
  pickupLng: ['pu_lng', 'pu_lon', 'pickup_lng', 'pickup_lon', 'pickup_longitude', 'start_lng', 'start_lon'],
  dropoffLat: ['do_lat', 'dropoff_lat', 'dropoff_latitude', 'end_lat'],
  dropoffLng: ['do_lng', 'do_lon', 'dropoff_lng', 'dropoff_lon', 'dropoff_longitude', 'end_lng', 'end_lon'],
  tripMinutes: ['trip_min', 'trip_minutes', 'duration_min'],
} as const;

type Field = keyof typeof names;
const optional: ReadonlySet<Field> = new Set(['tripMinutes']);

/** Where each field stands in a row; -1 for the optional one that isn't there. */
export type Columns = Readonly<Record<Field, number>> & { readonly count: number };

export interface Row {
  readonly line: number;
  /** What the clock on the wall showed, in milliseconds since it showed 1970-01-01 00:00. */
  readonly atMs: number;
  readonly pickup: Point;
  readonly dropoff: Point;
  readonly driveMs: number | null;
}

/** A drive longer than a day is a mistake of whoever recorded it. */
const TRIP_MAX_MINUTES = 1440;

export function findColumns(header: readonly string[]): Columns | DemandError {
  const have = header.map((name) => name.toLowerCase());
  const missing: string[] = [];
  const columns = { count: header.length } as Record<Field | 'count', number>;
  for (const field of Object.keys(names) as Field[]) {
    const found = names[field].find((name) => have.includes(name));
    columns[field] = found === undefined ? -1 : have.indexOf(found);
    if (found === undefined && !optional.has(field)) {
      const [name, ...others] = names[field];
      missing.push(`${name} (or ${others.join(', ')})`);
    }
  }
  if (missing.length === 0) return columns;
  return new DemandError(
    'missing_columns',
    `columns are missing: ${missing.join('; ')}. The header is: ${header.join(', ').slice(0, 200)}`,
  );
}

/** The row, or what is wrong with it. */
export function readRow(fields: readonly string[], columns: Columns, line: number): Row | string {
  if (fields.length !== columns.count) return `${fields.length} fields instead of ${columns.count}`;
  const text = (field: Field): string => fields[columns[field]] ?? '';

  const atMs = readTime(text('requestTime'));
  if (atMs === null) return `request time "${clip(text('requestTime'))}" is not a date and time (YYYY-MM-DD HH:MM:SS)`;
  const pickup = readPoint(text('pickupLat'), text('pickupLng'));
  if (typeof pickup === 'string') return `pick-up ${pickup}`;
  const dropoff = readPoint(text('dropoffLat'), text('dropoffLng'));
  if (typeof dropoff === 'string') return `drop-off ${dropoff}`;
  const minutes = text('tripMinutes') === '' ? null : readNumber(text('tripMinutes'), 0, TRIP_MAX_MINUTES);
  if (typeof minutes === 'string') return `trip minutes ${minutes}`;
  // Recorded in whole minutes, a short trip reads 0: how long it took isn't known then.
  return { line, atMs, pickup, dropoff, driveMs: minutes === null || minutes === 0 ? null : minutes * 60_000 };
}

const timePattern =
  /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d(?::?\d\d)?))?$/;

function readTime(text: string): number | null {
  const match = timePattern.exec(text);
  if (match === null) return null;
  const [year, month, day, hour, minute, second] = match.slice(1).map((part) => Number(part ?? 0)) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  if (month < 1 || month > 12 || hour > 23 || minute > 59 || second > 59) return null;
  const atMs = Date.UTC(year, month - 1, day, hour, minute, second);
  // 31 April would silently be 1 May.
  return new Date(atMs).getUTCDate() === day ? atMs : null;
}

function readPoint(latText: string, lngText: string): Point | string {
  const lat = readNumber(latText, -90, 90);
  if (typeof lat === 'string') return `latitude ${lat}`;
  const lng = readNumber(lngText, -180, 180);
  if (typeof lng === 'string') return `longitude ${lng}`;
  // How devices without a fix and databases without a value write "unknown"; nobody hails a cab in the Gulf of Guinea.
  return lat === 0 && lng === 0 ? 'at 0, 0 is no position' : { lat, lng };
}

const numberPattern = /^[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?$/i;

function readNumber(text: string, min: number, max: number): number | string {
  if (!numberPattern.test(text)) return text === '' ? 'is missing' : `"${clip(text)}" is not a number`;
  const value = Number(text);
  return value >= min && value <= max ? value : `${clip(text)} is not within ${min} to ${max}`;
}

const clip = (text: string): string => (text.length > 40 ? `${text.slice(0, 40)}…` : text);
