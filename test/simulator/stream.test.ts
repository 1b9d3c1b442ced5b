import { expect, it } from 'vitest';
import { DAY_MS, type Trip } from '../../simulator/demand/demand.ts';
import { TripStream } from '../../simulator/generator/stream.ts';

const CORNER = { lat: 48, lng: 7.8 };
const at = (requestMs: number): Trip => ({ requestMs, pickup: CORNER, dropoff: CORNER, driveMs: null });
const stream = new TripStream([at(0), at(10), at(10), at(DAY_MS - 1)]);
const keys = (fromMs: number, toMs: number) => [...stream.between(fromMs, toMs)].map(({ key }) => key);

it('goes on the next day with the same trips under other names', () => {
  expect(keys(-1, DAY_MS + 10)).toEqual(['0-0', '0-1', '0-2', '0-3', '1-0', '1-1', '1-2']);
});

it('of two stretches that touch, each trip is in one', () => {
  expect([...keys(-1, 10), ...keys(10, DAY_MS)]).toEqual(keys(-1, DAY_MS));
  expect(keys(10, 10)).toEqual([]);
});

it('names a trip alike wherever the stretch begins', () => {
  expect(keys(3 * DAY_MS + 5, 3 * DAY_MS + 20)).toEqual(['3-1', '3-2']);
  expect(keys(3 * DAY_MS + 10, 4 * DAY_MS - 1)).toEqual(['3-3']);
});
