/** A loop for each core that does nothing but keep it busy: what any work that needs all of them costs those who wait for one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { availableParallelism } from 'node:os';

const LOOP = "process.stdout.write('begun'); for (;;);";

export class BusyCores implements Disposable {
  readonly #loops: readonly ChildProcess[];

  private constructor(loops: readonly ChildProcess[]) {
    this.#loops = loops;
  }

  /** Until it is disposed of. */
  static async begin(): Promise<BusyCores> {
    const loops = Array.from({ length: availableParallelism() }, () =>
      spawn(process.execPath, ['-e', LOOP], { stdio: ['ignore', 'pipe', 'inherit'] }),
    );
    await Promise.all(loops.map(({ stdout }) => once(stdout, 'data')));
    return new BusyCores(loops);
  }

  [Symbol.dispose](): void {
    for (const loop of this.#loops) loop.kill('SIGKILL');
  }
}
