/** `cabrank serve` as a process: how it starts, fails and stops. */
import { exec, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempDisposable } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { createAuthenticator } from '../../src/auth.ts';
import { readAuthSecret } from '../../src/data-folder.ts';
import { createTestDatabase } from '../support/database.ts';

const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const AUTH_SECRET = 'a secret of thirty-two bytes, or more';
const DEADLINE_MS = 25_000;

interface Ended {
  readonly code: number | null;
  readonly said: string;
}

/** Runs it until it ends; `SIGTERM` once it has said `stopAt`. */
async function serve(args: string[], env: NodeJS.ProcessEnv, stopAt?: string): Promise<Ended> {
  const child = spawn(process.execPath, [main, 'serve', ...args], { env: { ...process.env, AUTH_SECRET, ...env } });
  const overdue = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS);
  let said = '';
  let isAsked = false;
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      if (isAsked || stopAt === undefined || !said.includes(stopAt)) return;
      isAsked = true;
      child.kill('SIGTERM');
    });
  }
  const [code] = (await once(child, 'close')) as [number | null];
  clearTimeout(overdue);
  return { code, said };
}

test('SIGTERM drains it, and it exits with 0', async () => {
  await using database = await createTestDatabase();
  const { code, said } = await serve(['--port', '0'], { DATABASE_URL: database.url }, 'a token');
  expect(said).toContain('draining');
  expect(code).toBe(0);
});

test('SIGTERM ends it while Redis is away, too', async () => {
  await using database = await createTestDatabase();
  const env = { DATABASE_URL: database.url, REDIS_URL: 'redis://127.0.0.1:1' };
  const { code, said } = await serve(['--port', '0'], env, 'a token');
  expect(said).toContain('draining');
  expect(code).toBe(0);
});

test('the command for a token that it prints finds the secret in a folder of one’s own', async () => {
  await using folder = await mkdtempDisposable(join(tmpdir(), 'cabrank serve '));
  const { said } = await serve(['--port', '0', '--data-dir', folder.path], { AUTH_SECRET: undefined }, 'a token');
  const [, command] = /a token +npx cabrank (.*)/.exec(said)!;
  const program = `'${process.execPath}' '${main}' ${command}`;
  const { stdout } = await promisify(exec)(program, { env: { ...process.env, AUTH_SECRET: undefined } });
  const authenticator = createAuthenticator((await readAuthSecret(folder.path))!);
  expect(await authenticator.verify(stdout.trim())).toMatchObject({ role: 'ops', sub: 'me' });
});

test('a port that somebody else listens on is an error, and the process ends', async () => {
  await using database = await createTestDatabase();
  const squatter = createServer().listen(0, '127.0.0.1');
  await once(squatter, 'listening');
  const { port } = squatter.address() as AddressInfo;
  const { code, said } = await serve(['--port', String(port)], { DATABASE_URL: database.url });
  squatter.close();
  expect(said).toMatch(/EADDRINUSE.*127\.0\.0\.1/);
  expect(code).toBe(1);
});

test('a flag that isn’t one ends with 2, and settings that can’t work with 1, before anything starts', async () => {
  expect(await serve(['--nope'], {})).toMatchObject({ code: 2, said: expect.stringContaining('--nope') as unknown });
  const broken = await serve([], { DATABASE_URL: 'postgres://x@127.0.0.1:1/x', POLICY: '{"searchRadiusStepM":-1}' });
  expect(broken).toMatchObject({ code: 1, said: expect.stringContaining('searchRadiusStepM') as unknown });
});
