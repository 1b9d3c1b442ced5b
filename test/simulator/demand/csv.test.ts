import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRandom } from '../../../domain/random.ts';
import { type CsvWindow, loadCsvDemand } from '../../../simulator/demand/csv.ts';
import { DemandError } from '../../../simulator/demand/demand.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cabrank-demand-'));
});
afterAll(() => rm(folder, { recursive: true }));

const header = 'request_time,pu_lat,pu_lng,do_lat,do_lng,trip_min';
const row = (time: string, minutes: number | string = 7): string =>
  `2026-03-01 ${time},52.5,13.4,52.51,13.42,${minutes}`;
const whole: CsvWindow = { fromMs: null, minutes: null };
const hour = (from: number, minutes = 60): CsvWindow => ({ fromMs: from * 3_600_000, minutes });

let files = 0;
async function load(content: string | Buffer, window = whole, seed = 1) {
  const path = join(folder, `${++files}.csv`);
  await writeFile(path, content);
  return loadCsvDemand(path, window, createRandom(seed));
}
const lines = (...rows: string[]): string => [header, ...rows, ''].join('\n');
/** So many good rows that a few broken ones are within the limit. */
const many = (count: number): string[] => Array.from({ length: count }, () => row('08:00:30'));
const failure = async (loading: Promise<unknown>): Promise<DemandError> => {
  const error = await loading.then(
    () => null,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(DemandError);
  return error as DemandError;
};

describe('a demand file', () => {
  it('gives trips in the order of their requests, on a clock that starts with the first minute', async () => {
    const demand = await load(lines(row('08:01:05', 12), row('08:00:30', ''), row('08:00:45', 0)));
    expect(demand.trips).toEqual([
      { requestMs: 30_000, pickup: { lat: 52.5, lng: 13.4 }, dropoff: { lat: 52.51, lng: 13.42 }, driveMs: null },
      { requestMs: 45_000, pickup: { lat: 52.5, lng: 13.4 }, dropoff: { lat: 52.51, lng: 13.42 }, driveMs: null },
      { requestMs: 65_000, pickup: { lat: 52.5, lng: 13.4 }, dropoff: { lat: 52.51, lng: 13.42 }, driveMs: 720_000 },
    ]);
    expect(demand).toMatchObject({ startsAtMs: 8 * 3_600_000, durationMs: 120_000, broken: { rows: 3, count: 0 } });
  });

  it('may be gzipped, whatever its name says', async () => {
    const plain = await load(lines(row('08:00:30')));
    const zipped = await load(gzipSync(lines(row('08:00:30'))));
    expect(zipped.trips).toEqual(plain.trips);
  });

  it('may come from a spreadsheet: with a byte order mark, CRLF, quotes, blank lines and spaces', async () => {
    const text = `\uFEFF"request_time", "pu_lat",pu_lng,do_lat,"do_lng"\r\n\r\n"2026-03-01 08:00:30", 52.5 ,"13.4",52.51,13.42\r\n`;
    expect((await load(text)).trips).toHaveLength(1);
  });

  it('may name and order its columns in other ways, and hold more of them', async () => {
    const text =
      'id,Pickup_Datetime,pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude\n1,2026-03-01T08:00:30Z,13.4,52.5,13.42,52.51\n';
    expect((await load(text)).trips[0]).toMatchObject({
      pickup: { lat: 52.5, lng: 13.4 },
      dropoff: { lat: 52.51, lng: 13.42 },
    });
  });

  it('may have trips that end where they began', async () => {
    expect((await load(`${header}\n2026-03-01 08:00,52.5,13.4,52.5,13.4,3\n`)).trips).toHaveLength(1);
  });

  it('may lie across the date line', async () => {
    const text = `${header}\n2026-03-01 08:00,-17.8,179.99,-17.8,-179.99,3\n2026-03-01 08:00,-17.8,-179.98,-17.8,179.97,3\n`;
    expect((await load(text)).trips).toHaveLength(2);
  });
});

describe('times of a file that knows minutes only', () => {
  const minutes = lines(...Array.from({ length: 60 }, () => row('08:05')));

  it('get their seconds from the seed, within their minute', async () => {
    const times = async (seed: number) => (await load(minutes, whole, seed)).trips.map(({ requestMs }) => requestMs);
    const first = await times(1);
    expect(await times(1)).toEqual(first);
    expect(await times(2)).not.toEqual(first);
    expect(Math.min(...first)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...first)).toBeLessThan(60_000);
    expect(new Set(first).size).toBeGreaterThan(50);
  });

  it('stay as they are when any row knows seconds', async () => {
    const demand = await load(lines(row('08:05'), row('08:05'), row('08:05:01')));
    expect(demand.trips.map(({ requestMs }) => requestMs)).toEqual([0, 0, 1_000]);
  });
});

describe('a window', () => {
  const days = lines(
    '2026-03-02 08:10:01,52.5,13.4,52.51,13.42,7',
    row('07:59:59'),
    row('08:00:00'),
    row('08:59:59'),
    row('09:00:00'),
    row('23:50:00'),
    '2026-03-02 00:10:00,52.5,13.4,52.51,13.42,7',
  );
  const times = async (window: CsvWindow) => (await load(days, window)).trips.map(({ requestMs }) => requestMs);

  it('is on the first date of the file, wherever that stands', async () => {
    expect(await times(hour(8))).toEqual([0, 3_599_000]);
  });

  it('may pass midnight', async () => {
    expect(await times(hour(23.5))).toEqual([20 * 60_000, 40 * 60_000]);
  });

  it('without an end goes to the last request', async () => {
    expect(await times({ fromMs: 9 * 3_600_000, minutes: null })).toHaveLength(4);
  });

  it('without a start begins with the first request', async () => {
    expect(await times({ fromMs: null, minutes: 1 })).toEqual([59_000]);
  });

  it('without trips says what there is', async () => {
    const { code, message } = await failure(load(days, hour(3)));
    expect(code).toBe('no_trips');
    expect(message).toContain('2026-03-01 03:00');
    expect(message).toContain('2026-03-01 07:59 to 2026-03-02 08:10');
  });
});

describe('broken rows', () => {
  it('are named by their line, counted and skipped', async () => {
    const broken = [
      '2026-03-01 08:00:30,52.5,13.4,52.51,13.42',
      'yesterday,52.5,13.4,52.51,13.42,7',
      '2026-02-30 08:00:30,52.5,13.4,52.51,13.42,7',
      '2026-03-01 25:00:30,52.5,13.4,52.51,13.42,7',
      '2026-03-01 08:00:30,91,13.4,52.51,13.42,7',
      '2026-03-01 08:00:30,52.5,,52.51,13.42,7',
      '2026-03-01 08:00:30,52.5,13.4,0x10,13.42,7',
      '2026-03-01 08:00:30,0,0,52.51,13.42,7',
      '2026-03-01 08:00:30,52.5,13.4,52.51,13.42,-1',
      '2026-03-01 08:00:30,52.5,-13.4,52.51,13.42,7',
    ];
    const { trips, broken: report } = await load(lines(...many(1_000), ...broken));
    expect(trips).toHaveLength(1_000);
    expect(report).toMatchObject({ rows: 1_010, count: 10 });
    expect(report.examples).toEqual([
      'line 1002: 5 fields instead of 6',
      'line 1003: request time "yesterday" is not a date and time (YYYY-MM-DD HH:MM:SS)',
      'line 1004: request time "2026-02-30 08:00:30" is not a date and time (YYYY-MM-DD HH:MM:SS)',
      'line 1005: request time "2026-03-01 25:00:30" is not a date and time (YYYY-MM-DD HH:MM:SS)',
      'line 1006: pick-up latitude 91 is not within -90 to 90',
      'line 1007: pick-up longitude is missing',
      'line 1008: drop-off latitude "0x10" is not a number',
      'line 1009: pick-up at 0, 0 is no position',
      'line 1010: trip minutes -1 is not within 0 to 1440',
      expect.stringMatching(/^line 1011: \d+ km from the middle of the city$/),
    ]);
  });

  it('beyond one in a hundred mean that the file is wrong', async () => {
    const bad = 'nonsense,52.5,13.4,52.51,13.42,7';
    expect((await load(lines(...many(99), bad))).broken.count).toBe(1);
    const { code, message } = await failure(load(lines(...many(98), bad)));
    expect(code).toBe('too_many_broken_rows');
    expect(message).toContain('1 of 99 rows');
    expect(message).toContain('line 100: request time "nonsense"');
  });

  it('are all the lines that a misplaced quote swallows, and not one', async () => {
    const swallowed = [
      ...many(2_000),
      '2026-03-01 08:00:30,52.5,13.4,52.51,13.42,"7',
      ...many(10),
      '2026-03-01 08:00:30,"52.5",13.4,52.51,13.42,7',
      ...many(50),
    ];
    const { trips, broken } = await load(lines(...swallowed));
    expect(trips).toHaveLength(2_050);
    expect(broken).toMatchObject({ rows: 2_062, count: 12 });
  });

  it('don’t hide that the rest of the file is missing behind a quote left open', async () => {
    const { code, message } = await failure(
      load(lines(...many(500), '2026-03-01 08:00:30,"52.5,13.4,52.51,13.42,7', ...many(5_000))),
    );
    expect(code).toBe('unreadable');
    expect(message).toContain('after line 501');
    expect(
      (await failure(load(lines(...many(500), '2026-03-01 08:00:30,"52.5,13.4,52.51,13.42,7', ...many(50))))).code,
    ).toBe('too_many_broken_rows');
  });
});

describe('a file that can’t be used', () => {
  it('lacks columns: they are named, with the header it has', async () => {
    const { code, message } = await failure(load('when,pu_lat,pu_lng\n2026,1,2\n'));
    expect(code).toBe('missing_columns');
    expect(message).toMatch(/request_time \(or .*do_lat \(or .*do_lng \(or .*The header is: when, pu_lat, pu_lng/);
    expect(message).not.toContain('pu_lat (or');
  });

  it('is empty, or has a header and nothing else', async () => {
    expect((await failure(load(''))).code).toBe('missing_columns');
    expect((await failure(load(`${header}\n`))).code).toBe('no_trips');
  });

  it('isn’t there, is a folder, or is half of a gzip', async () => {
    expect((await failure(loadCsvDemand(join(folder, 'nothing'), whole, createRandom(1)))).code).toBe('unreadable');
    expect((await failure(loadCsvDemand(folder, whole, createRandom(1)))).code).toBe('unreadable');
    expect((await failure(load(gzipSync(lines(...many(100))).subarray(0, 60)))).code).toBe('unreadable');
  });
});
