import { expect, it } from 'vitest';
import { readSettings } from '../../simulator/options.ts';

it('sockets are where REST is, unless another address is given', () => {
  const url = 'http://127.0.0.1:3000';
  expect(readSettings('simulate', ['--url', url])).toMatchObject({ urls: [url], socketUrls: [url] });
  const split = ['--url', `${url},${url}/`, '--socket-url', 'https://sockets.example'];
  expect(readSettings('simulate', split)).toMatchObject({ urls: [url, url], socketUrls: ['https://sockets.example'] });
});

it.each([
  ['simulate', ['--url', 'localhost:3000'], '--url: localhost:3000'],
  ['simulate', ['--url', 'http://a', '--socket-url', 'nonsense'], '--socket-url: nonsense'],
  ['simulate', ['--split'], '--split'],
  ['demo', ['--kill', 'api'], '--kill needs --split'],
  ['demo', ['--split', '--kill', 'nobody'], '--kill: nobody'],
  ['demo', ['--drivers', '0'], '--drivers must be a whole number'],
  ['demo', ['--speedup', 'x'], '--speedup'],
  ['demo', ['--from', '25:00'], '--from 25:00'],
  ['demo', ['--policy', '{'], '--policy'],
  ['demo', ['--policy', '{"decisionTtl": 1}'], 'decisionTtl'],
] as const)('%s %j is refused', (command, args, said) => {
  expect(() => readSettings(command, [...args])).toThrow(said);
});
