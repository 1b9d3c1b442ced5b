import { defineConfig } from 'vitest/config';

const pgTests = 'test/**/*.pg.test.ts';

export default defineConfig({
  test: {
    pool: 'forks',
    // Each worker has PostgreSQL working for it, and other things may run on the machine.
    maxWorkers: '50%',
    testTimeout: 30_000,
    hookTimeout: 30_000,
    teardownTimeout: 60_000,
    // vitest runs a project's globalSetup only if one of its files is to run: pure tests alone start no database.
    projects: [
      { extends: true, test: { name: 'pure', include: ['test/**/*.test.ts'], exclude: [pgTests] } },
      { extends: true, test: { name: 'pg', include: [pgTests], globalSetup: 'test/support/global-setup.ts' } },
    ],
  },
});
