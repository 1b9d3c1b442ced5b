import { createReadStream } from 'node:fs';
import { open } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { parse, type Parser } from 'csv-parse';
import { greatCircleM } from '../../domain/geo.ts';
import type { Random } from '../../domain/random.ts';
import { CITY_RADIUS_MAX_M, middleOf } from './city.ts';
import { type Columns, findColumns, readRow, type Row } from './csv-row.ts';
import { type BrokenRows, clockTime, DAY_MS, type Demand, DemandError, type Trip } from './demand.ts';

export interface CsvWindow {
  /** Time of day on the file's first date, in milliseconds since midnight; null: from the first request. */
  readonly fromMs: number | null;
  /** Length of the window in city time; null: to the last request. */
  readonly minutes: number | null;
}

/** More broken rows than this share, and it's the file that is wrong and not a row. */
const BROKEN_SHARE_MAX = 0.01;
const EXAMPLES_MAX = 10;
/** Held in memory, at about 200 bytes each. */
const TRIPS_MAX = 2_000_000;
/** No row of a trip file is this long; a record that is comes from a quote that was never closed. */
const RECORD_MAX_CHARS = 64_000;
const MINUTE_MS = 60_000;

/**
 * Reads trips from a CSV file, plain or gzipped (told by its content, not its name), in one pass.
 *
 * Columns are found by name: request time, pick-up and drop-off are needed, trip minutes may be absent or empty.
 * Times are taken as the clock on the wall, whatever zone they name. Where the whole file knows minutes only, the
 * seconds come from `random`. A row that can't be used is named by its line, counted and skipped.
 *
 * Throws `DemandError`: unreadable file, missing columns, more than 1 % broken rows, no trips in the window.
 */
export async function loadCsvDemand(path: string, window: CsvWindow, random: Random): Promise<Demand> {
  const reading = new Reading(window);
  try {
    await readLines(path, reading);
    return { name: path, ...reading.demand(random) };
  } catch (error) {
    const code = error instanceof DemandError ? error.code : 'unreadable';
    throw new DemandError(code, `${path}: ${(error as Error).message}`, { cause: error });
  }
}

async function readLines(path: string, reading: Reading): Promise<void> {
  const gzip = await isGzip(path);
  // Lines are judged inside the parser's callbacks: only there do rows and errors come in the file's own order.
  const parser: Parser = parse({
    bom: true,
    trim: true,
    skip_empty_lines: true,
    relax_column_count: true,
    skip_records_with_error: true,
    max_record_size: RECORD_MAX_CHARS,
    on_record: (fields: string[], { lines, empty_lines }) => {
      // A refusal in here would be skipped as one more broken row, so it ends the reading instead.
      const refusal = reading.record(fields, lines - empty_lines, lines);
      if (refusal !== null) parser.destroy(refusal);
      return null;
    },
    on_skip: (error) => {
      const { lines, empty_lines } = parser.info;
      // Past such a record the parser finds no other, and what follows would be missing without a word.
      if (error?.code === 'CSV_MAX_RECORD_SIZE') parser.destroy(reading.endless());
      else reading.unreadableUpTo(lines - empty_lines, lines);
      return undefined;
    },
  });
  const source = createReadStream(path);
  if (gzip) await pipeline(source, createGunzip(), parser.resume());
  else await pipeline(source, parser.resume());
  reading.end(parser.info.lines - parser.info.empty_lines, parser.info.lines);
}

async function isGzip(path: string): Promise<boolean> {
  const file = await open(path);
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(2), 0, 2, 0);
    return bytesRead === 2 && buffer[0] === 0x1f && buffer[1] === 0x8b;
  } finally {
    await file.close();
  }
}

/**
 * One pass over a file. Every line that isn't blank is accounted for, as a trip or as broken: a quote that is never
 * closed makes the parser swallow all that follows as one record, and would pass for a single broken row.
 */
class Reading {
  readonly #window: CsvWindow;
  #columns: Columns | null = null;
  #rows: Row[] = [];
  /** Lines that aren't blank, accounted for so far; the header is the first. */
  #seen = 0;
  /** Where those end, as an editor counts. */
  #line = 0;
  #brokenCount = 0;
  readonly #examples: string[] = [];
  #knowsSeconds = false;
  #firstMs = Infinity;
  #lastMs = -Infinity;

  constructor(window: CsvWindow) {
    this.#window = window;
  }

  /** Takes the record that ends the file's first `seen` lines (blank ones not counted). Null: go on. */
  record(fields: string[], seen: number, line: number): DemandError | null {
    const lines = this.#advance(seen, line);
    if (this.#columns === null) {
      const columns = findColumns(fields);
      if (columns instanceof DemandError) return columns;
      this.#columns = columns;
      return null;
    }
    const row = lines > 1 ? 'a quoted field runs past the end of its line' : readRow(fields, this.#columns, line);
    if (typeof row === 'string') this.#reject(line, lines, row);
    else this.#accept(row);
    return this.#rows.length > TRIPS_MAX
      ? new DemandError('too_large', `more than ${TRIPS_MAX} trips: choose a part of the file by time`)
      : null;
  }

  unreadableUpTo(seen: number, line: number): void {
    const lines = this.#advance(seen, line);
    if (lines > 0) this.#reject(line, lines, 'a quote in the wrong place');
  }

  endless(): DemandError {
    return new DemandError('unreadable', `the row after line ${this.#line} never ends: is a quote left open there?`);
  }

  end(seen: number, line: number): void {
    const lines = this.#advance(seen, line);
    if (lines > 0) this.#reject(line, lines, 'inside a quote that is never closed');
    if (this.#columns === null) throw new DemandError('missing_columns', 'the file is empty: not even a header');
  }

  demand(random: Random): Omit<Demand, 'name'> {
    this.#assertMostlyGood();
    const { startMs, endMs } = this.#bounds();
    this.#rows = this.#rows.filter((row) => row.atMs >= startMs && row.atMs < endMs);
    this.#rejectStrays();
    this.#assertMostlyGood();
    if (this.#rows.length === 0) throw new DemandError('no_trips', this.#whyEmpty(startMs, endMs));
    const trips = this.#rows.map((row) => tripOf(row, startMs, this.#knowsSeconds ? null : random));
    trips.sort((a, b) => a.requestMs - b.requestMs);
    return { trips, startsAtMs: startMs % DAY_MS, durationMs: endMs - startMs, broken: this.#broken() };
  }

  /** How many lines that adds. */
  #advance(seen: number, line: number): number {
    const lines = Math.max(0, seen - this.#seen);
    this.#seen += lines;
    this.#line = line;
    return lines;
  }

  #accept(row: Row): void {
    this.#firstMs = Math.min(this.#firstMs, row.atMs);
    this.#lastMs = Math.max(this.#lastMs, row.atMs);
    this.#knowsSeconds ||= row.atMs % MINUTE_MS !== 0;
    if (this.#mayMatter(row)) this.#rows.push(row);
  }

  /** The first date is known only at the end; until then the time of day alone tells what can be forgotten. */
  #mayMatter(row: Row): boolean {
    const { fromMs, minutes } = this.#window;
    if (fromMs === null || minutes === null) return true;
    return (row.atMs - fromMs + DAY_MS) % DAY_MS < minutes * MINUTE_MS;
  }

  #bounds(): { startMs: number; endMs: number } {
    const { fromMs, minutes } = this.#window;
    const firstDayMs = Math.floor(this.#firstMs / DAY_MS) * DAY_MS;
    const firstMinuteMs = Math.floor(this.#firstMs / MINUTE_MS) * MINUTE_MS;
    const startMs = fromMs === null ? firstMinuteMs : firstDayMs + fromMs;
    const lastMinuteMs = Math.floor(this.#lastMs / MINUTE_MS) * MINUTE_MS;
    return { startMs, endMs: minutes === null ? lastMinuteMs + MINUTE_MS : startMs + minutes * MINUTE_MS };
  }

  /** A flipped sign lies on another continent, and would stretch the region across the globe. */
  #rejectStrays(): void {
    if (this.#rows.length === 0) return;
    const middle = middleOf(this.#rows.map((row) => row.pickup));
    this.#rows = this.#rows.filter((row) => {
      const awayM = Math.max(greatCircleM(middle, row.pickup), greatCircleM(middle, row.dropoff));
      if (awayM <= CITY_RADIUS_MAX_M) return true;
      this.#reject(row.line, 1, `${Math.round(awayM / 1000)} km from the middle of the city`);
      return false;
    });
  }

  #reject(line: number, lines: number, problem: string): void {
    this.#brokenCount += lines;
    const where = lines === 1 ? `line ${line}` : `lines ${line - lines + 1} to ${line}`;
    if (this.#examples.length < EXAMPLES_MAX) this.#examples.push(`${where}: ${problem}`);
  }

  #broken(): BrokenRows {
    return { rows: Math.max(0, this.#seen - 1), count: this.#brokenCount, examples: this.#examples };
  }

  #assertMostlyGood(): void {
    const { rows, count, examples } = this.#broken();
    if (count <= rows * BROKEN_SHARE_MAX) return;
    const named = examples.map((example) => `\n  ${example}`).join('');
    const more = count > examples.length ? '\n  …' : '';
    throw new DemandError(
      'too_many_broken_rows',
      `${count} of ${rows} rows are broken, more than ${BROKEN_SHARE_MAX * 100} %${named}${more}`,
    );
  }

  #whyEmpty(startMs: number, endMs: number): string {
    if (this.#firstMs === Infinity) return 'there are no trips in it';
    const minutes = Math.round((endMs - startMs) / MINUTE_MS);
    return (
      `no trips in the ${minutes} minutes from ${clockTime(startMs)}; ` +
      `it holds ${clockTime(this.#firstMs)} to ${clockTime(this.#lastMs)}`
    );
  }
}

function tripOf(row: Row, startMs: number, seconds: Random | null): Trip {
  const withinMinuteMs = seconds === null ? 0 : Math.floor(seconds.next() * MINUTE_MS);
  const { pickup, dropoff, driveMs } = row;
  return { requestMs: row.atMs - startMs + withinMinuteMs, pickup, dropoff, driveMs };
}
