/** `cabrank verify` of the records, and of the history beside them, each in a process of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const CABRANK = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const VERIFY_DEADLINE_MS = 600_000;
const EXAMPLES_MAX = 3;

export interface Verified {
  readonly checked: number;
  readonly violations: number;
  readonly problems: readonly string[];
}

interface Checked {
  readonly checked: number;
  readonly violations: number;
  readonly invariants: readonly {
    readonly id: string;
    readonly title: string;
    readonly violations: number;
    readonly examples: readonly string[];
  }[];
}

/** With the history that was checked together with the records. */
type Verification = Checked & { readonly history: Checked };

export async function verifyRecords(databaseUrl: string, historyFile: string): Promise<Verified> {
  const args = ['verify', '--json', '--history', historyFile];
  const { history, ...records } = JSON.parse(await cabrank(args, databaseUrl)) as Verification;
  const all = [records, history];
  return {
    checked: all.reduce((sum, { checked }) => sum + checked, 0),
    violations: all.reduce((sum, { violations }) => sum + violations, 0),
    problems: all
      .flatMap(({ invariants }) => invariants)
      .filter((each) => each.violations > 0)
      .map(
        ({ id, title, violations, examples }) =>
          `${violations} violations of ${id} (${title}): ${examples.slice(0, EXAMPLES_MAX).join('; ')}`,
      ),
  };
}

async function cabrank(args: readonly string[], databaseUrl: string): Promise<string> {
  const child = spawn(process.execPath, [CABRANK, ...args], {
    env: { ...process.env, DATABASE_URL: databaseUrl },
    stdio: ['ignore', 'pipe', 'inherit'],
    signal: AbortSignal.timeout(VERIFY_DEADLINE_MS),
  });
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  await once(child, 'close');
  return Buffer.concat(chunks).toString();
}
