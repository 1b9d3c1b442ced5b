import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import postgres from '../../src/database/postgres.ts';
import { describe, expect, test, vi } from 'vitest';
import { findRunningEmbedded, startEmbedded } from '../../src/database/embedded.ts';

const isRoot = process.getuid?.() === 0;
const gone = { timeout: 20_000, interval: 50 };

interface Folder extends AsyncDisposable {
  readonly path: string;
}

/** A folder that is removed with what its data folder points to. */
async function makeFolder(mode: number): Promise<Folder> {
  const path = await fs.mkdtemp(join(tmpdir(), 'embedded-test-'));
  await fs.chmod(path, mode);
  const remove = async (): Promise<void> => {
    const home = await fs.realpath(join(path, 'data', 'postgres')).catch(() => path);
    for (const folder of [home, path]) await fs.rm(folder, { recursive: true, force: true });
  };
  return { path, [Symbol.asyncDispose]: remove };
}

async function query(url: string, statement: string): Promise<Record<string, unknown>[]> {
  const sql = postgres(url, { max: 1, connect_timeout: 10, onnotice: () => {} });
  try {
    return await sql.unsafe(statement);
  } finally {
    await sql.end();
  }
}

interface Owner {
  readonly process: ChildProcess;
  readonly url: string;
  readonly dataDir: string;
  readonly pid: number;
  readonly guardPid: number;
}

/** Another Node process that runs a database, to be killed. */
async function startOwner(dataDir?: string): Promise<Owner> {
  const script = `
    import { subscribe } from 'node:diagnostics_channel';
    let guard;
    subscribe('child_process', ({ process }) => setImmediate(() => {
      if (process.spawnargs.includes('cabrank-guard')) guard = process;
    }));
    const { startEmbedded } = await import(${JSON.stringify(import.meta.resolve('../../src/database/embedded.ts'))});
    const { url, dataDir, pid } = await startEmbedded(${JSON.stringify(dataDir === undefined ? {} : { dataDir })});
    console.log(JSON.stringify({ url, dataDir, pid, guardPid: guard.pid }));
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const lines = createInterface(child.stdout);
  const [line] = (await once(lines, 'line', { signal: AbortSignal.timeout(20_000) })) as [string];
  return { process: child, ...(JSON.parse(line) as Omit<Owner, 'process'>) };
}

async function killNow(owner: Owner): Promise<void> {
  owner.process.kill('SIGKILL');
  await once(owner.process, 'exit');
}

describe.concurrent('the embedded database', () => {
  test('two at once get ports of their own, only on this machine, with nothing lost in a power cut', async () => {
    await using first = await startEmbedded();
    await using second = await startEmbedded();
    expect(new URL(first.url).port).not.toBe(new URL(second.url).port);
    const [row] = await query(
      first.url,
      `SELECT current_setting('listen_addresses') AS addresses, current_setting('fsync') AS fsync,
        current_setting('synchronous_commit') AS synchronous_commit, current_setting('full_page_writes') AS page_writes,
        current_setting('data_checksums') AS checksums, current_setting('server_encoding') AS encoding`,
    );
    expect(row).toEqual({
      addresses: '127.0.0.1',
      fsync: 'on',
      synchronous_commit: 'on',
      page_writes: 'on',
      checksums: 'on',
      encoding: 'UTF8',
    });
  });

  test('without the password nobody gets in', async () => {
    await using db = await startEmbedded();
    const wrong = Object.assign(new URL(db.url), { password: 'wrong' }).href;
    await expect(query(wrong, 'SELECT 1')).rejects.toMatchObject({ code: '28P01' });
  });

  test('stopping removes a temporary folder, and stopping again does nothing', async () => {
    const db = await startEmbedded();
    await db.stop();
    await db.stop();
    await expect(fs.stat(db.dataDir)).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(query(db.url, 'SELECT 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  test('a port that somebody listens on is an error', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as { port: number };
    await expect(startEmbedded({ port })).rejects.toMatchObject({ code: 'port_taken' });
    other.close();
  });

  test('a setting that the server refuses is an error with the server’s reason', async () => {
    const start = startEmbedded({ settings: { shared_buffers: 'plenty' } });
    await expect(start).rejects.toMatchObject({
      code: 'start_failed',
      message: expect.stringContaining('invalid value for parameter "shared_buffers"'),
    });
  });

  test('a setting can’t smuggle in another one', async () => {
    const start = startEmbedded({ settings: { work_mem: "4MB'\nfsync = 'off" } });
    await expect(start).rejects.toMatchObject({ code: 'invalid_setting' });
  });

  test('data, password and settings of ALTER SYSTEM outlive a restart', async () => {
    await using folder = await makeFolder(0o755);
    const dataDir = join(folder.path, 'data');
    {
      await using db = await startEmbedded({ dataDir });
      await query(db.url, 'CREATE TABLE kept AS SELECT 42 AS answer');
      await query(db.url, `ALTER SYSTEM SET work_mem = '5MB'`);
    }
    await using db = await startEmbedded({ dataDir });
    expect(await query(db.url, `SELECT answer, current_setting('work_mem') AS memory FROM kept`)).toEqual([
      { answer: 42, memory: '5MB' },
    ]);
  });

  test('a data folder in use is refused, and the first one isn’t disturbed', async () => {
    await using folder = await makeFolder(0o755);
    const dataDir = join(folder.path, 'data');
    expect(await findRunningEmbedded(dataDir)).toBeUndefined();
    await using db = await startEmbedded({ dataDir });
    await expect(startEmbedded({ dataDir })).rejects.toMatchObject({
      code: 'data_dir_in_use',
      message: expect.stringContaining(`process ${process.pid} `),
    });
    expect(await findRunningEmbedded(dataDir)).toBe(db.url);
    expect(await query(db.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  });

  test('of many starts on one new data folder at once at most one succeeds', async () => {
    await using folder = await makeFolder(0o755);
    const dataDir = join(folder.path, 'data');
    const starts = await Promise.allSettled([1, 2, 3, 4].map(() => startEmbedded({ dataDir })));
    const running = starts.filter((start) => start.status === 'fulfilled');
    for (const { value } of running) await value.stop();
    expect(running.length).toBeLessThanOrEqual(1);
    for (const start of starts) {
      if (start.status === 'rejected') expect(start.reason).toMatchObject({ code: 'data_dir_in_use' });
    }
  });

  test('killing the owner ends the server and removes its temporary folder', async () => {
    const owner = await startOwner();
    expect(await query(owner.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    await killNow(owner);
    await vi.waitFor(() => expect(fs.stat(owner.dataDir)).rejects.toMatchObject({ code: 'ENOENT' }), gone);
    await expect(query(owner.url, 'SELECT 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  test('a server whose owner and guard were killed is ended by the next start, and keeps what was committed', async () => {
    await using folder = await makeFolder(0o755);
    const dataDir = join(folder.path, 'data');
    const owner = await startOwner(dataDir);
    process.kill(owner.guardPid, 'SIGKILL');
    await killNow(owner);
    await query(owner.url, 'CREATE TABLE kept AS SELECT 42 AS answer');
    await using db = await startEmbedded({ dataDir });
    expect(db.pid).not.toBe(owner.pid);
    expect(await query(db.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
    await expect(query(owner.url, 'SELECT 1')).rejects.toMatchObject({ code: 'ECONNREFUSED' });
  });

  test('a start right after the owner was killed waits for the old server’s end', async () => {
    await using folder = await makeFolder(0o755);
    const dataDir = join(folder.path, 'data');
    const owner = await startOwner(dataDir);
    await killNow(owner);
    await using db = await startEmbedded({ dataDir });
    expect(await query(db.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  });

  test('a killed server recovers, with its backends still busy and its process id reused', async () => {
    await using folder = await makeFolder(0o755);
    const dataDir = join(folder.path, 'data');
    {
      await using db = await startEmbedded({ dataDir });
      await query(db.url, 'CREATE TABLE kept AS SELECT 42 AS answer');
      // Counting holds its backend in a loop that doesn't look whether the postmaster lives.
      const busy = query(db.url, 'SELECT count(*) FROM generate_series(1, 10000000)').catch(() => {});
      await vi.waitFor(async () => {
        const rows = await query(db.url, `SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT count%'`);
        expect(rows).toHaveLength(1);
      });
      process.kill(db.pid, 'SIGKILL');
      await db.stop();
      void busy;
    }
    const pidFile = join(dataDir, 'postgres', 'pgdata', 'postmaster.pid');
    const text = await fs.readFile(pidFile, 'utf8');
    const other = spawn(process.execPath, ['--eval', 'setInterval(() => {}, 1000)']);
    await once(other, 'spawn');
    await fs.writeFile(pidFile, text.replace(/^\d+/, String(other.pid)));
    await using db = await startEmbedded({ dataDir });
    expect(await query(db.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
    expect(other.exitCode ?? other.signalCode).toBeNull();
    other.kill();
  });

  test.runIf(isRoot)('root: a data folder that only root may enter works, and says where its data is', async () => {
    await using folder = await makeFolder(0o700);
    const dataDir = join(folder.path, 'data');
    {
      await using db = await startEmbedded({ dataDir });
      await query(db.url, 'CREATE TABLE kept AS SELECT 42 AS answer');
    }
    expect(await fs.readlink(join(dataDir, 'postgres'))).toMatch(/^\/var\/lib\/cabrank\/data-/);
    await using db = await startEmbedded({ dataDir });
    expect(await query(db.url, 'SELECT answer FROM kept')).toEqual([{ answer: 42 }]);
  });

  test.runIf(isRoot)('root: the server runs as the owner of the data folder', async () => {
    await using folder = await makeFolder(0o755);
    const dataDir = join(folder.path, 'data');
    await fs.mkdir(dataDir, { mode: 0o755 });
    await fs.chown(dataDir, 65_534, 65_534);
    await using db = await startEmbedded({ dataDir });
    expect(await query(db.url, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    const { uid } = await fs.stat(join(dataDir, 'postgres', 'pgdata', 'PG_VERSION'));
    expect(uid).toBe(65_534);
  });

  test.runIf(!isRoot)('a data folder that can’t be written is an error', async () => {
    await using folder = await makeFolder(0o500);
    const dataDir = join(folder.path, 'data');
    await expect(fs.access(folder.path, constants.W_OK)).rejects.toThrow();
    await expect(startEmbedded({ dataDir })).rejects.toMatchObject({ code: 'data_dir_unusable' });
  });
});
