/** The command line of `demo` and `simulate`. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { defaultPolicy, policyProblems, type Policy } from '../domain/policy.ts';
import { timeOfDayMs } from './demand/demand.ts';

/** The command line can't be understood, or names something that isn't there: exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

export const KILLABLE = ['api', 'gateway', 'matcher', 'sweeper', 'outbox'] as const;
export type Killable = (typeof KILLABLE)[number];

export interface Settings {
  readonly demandFile: string | null;
  readonly fromMs: number | null;
  readonly minutes: number | null;
  readonly drivers: number;
  readonly speedup: number;
  readonly seed: number | string;
  readonly jsonFile: string | null;
  readonly regionId: string;
  readonly policy: Partial<Policy>;
  readonly matcherFaultRate: number;
  readonly lifelike: boolean;
  /** Share of offers that drivers mean to accept; null: nearly all. */
  readonly acceptance: number | null;
  /** demo */
  readonly split: boolean;
  readonly kill: readonly Killable[];
  /** simulate */
  readonly urls: readonly string[];
  readonly socketUrls: readonly string[];
  readonly dataDir: string;
}

const help = (command: 'demo' | 'simulate'): string => `
cabrank ${command} [options]${command === 'demo' ? '      starts a service, drives a city through it, reports, stops all' : ' --url URL'}

  --demand FILE      trips as CSV, plain or gzipped; a made-up city unless given
  --from HH:MM       where in the day to begin       08:00, or the file's first trip
  --minutes N        city minutes of demand          30, or to the file's last trip
  --drivers N        1100
  --speedup N        city time ÷ wall time           60
  --seed S           reproduces the draws            1
  --json FILE        write the report
  --region ID        city
  --policy JSON      policy settings in city time that differ from the defaults
  --realistic        riders who change their minds or don't come, drivers with shifts, vehicles and preferences
  --acceptance P     share of offers that drivers mean to accept   nearly all
${
  command === 'demo'
    ? `  --split            two processes of each role, on a database of their own
  --kill LIST        kill -9 one of each named role on the way (with --split): ${KILLABLE.join(',')}
  --matcher-faults P share of match rounds that fail on purpose   0

With DATABASE_URL, REDIS_URL and AUTH_SECRET the service runs on yours.`
    : `  --url URL          the service; several, separated by commas
  --socket-url URL   where drivers connect, when that is another process   --url
  --data-dir DIR     where the service's secret is   DATA_DIR, ./data; or AUTH_SECRET and DATABASE_URL`
}

Exit code 0: every ride ended and no invariant is violated; 1: not so; 2: wrong input.
`;

/** Reads the options; prints help and returns null when asked for it. Throws UsageError. */
export function readSettings(command: 'demo' | 'simulate', args: string[]): Settings | null {
  const values = parse(command, args);
  if (values.help === true) {
    console.log(help(command).trim());
    return null;
  }
  const fromMs = values.from === undefined ? null : timeOfDayMs(values.from);
  if (values.from !== undefined && fromMs === null)
    throw new UsageError(`--from ${values.from} isn't a time of day as HH:MM`);
  const kill = values.kill?.split(',') ?? [];
  const unkillable = kill.find((role) => !(KILLABLE as readonly string[]).includes(role));
  if (unkillable !== undefined) throw new UsageError(`--kill: ${unkillable} is none of ${KILLABLE.join(', ')}`);
  if (kill.length > 0 && values.split !== true) throw new UsageError('--kill needs --split');
  return {
    demandFile: values.demand ?? null,
    fromMs,
    minutes: values.minutes === undefined ? null : number('--minutes', values.minutes, 1, 10_080),
    drivers: number('--drivers', values.drivers ?? '1100', 1, 100_000, true),
    speedup: number('--speedup', values.speedup ?? '60', 1, 3_600),
    seed: seedOf(values.seed ?? '1'),
    jsonFile: values.json ?? null,
    regionId: values.region ?? 'city',
    policy: policyOf(values.policy),
    matcherFaultRate: number('--matcher-faults', values['matcher-faults'] ?? '0', 0, 1),
    lifelike: values.realistic === true,
    acceptance: values.acceptance === undefined ? null : number('--acceptance', values.acceptance, 0, 1),
    split: values.split === true,
    kill: kill as Killable[],
    urls: urlsOf('--url', values.url),
    socketUrls: urlsOf('--socket-url', values['socket-url'] ?? values.url),
    dataDir: values['data-dir'] ?? process.env['DATA_DIR'] ?? 'data',
  };
}

function parse(command: 'demo' | 'simulate', args: string[]) {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean' } as const;
  const own =
    command === 'demo'
      ? { split: flag, kill: text, 'matcher-faults': text }
      : { url: text, 'socket-url': text, 'data-dir': text };
  const shared = {
    demand: text,
    from: text,
    minutes: text,
    drivers: text,
    speedup: text,
    seed: text,
    json: text,
    region: text,
    policy: text,
    realistic: flag,
    acceptance: text,
    help: flag,
  };
  try {
    const { values } = parseArgs({ args, options: { ...shared, ...own }, strict: true });
    return values as { [K in keyof typeof shared]?: K extends 'help' | 'realistic' ? boolean : string } & {
      split?: boolean;
      kill?: string;
      'matcher-faults'?: string;
      url?: string;
      'socket-url'?: string;
      'data-dir'?: string;
    };
  } catch (error) {
    throw new UsageError(`${(error as Error).message}\n\n${help(command).trim()}`);
  }
}

/** The service's secret, by which the simulator makes its tokens. Throws UsageError. */
export async function readSecret(dataDir: string): Promise<string> {
  const found = process.env['AUTH_SECRET'] ?? (await readFile(join(dataDir, 'auth-secret'), 'utf8').catch(() => null));
  if (found === null) throw new UsageError(`there is no secret in ${dataDir}: set AUTH_SECRET or --data-dir`);
  return found.trim();
}

export function urlsOf(flag: string, list: string | undefined): string[] {
  const urls = list?.split(',').map((url) => url.replace(/\/$/, '')) ?? [];
  const wrong = urls.find((url) => !/^https?:$/.test(URL.parse(url)?.protocol ?? ''));
  if (wrong !== undefined) throw new UsageError(`${flag}: ${wrong} is no http:// or https:// address`);
  return urls;
}

export function number(flag: string, text: string, min: number, max: number, isWhole = false): number {
  const value = Number(text);
  if (text.trim() === '' || !(value >= min && value <= max) || (isWhole && !Number.isInteger(value))) {
    throw new UsageError(`${flag} must be a ${isWhole ? 'whole ' : ''}number from ${min} to ${max}`);
  }
  return value;
}

export const seedOf = (text: string): number | string => (Number.isSafeInteger(Number(text)) ? Number(text) : text);

function policyOf(text: string | undefined): Partial<Policy> {
  if (text === undefined) return {};
  let changes: Partial<Policy>;
  try {
    changes = JSON.parse(text) as Partial<Policy>;
  } catch {
    throw new UsageError('--policy must be a JSON object such as {"matching": "nearest"}');
  }
  const unknown = Object.keys(changes).find((setting) => !(setting in defaultPolicy));
  if (unknown !== undefined) throw new UsageError(`--policy: there is no setting ${unknown}`);
  const [problem] = policyProblems({ ...defaultPolicy, ...changes });
  if (problem !== undefined) throw new UsageError(`--policy: ${problem.setting} ${problem.problem}`);
  return changes;
}
