/**
 * One PostgreSQL server for all tests of a run, with a template database that has the schema and that
 * `createTestDatabase` copies. TEST_DATABASE_URL (of a superuser, or one who may create databases) puts the tests on
 * another server.
 */
import { randomBytes } from 'node:crypto';
import { statfs } from 'node:fs/promises';
import { freemem } from 'node:os';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/database/embedded.ts';
import type { EmbeddedDatabase } from '../../src/database/embedded.ts';
import { migrate } from '../../src/database/migrate.ts';
import { urlOfDatabase, withConnection } from './database.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** May create and drop databases. */
    adminUrl: string;
    templateDatabase: string;
  }
}

/** Nothing in a test survives a crash of the machine, so nothing waits for the disk. */
const FAST_SETTINGS = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  shared_buffers: '128MB',
  min_wal_size: '80MB',
  max_wal_size: '256MB',
};

const SHARED_MEMORY = '/dev/shm';
const SHARED_MEMORY_MIN_BYTES = 4 * 1024 ** 3;

export default async function setUp(project: TestProject): Promise<() => Promise<void>> {
  await using cleanup = new AsyncDisposableStack();
  let adminUrl = process.env['TEST_DATABASE_URL'];
  if (adminUrl === undefined) adminUrl = cleanup.use(await startFast()).url;

  const templateDatabase = `cabrank_template_${randomBytes(4).toString('hex')}`;
  await withConnection(adminUrl, (sql) => sql`CREATE DATABASE ${sql(templateDatabase)}`);
  cleanup.defer(() => withConnection(adminUrl, (sql) => sql`DROP DATABASE ${sql(templateDatabase)} WITH (FORCE)`));
  await migrate(urlOfDatabase(adminUrl, templateDatabase));
  project.provide('adminUrl', adminUrl);
  project.provide('templateDatabase', templateDatabase);

  const running = cleanup.move();
  return () => running.disposeAsync();
}

/** In memory where there is room: on a slow file system a copy of the template took 330 ms, in memory 17 ms. */
async function startFast(): Promise<EmbeddedDatabase> {
  const before = process.env['TMPDIR'];
  if (await hasRoomInMemory()) process.env['TMPDIR'] = SHARED_MEMORY;
  try {
    return await startEmbedded({ settings: FAST_SETTINGS });
  } finally {
    if (before === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = before;
  }
}

async function hasRoomInMemory(): Promise<boolean> {
  if (process.platform !== 'linux' || freemem() < SHARED_MEMORY_MIN_BYTES) return false;
  const { bavail, bsize } = await statfs(SHARED_MEMORY).catch(() => ({ bavail: 0, bsize: 0 }));
  return bavail * bsize > SHARED_MEMORY_MIN_BYTES;
}
