/** `cabrank verify`: the invariants, checked from the records. */
import { access } from 'node:fs/promises';
import { findRunningEmbedded, startEmbedded } from '../database/embedded.ts';
import { formatVerification } from '../verify/report.ts';
import { verify, verifyExitCode } from '../verify/verify.ts';
import { readOptions, UsageError } from './usage.ts';

const help = `
cabrank verify [options]      exit code 0: all hold; 1: violations; 2: there is no history

  --data-dir DIR   the embedded database to read, running or not     DATA_DIR, ./data
  --json           print the whole result as JSON

Reads DATABASE_URL if it is set. Safe on a running service: it reads in short steps.
`;

export async function verifyCommand(args: string[]): Promise<number> {
  const flags = readOptions(args, { 'data-dir': { type: 'string' }, json: { type: 'boolean' } }, help);
  if (flags === null) return 0;
  await using stack = new AsyncDisposableStack();
  const url =
    process.env['DATABASE_URL'] || (await findDatabase(flags['data-dir'] ?? process.env['DATA_DIR'] ?? 'data', stack));
  const verification = await verify(url);
  console.log(flags.json === true ? JSON.stringify(verification) : formatVerification(verification));
  return verifyExitCode(verification);
}

/** The database that a service runs on this folder, or else our own on it for as long as we read. */
async function findDatabase(dataDir: string, stack: AsyncDisposableStack): Promise<string> {
  await access(dataDir).catch(() => {
    throw new UsageError(`there is no data folder ${dataDir}: set DATABASE_URL or --data-dir`);
  });
  return (await findRunningEmbedded(dataDir)) ?? stack.use(await startEmbedded({ dataDir })).url;
}
