/** What the connections make of a server that goes away at a bad moment. */
import type { Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { TLSSocket } from 'node:tls';
import { expect, test, vi } from 'vitest';
import { connectDatabase, isUnreachable } from '../../src/database/connection.ts';
import { createTestDatabase } from '../support/database.ts';
import { type Line, lineTo } from '../support/line.ts';

/** It breaks, so many times, as soon as a client sends what is asked for; `cuts` tells how often it did. */
async function lineThatBreaksAt(
  url: string,
  words: string,
  times: number,
  hangUp: (client: Socket, all: readonly Socket[]) => void,
): Promise<Line & { readonly cuts: () => number }> {
  let cuts = 0;
  const clients = new Set<Socket>();
  const line = await lineTo(url, (client, upstream) => {
    clients.add(client);
    client.once('close', () => clients.delete(client));
    client.on('data', (chunk: Buffer) => {
      if (cuts < times && chunk.includes(words)) {
        cuts += 1;
        hangUp(client, [...clients]);
      } else upstream.write(chunk);
    });
    upstream.on('data', (chunk: Buffer) => client.write(chunk));
  });
  return { ...line, cuts: () => cuts };
}

const hangUps = {
  end: (client: Socket) => void client.end(),
  reset: (client: Socket) => void client.resetAndDestroy(),
};

/** The answer with these words is the last that comes through. A client that wants TLS has it up to the line. */
async function lineThatFallsSilentAfter(url: string, words: string): Promise<Line> {
  let isSilent = false;
  return lineTo(url, (client, upstream) => {
    const carry = (end: Socket): void => {
      end.on('data', (chunk: Buffer) => upstream.write(chunk));
      upstream.on('data', (chunk: Buffer) => {
        if (!isSilent) end.write(chunk);
        isSilent ||= chunk.includes(words);
      });
    };
    client.once('data', (first: Buffer) => {
      if (!first.equals(WANTS_TLS)) {
        upstream.write(first);
        return carry(client);
      }
      const encrypted = new TLSSocket(client, { isServer: true, key: TLS_KEY, cert: TLS_CERT });
      encrypted.on('error', () => {});
      carry(encrypted);
      client.write('S');
    });
  });
}

const WANTS_TLS = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]);
// Of nobody, made for this test.
const TLS_KEY = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgNhAMu9pxcnt3Tn1W
o3LfrllBjms5Hm0y1kJ2ELsBAfuhRANCAAQTtbR2JZJAo8lHz0TIyLqXsJC/u/iI
SV7j3/l+3gDpwFh2NbQlmLk0VJ2GUdyTww5SiU6RNU8wAIbDBRG7VEMG
-----END PRIVATE KEY-----
`;
const TLS_CERT = `-----BEGIN CERTIFICATE-----
MIIBgDCCASWgAwIBAgIUKxykT26GZY4SmIzv81pb6erdVrMwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMzE2NTcxNloYDzIxMjYxMDMw
MTY1NzE2WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQTtbR2JZJAo8lHz0TIyLqXsJC/u/iISV7j3/l+3gDpwFh2NbQlmLk0
VJ2GUdyTww5SiU6RNU8wAIbDBRG7VEMGo1MwUTAdBgNVHQ4EFgQUtlTyeqGJEO3n
bXqeyV+GZLHxYmwwHwYDVR0jBBgwFoAUtlTyeqGJEO3nbXqeyV+GZLHxYmwwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAkKXkpkDlSgbdvAq3Oq+6
7tXIxhz0d5sYWYe6NuQchkoCIQDqczCOYjHO0I/U7zOsJ6hRM26APX7J/I3wZIWp
Cya5mA==
-----END CERTIFICATE-----
`;

// Vitest fails on a rejection that nobody handles, as Node ends a process.
test.each(['end', 'reset'] as const)(
  'a server that goes away (%s) while a connection reads its types fails the query and not the process',
  async (how) => {
    await using server = await createTestDatabase();
    await using line = await lineThatBreaksAt(server.url, 'typarray', 3, hangUps[how]);
    await using database = connectDatabase(line.url, { hotConnections: 3 });
    const answers = await Promise.allSettled([1, 2, 3].map((n) => database.hot`select ${n}::int as n`));
    const failed = answers.filter((answer) => answer.status === 'rejected');
    expect(failed.every(({ reason }) => isUnreachable(reason))).toBe(true);
    expect(line.cuts()).toBe(3);
    expect(await database.hot`select 7 as n`).toEqual([{ n: 7 }]);
    expect(await database.hot.begin((transaction) => transaction`select 8 as n`)).toEqual([{ n: 8 }]);
  },
);

test.each(['end', 'reset'] as const)(
  'what is asked as soon as a lost connection (%s) is known of is answered: others may be lost, and not gone yet',
  async (how) => {
    await using server = await createTestDatabase();
    // Whose query it was hears of it last.
    await using line = await lineThatBreaksAt(server.url, 'cut here', 1, (client, all) => {
      for (const each of all) if (each !== client) hangUps[how](each);
      hangUps[how](client);
    });
    await using database = connectDatabase(line.url, { hotConnections: 3 });
    const ask = (text: string) => database.hot<{ text: string }[]>`select ${text}::text as text`.execute();
    await Promise.all(['one', 'two', 'three'].map(ask));
    const again = await ask('cut here').catch((error: unknown) => {
      expect(isUnreachable(error)).toBe(true);
      return Promise.allSettled([ask('again'), ask('once more')]);
    });
    expect(line.cuts()).toBe(1);
    // Answered or refused; and then it works.
    expect(again).toHaveLength(2);
    expect(await ask('after')).toEqual([{ text: 'after' }]);
  },
);

test('behind a query that waits for a lock nobody else waits, as long as a connection is free', async () => {
  await using server = await createTestDatabase();
  await using holder = connectDatabase(server.url, { hotConnections: 1 });
  await using database = connectDatabase(server.url, { hotConnections: 2 });
  // It is sent at once, and not when it is awaited.
  const ask = (lock: number) =>
    database.hot<{ n: number }[]>`select ${lock}::int as n from pg_advisory_xact_lock(${lock})`.execute();
  await Promise.all([ask(1), ask(2), ask(3)]);
  await holder.hot`select pg_advisory_lock(1), pg_advisory_lock(2)`;
  const long = ask(1);
  const short = ask(2);
  const next = ask(3);
  await holder.hot`select pg_advisory_unlock(2)`;
  expect(await short).toEqual([{ n: 2 }]);
  expect(await Promise.race([next, long])).toEqual([{ n: 3 }]);
  await holder.hot`select pg_advisory_unlock(1)`;
  expect(await long).toEqual([{ n: 1 }]);
});

test.each(['', 'sslmode=disable', 'ssl=false', 'sslmode=require', 'ssl=require'])(
  'each of several queries has its own deadline (%s): an answer to one says nothing of the others',
  async (how) => {
    await using server = await createTestDatabase();
    await using line = await lineThatFallsSilentAfter(server.url, 'first');
    await using database = connectDatabase(`${line.url}?${how}`, { hotConnections: 1 });
    const ask = (text: string) => database.hot<{ text: string }[]>`select ${text}::text as text`.execute();
    await ask('warm');
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const [first, second] = [ask('first'), Promise.allSettled([ask('second')])];
      await first;
      await setImmediate();
      vi.advanceTimersByTime(7_000);
      const [given] = await second;
      expect(given.status === 'rejected' && isUnreachable(given.reason)).toBe(true);
    } finally {
      vi.useRealTimers();
    }
  },
);

test('under TLS a connection that was idle past the deadline is as good as before', async () => {
  await using server = await createTestDatabase();
  await using line = await lineThatFallsSilentAfter(server.url, 'nothing');
  await using database = connectDatabase(`${line.url}?ssl=require`, { hotConnections: 1 });
  const pid = () => database.hot`select pg_backend_pid() as pid`;
  const before = await pid();
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    await pid();
    vi.advanceTimersByTime(60_000);
    await setImmediate();
    expect(await pid()).toEqual(before);
  } finally {
    vi.useRealTimers();
  }
});

test('a transaction that loses its connection takes no place in the pool with it', async () => {
  await using server = await createTestDatabase();
  await using line = await lineThatBreaksAt(server.url, 'cut here', 1, hangUps.end);
  await using database = connectDatabase(line.url, { coldConnections: 1 });
  const lost = database.cold.begin((transaction) => transaction`select ${'cut here'}::text as text`);
  expect(isUnreachable(await lost.catch((error: unknown) => error))).toBe(true);
  expect(await database.cold`select 7 as n`).toEqual([{ n: 7 }]);
  expect(await database.cold.begin((transaction) => transaction`select 8 as n`)).toEqual([{ n: 8 }]);
});

test('what still waits for a connection when all are closed is refused, and opens none', async () => {
  await using server = await createTestDatabase();
  const database = connectDatabase(server.url, { hotConnections: 1 });
  await database.hot`select 1`;
  const asked = [1, 2, 3].map((n) => database.hot`select ${n}::int as n from pg_sleep(0.1)`.execute());
  const answers = Promise.allSettled(asked);
  await database.close();
  expect((await answers).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'rejected']);
  // A connection that was left open is found when the database is dropped.
});
