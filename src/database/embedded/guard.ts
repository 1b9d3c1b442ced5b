/** The guard: ends the server when we are gone. */
import { spawn } from 'node:child_process';
import type { Home } from './home.ts';
import { serverEnv, spawned, unrefPipe } from './programs.ts';

/**
 * Reads the process id of the server to end (the last line counts, an empty one means none) until the pipe closes.
 * postmaster.pid disappears when a shutdown is complete; a process id could linger as a zombie. A pipe rather than
 * prctl's death signal, because that is Linux's alone and Node can't ask for it.
 */
const GUARD_SCRIPT = `
trap '' HUP INT TERM
server=
while read -r line; do server=$line; done
for signal in INT QUIT; do
  [ -n "$server" ] && [ -e "$1/postmaster.pid" ] && kill -$signal "$server" 2>/dev/null || break
  waited=0
  while [ -e "$1/postmaster.pid" ] && [ $waited -lt 300 ]; do sleep 0.1; waited=$((waited + 1)); done
done
[ -n "$2" ] || exit 0
waited=0 # an initdb may still be writing
while ! rm -rf -- "$2" 2>/dev/null || [ -e "$2" ]; do [ $waited -lt 50 ] || exit 1; sleep 0.2; waited=$((waited + 1)); done
`;

export interface Guard {
  watch(pid: number): void;
  forget(pid: number): void;
  dismiss(): void;
}

export async function startGuard(home: Home): Promise<Guard> {
  const doomed = home.temporary ? home.dataDir : '';
  const child = spawn('/bin/sh', ['-c', GUARD_SCRIPT, 'cabrank-guard', home.pgdata, doomed], {
    ...home.user,
    cwd: '/',
    detached: true, // or Ctrl-C would end it along with us
    env: serverEnv(),
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  child.stdin.on('error', () => {}); // if somebody kills the guard, the orphan's recovery remains
  await spawned(child, 'start_failed');
  child.unref();
  unrefPipe(child.stdin);
  let watched: number | undefined;
  return {
    watch(pid) {
      watched = pid;
      child.stdin.write(`${pid}\n`);
    },
    forget(pid) {
      if (watched === pid) child.stdin.write('\n');
    },
    dismiss: () => void child.kill('SIGKILL'),
  };
}
