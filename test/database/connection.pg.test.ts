/** What the connections make of a server that goes away at a bad moment. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { connectDatabase, isUnreachable } from '../../src/database/connection.ts';
import { createTestDatabase } from '../support/database.ts';

interface Line extends AsyncDisposable {
  readonly url: string;
  /** The connections cut so far. */
  readonly cuts: () => number;
}

/** A line to the server that breaks, so many times, as soon as a client sends what is asked for. */
async function lineThatBreaksAt(url: string, words: string, times: number, how: 'end' | 'reset'): Promise<Line> {
  const { port, hostname } = new URL(url);
  const sockets = new Set<Socket>();
  let cuts = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => {});
    }
    client.on('data', (chunk: Buffer) => {
      if (cuts < times && chunk.includes(words)) {
        cuts += 1;
        upstream.destroy();
        if (how === 'end') client.end();
        else client.resetAndDestroy();
      } else upstream.write(chunk);
    });
    upstream.on('data', (chunk: Buffer) => client.write(chunk));
    client.once('close', () => upstream.destroy());
    upstream.once('close', () => client.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const own = new URL(url);
  own.port = `${(server.address() as AddressInfo).port}`;
  return {
    url: own.href,
    cuts: () => cuts,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

// Vitest fails on a rejection that nobody handles, as Node ends a process.
test.each(['end', 'reset'] as const)(
  'a server that goes away (%s) while a connection reads its types fails the query and not the process',
  async (how) => {
    await using server = await createTestDatabase();
    await using line = await lineThatBreaksAt(server.url, 'typarray', 3, how);
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
  'what is asked as soon as a lost connection (%s) is known of is answered: the connection may not be gone yet',
  async (how) => {
    await using server = await createTestDatabase();
    await using line = await lineThatBreaksAt(server.url, 'cut here', 1, how);
    await using database = connectDatabase(line.url, { hotConnections: 1 });
    const ask = (text: string) => database.hot<{ text: string }[]>`select ${text}::text as text`;
    // From the second time on a statement is one message, behind which others go out.
    expect(await ask('first')).toEqual([{ text: 'first' }]);
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
