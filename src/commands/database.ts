/** `cabrank database`: the embedded database alone, for processes that each run a role. */
import { DEFAULT_DATA_DIR } from '../data-folder.ts';
import { startEmbedded } from '../database/embedded.ts';
import { migrateWhenUp } from './reach.ts';
import { askedToStop } from './stopping.ts';
import { readOptions } from './usage.ts';

const help = `
cabrank database [options]     runs the embedded database, migrated, and prints its URL

  --data-dir DIR   where it is kept                 DATA_DIR, ./data
  --temporary      keep nothing
  --port PORT      any free port unless given
`;

export async function databaseCommand(args: string[]): Promise<number> {
  const flags = readOptions(
    args,
    { 'data-dir': { type: 'string' }, temporary: { type: 'boolean' }, port: { type: 'string' } },
    help,
  );
  if (flags === null) return 0;
  const stopped = askedToStop();
  await using database = await startEmbedded({
    ...(flags.temporary === true ? {} : { dataDir: flags['data-dir'] ?? process.env['DATA_DIR'] ?? DEFAULT_DATA_DIR }),
    ...(flags.port === undefined ? {} : { port: Number(flags.port) }),
  });
  await migrateWhenUp(database.url, (text) => console.error(text));
  if (process.send === undefined) console.log(database.url);
  else process.send({ ready: { databaseUrl: database.url } });
  await stopped;
  if (process.connected) process.disconnect();
  return 0;
}
