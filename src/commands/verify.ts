/** `cabrank verify`: the invariants, checked from the records. */
import { access } from 'node:fs/promises';
import { DEFAULT_DATA_DIR } from '../data-folder.ts';
import { findRunningEmbedded, startEmbedded } from '../database/embedded.ts';
import { checkHistory, isTooTame, type HistoryVerification } from '../verify/history/check.ts';
import { parseDemands, type Demand } from '../verify/history/wildness.ts';
import { VerifyError } from '../verify/reader.ts';
import { formatHistory, formatVerification } from '../verify/report.ts';
import { verify, verifyExitCode, type VerifyOptions } from '../verify/verify.ts';
import { readOptions, UsageError } from './usage.ts';

const help = `
cabrank verify [options]      exit code 0: all hold; 1: violations; 2: nothing to verify, or too tame

  --data-dir DIR   the embedded database to read, running or not     DATA_DIR, ./data
  --history FILE   check what clients were told under load, too: one JSON object a line (src/verify/history.ts)
  --demand LIST    how wild that load had to be, as in stale=200,lostReplies=50,kills=5; of commands, refused, unknown,
                   okConfirms, shown, stale, lostReplies, expiriesDuringConfirm, takeovers, faults, kills
  --connections N  steps of the records read at once, each by a core of the database's machine     2
  --json           print the whole result as JSON

Reads DATABASE_URL if it is set. Safe on a running service: it reads in short steps. With a history the load is over,
and everything that asked the region meanwhile is in it.
`;

const options = {
  'data-dir': { type: 'string' },
  history: { type: 'string' },
  demand: { type: 'string' },
  connections: { type: 'string' },
  json: { type: 'boolean' },
} as const;

export async function verifyCommand(args: string[]): Promise<number> {
  const flags = readOptions(args, options, help);
  if (flags === null) return 0;
  const { history: path, demand } = flags;
  if (demand !== undefined && path === undefined) throw new UsageError('--demand is about a --history');
  const demands = readDemands(demand ?? '');
  const connections = readConnections(flags.connections);
  if (path !== undefined) await mustExist(path, 'history');
  await using stack = new AsyncDisposableStack();
  const url =
    process.env['DATABASE_URL'] ||
    (await findDatabase(flags['data-dir'] ?? process.env['DATA_DIR'] ?? DEFAULT_DATA_DIR, stack));
  const history = path === undefined ? null : await checkedHistory(url, path, demands);
  const verification = await verify(url, connections);
  if (flags.json === true) console.log(JSON.stringify(history === null ? verification : { ...verification, history }));
  else
    console.log([formatVerification(verification), ...(history === null ? [] : [formatHistory(history)])].join('\n'));
  if (history === null) return verifyExitCode(verification);
  if (history.violations > 0) return 1;
  return verifyExitCode(verification) || (isTooTame(history) ? 2 : 0);
}

function readConnections(text: string | undefined): Pick<VerifyOptions, 'connections'> {
  if (text === undefined) return {};
  if (!/^[1-9]\d?$/.test(text)) throw new UsageError('--connections takes a number from 1 to 99');
  return { connections: Number(text) };
}

function readDemands(text: string): readonly Demand[] {
  try {
    return parseDemands(text);
  } catch (error) {
    throw new UsageError(`--demand: ${(error as Error).message}`);
  }
}

async function checkedHistory(url: string, path: string, demands: readonly Demand[]): Promise<HistoryVerification> {
  try {
    return await checkHistory(url, path, { demands });
  } catch (error) {
    if (error instanceof VerifyError && error.code === 'region_not_found') throw new UsageError(error.message);
    throw error;
  }
}

const mustExist = (path: string, what: string): Promise<void> =>
  access(path).catch(() => {
    throw new UsageError(`there is no ${what} ${path}`);
  });

/** The database that a service runs on this folder, or else our own on it for as long as we read. */
async function findDatabase(dataDir: string, stack: AsyncDisposableStack): Promise<string> {
  await access(dataDir).catch(() => {
    throw new UsageError(`there is no data folder ${dataDir}: set DATABASE_URL or --data-dir`);
  });
  return (await findRunningEmbedded(dataDir)) ?? stack.use(await startEmbedded({ dataDir })).url;
}
