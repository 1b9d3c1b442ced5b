import { execFileSync } from 'node:child_process';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import type { LeaseClient } from '../../src/client/leases/client.ts';
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import { startTestService } from '../support/service.ts';

/** The page's programs, as files of a reader who keeps them beside the sources. */
const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = `${root}/.guide-${process.pid}`;
const names = ['client.ts', 'nightly.ts', 'leader.ts', 'publisher.ts', 'worker.ts'];

const stack = new AsyncDisposableStack();
const service = stack.use(await startTestService());
const database = stack.use(connectDatabase(service.databaseUrl));
let leases: LeaseClient;
/** Loaded by Node itself, as its reader would. */
const require = createRequire(import.meta.url);
const load = <Module>(name: string): Module => require(`${folder}/${name}`) as Module;

beforeAll(async () => {
  const page = await readFile(`${root}/docs/leases-guide.md`, 'utf8');
  const programs = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, program]) => program!);
  expect(programs).toHaveLength(names.length);
  await mkdir(folder);
  await Promise.all(names.map((name, i) => writeFile(`${folder}/${name}`, programs[i]!)));
  process.env['CABRANK_URL'] = service.urlOf('api');
  process.env['CABRANK_TOKEN'] = await service.token('service', 'reader');
  ({ leases } = load<{ leases: LeaseClient }>('client.ts'));
});

afterAll(async () => {
  await leases.close();
  await rm(folder, { recursive: true, force: true });
  await stack.disposeAsync();
});

it('its programs are sound TypeScript', async () => {
  const config = { extends: '../tsconfig.json', include: ['*.ts'], compilerOptions: { noEmit: true } };
  await writeFile(`${folder}/tsconfig.json`, JSON.stringify(config));
  execFileSync(`${root}/node_modules/.bin/tsc`, ['-p', folder], { stdio: 'pipe', encoding: 'utf8' });
}, 60_000);

it('the nightly job runs here unless it runs elsewhere', async () => {
  const { nightly } = load<{ nightly: (report: (signal: AbortSignal) => Promise<void>) => Promise<string> }>(
    'nightly.ts',
  );
  const report = vi.fn<(signal: AbortSignal) => Promise<void>>(async () => {
    expect(await nightly(report)).toBe('elsewhere');
  });
  expect(await nightly(report)).toBe('done');
  expect(report).toHaveBeenCalledOnce();
});

it('the leader polls until it is told to stop', async () => {
  const { pollPrinter } = load<{ pollPrinter: (poll: () => void, stop: AbortSignal) => Promise<void> }>('leader.ts');
  const stop = new AbortController();
  const polled = vi.fn<() => void>(() => stop.abort());
  await pollPrinter(polled, stop.signal);
  expect(polled).toHaveBeenCalled();
});

it('the publisher’s write is refused to an older fence', async () => {
  const { publish } = load<{ publish: (sql: Sql, partition: string, position: number) => Promise<boolean> }>(
    'publisher.ts',
  );
  const sql = database.cold;
  await sql`create table partitions (name text primary key, position int not null, fence bigint not null)`;
  await sql`insert into partitions values ('a', 0, 0)`;
  expect(await publish(sql, 'a', 1)).toBe(true);
  await sql`update partitions set fence = 1000`;
  expect(await publish(sql, 'a', 2)).toBe(false);
  expect(await sql`select position from partitions`).toMatchObject([{ position: 1 }]);
});

it('the worker does what is due, and tries again what failed', async () => {
  const { work } = load<{
    work: (send: (payload: unknown) => Promise<void>) => Promise<number>;
  }>('worker.ts');
  await leases.work.add('mail', [
    { key: '1', payload: 'good' },
    { key: '2', payload: 'bad' },
  ]);
  const send = async (payload: unknown): Promise<void> => {
    if (payload === 'bad') throw new Error('no');
  };
  expect(await work(send)).toBe(1);
  expect(await database.cold`select attempts, last_error from work_items where key = '2'`).toMatchObject([
    { attempts: 1, last_error: 'Error: no' },
  ]);
});
