/** `cabrank serve`: the service, every role or some, until it is asked to stop. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readConfig, ROLES, type Config } from '../config.ts';
import { DEFAULT_DATA_DIR, keepAuthSecret } from '../data-folder.ts';
import { startEmbedded } from '../database/embedded.ts';
import { createLog } from '../ops/log.ts';
import { startService } from '../service.ts';
import { migrateWhenUp } from './reach.ts';
import { askedToStop, drainWithin } from './stopping.ts';
import { readOptions } from './usage.ts';

const help = `
cabrank serve [options]

  --host HOST      address to listen on             HOST, 127.0.0.1
  --port PORT      port to listen on; 0: any        PORT, 3000
  --roles LIST     of ${ROLES.join(', ')}   ROLES, all of them
  --data-dir DIR   the embedded database and secret DATA_DIR, ./data
  --temporary      keep nothing: a database that is gone when this ends

Settings by environment (the second column above, and):
  DATABASE_URL     your PostgreSQL in place of the embedded one; needs AUTH_SECRET
  AUTH_SECRET      the HS256 secret of the tokens, 32 bytes or more
  REDIS_URL        Redis or Valkey for the queue and the socket fan-out
  POLICY           JSON of policy settings that new regions shall have instead of the defaults
  DEVICE_REQUESTS_PER_S   of one rider or driver, 100
  SERVICE_REQUESTS_PER_S  of one service or ops, 5000
  HOT_CONNECTIONS  database connections for the transitions, 10
  LOG_LEVEL        info
  MATCHER_FAULT_RATE  share of match rounds that fail on purpose, 0
`;

/** What a parent process hears when the service is up. */
export interface Ready {
  readonly ready: { readonly url: string; readonly databaseUrl: string; readonly authSecret: string };
}

export async function serve(args: string[]): Promise<number> {
  const flags = readOptions(
    args,
    {
      host: { type: 'string' },
      port: { type: 'string' },
      roles: { type: 'string' },
      'data-dir': { type: 'string' },
      temporary: { type: 'boolean' },
    },
    help,
  );
  if (flags === null) return 0;
  const config = readConfig({
    ...process.env,
    ...(flags.host === undefined ? {} : { HOST: flags.host }),
    ...(flags.port === undefined ? {} : { PORT: flags.port }),
    ...(flags.roles === undefined ? {} : { ROLES: flags.roles }),
    ...(flags['data-dir'] === undefined ? {} : { DATA_DIR: flags['data-dir'] }),
  });
  const log = createLog(config.logLevel);
  const stopped = askedToStop();

  await using stack = new AsyncDisposableStack();
  const home = await openHome(config, flags.temporary === true, stack);
  await migrateWhenUp(home.databaseUrl, (text) => log.warn(text));
  const service = await startService({
    ...config,
    databaseUrl: home.databaseUrl,
    isAlone: config.databaseUrl === null,
    authSecret: home.authSecret,
    log,
  });
  announce(service.url, config, home, flags.temporary === true);
  process.send?.({ ready: { url: service.url, ...home } } satisfies Ready);

  log.info(`${await stopped}: draining`);
  await drainWithin(
    async () => {
      await service.drain();
      await stack.disposeAsync();
    },
    (text) => log.error(text),
  );
  if (process.connected) process.disconnect();
  return 0;
}

interface Home {
  readonly databaseUrl: string;
  readonly authSecret: string;
}

/** The database and the secret: the caller's, or those of the data folder. */
async function openHome(config: Config, isTemporary: boolean, stack: AsyncDisposableStack): Promise<Home> {
  if (config.databaseUrl !== null) return { databaseUrl: config.databaseUrl, authSecret: config.authSecret! };
  const dataDir = isTemporary ? await mkdtemp(join(tmpdir(), 'cabrank-')) : config.dataDir;
  if (isTemporary) stack.defer(() => rm(dataDir, { recursive: true, force: true }));
  else await mkdir(dataDir, { recursive: true });
  const database = stack.use(await startEmbedded(isTemporary ? {} : { dataDir }));
  return { databaseUrl: database.url, authSecret: config.authSecret ?? (await keepAuthSecret(dataDir)) };
}

function announce(url: string, config: Config, home: Home, isTemporary: boolean): void {
  if (process.send !== undefined) return;
  const gateway = config.roles.has('gateway') ? [`  websocket   ${url.replace('http', 'ws')}/drivers (socket.io)`] : [];
  console.log(
    [
      `cabrank serves ${[...config.roles].join(', ')}`,
      `  REST        ${url}/v1      ${url}/docs`,
      ...gateway,
      `  operations  ${url}/metrics  ${url}/healthz  ${url}/readyz`,
      `  database    ${config.databaseUrl === null ? (isTemporary ? 'embedded, temporary' : `embedded, in ${config.dataDir}`) : new URL(home.databaseUrl).host}`,
      `  a token     ${tokenCommand(config, home, isTemporary)}`,
    ].join('\n'),
  );
}

/** What finds the same secret, wherever that is. */
function tokenCommand({ databaseUrl, authSecret, dataDir }: Config, home: Home, isTemporary: boolean): string {
  const command = 'npx cabrank token --role ops --sub me';
  if (isTemporary) return `AUTH_SECRET=${home.authSecret} ${command}`;
  const isInFolder = databaseUrl === null && authSecret === null;
  return isInFolder && dataDir !== DEFAULT_DATA_DIR ? `${command} --data-dir '${dataDir}'` : command;
}
