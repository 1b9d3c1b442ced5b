/** A process of the service, started by the command line as anybody would, which can be killed, paused and started again. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const CABRANK = fileURLToPath(new URL('../src/main.ts', import.meta.url));
const START_DEADLINE_MS = 60_000;
const STOP_DEADLINE_MS = 15_000;
const LOG_TAIL_CHARS = 2_000;

export interface ProcessPlan {
  /** `api 1`: shown to people, and part of its log's name. */
  readonly name: string;
  readonly role: string;
  /** What it does as well; a fault of the role `role` is one of these too. */
  readonly besides: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Appended to over all its lives. */
  readonly logFile: string;
  /** It ended, and nobody here had asked it to. */
  readonly ended: (what: string) => void;
}

export class ServiceProcess implements AsyncDisposable {
  readonly name: string;
  readonly role: string;
  /** Where it listens; null while it isn't up. */
  port: number | null = null;
  readonly #plan: ProcessPlan;
  #child: ChildProcess | null = null;
  /** Its end was asked for. */
  #isDoomed = false;

  constructor(plan: ProcessPlan) {
    this.#plan = plan;
    this.name = plan.name;
    this.role = plan.role;
  }

  /** Until it says that it is ready. */
  async start(): Promise<void> {
    const { role, besides, env, logFile } = this.#plan;
    const log = openSync(logFile, 'a');
    // Of its own process group: a Ctrl-C at the terminal is ours to pass on, in order.
    const child = fork(CABRANK, ['serve', '--roles', [role, ...besides].join()], {
      env: { ...process.env, LOG_LEVEL: 'warn', PORT: '0', ...env },
      stdio: ['ignore', log, log, 'ipc'],
      detached: true,
    });
    closeSync(log);
    this.#child = child;
    this.#isDoomed = false;
    child.once('exit', (code, signal) => this.#exited(child, code, signal));
    const ended = once(child, 'exit').then(async () => {
      throw new Error(`${this.name} ended at its start: ${await this.logTail()}`);
    });
    ended.catch(() => {});
    const ready = once(child, 'message', { signal: AbortSignal.timeout(START_DEADLINE_MS) });
    const [message] = (await Promise.race([ready, ended])) as [{ ready: { url: string } }];
    this.port = Number(new URL(message.ready.url).port);
  }

  get isUp(): boolean {
    return this.#child !== null && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  get pid(): number | null {
    return this.isUp ? this.#child!.pid! : null;
  }

  /** kill -9; resolves when it is gone. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** SIGTERM, which it answers by draining; SIGKILL when it doesn't. */
  async drain(): Promise<void> {
    const overdue = setTimeout(() => this.#child?.kill('SIGKILL'), STOP_DEADLINE_MS);
    await this.#end('SIGTERM');
    clearTimeout(overdue);
  }

  pause(): void {
    this.#child?.kill('SIGSTOP');
  }

  resume(): void {
    this.#child?.kill('SIGCONT');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.resume();
    await this.drain();
  }

  async logTail(): Promise<string> {
    return (await readFile(this.#plan.logFile, 'utf8').catch(() => '')).slice(-LOG_TAIL_CHARS);
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (child === null || !this.isUp) return;
    this.#isDoomed = true;
    const gone = once(child, 'exit');
    child.kill(signal);
    await gone;
  }

  #exited(child: ChildProcess, code: number | null, signal: NodeJS.Signals | null): void {
    if (child !== this.#child) return;
    this.port = null;
    const isDrainFailed = this.#isDoomed && code !== null && code !== 0;
    if (this.#isDoomed && !isDrainFailed) return;
    this.#plan.ended(`${this.name} ended with ${signal ?? code}${isDrainFailed ? ' when asked to drain' : ''}`);
  }
}
