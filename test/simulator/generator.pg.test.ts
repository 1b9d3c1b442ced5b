import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, expect, it, vi } from 'vitest';
import { createRandom } from '../../domain/random.ts';
import { syntheticDemand } from '../../simulator/demand/synthetic.ts';
import { connectDatabase } from '../../src/database/connection.ts';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { CITY, startTestService } from '../support/service.ts';

const stack = new AsyncDisposableStack();
const service = stack.use(await startTestService());
const { cold: sql } = stack.use(connectDatabase(service.databaseUrl));
const operator = new OperatorClient({ url: service.urlOf('api'), token: await service.token('ops', 'tests') });
stack.defer(() => operator.close());
const children: ChildProcess[] = [];
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  await stack.disposeAsync();
});

interface Process {
  readonly child: ChildProcess;
  readonly holder: RegExp;
  readonly ask: (what: 'status' | 'start' | 'stop') => Promise<{ state: string; holder: string | null }>;
}

async function startProcess(): Promise<Process> {
  const program = fileURLToPath(new URL('../../simulator/generator/main.ts', import.meta.url));
  const asked = ['--url', service.urlOf('api'), '--region', 'endless', '--rides-per-hour', '2000', '--speedup', '30'];
  const child = spawn(process.execPath, [program, ...asked], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, AUTH_SECRET: service.secret },
  });
  children.push(child);
  const [said] = (await once(child.stdout!, 'data')) as [Buffer];
  const url = /control at (\S+)/.exec(said.toString())![1]!;
  return {
    child,
    holder: new RegExp(`/${child.pid}$`),
    ask: async (what) => {
      const answer = await fetch(`${url}/${what}`, { method: what === 'status' ? 'GET' : 'POST' });
      return (await answer.json()) as { state: string; holder: string | null };
    },
  };
}

const day = { ...CITY, peakRidesPerHour: 2_000, fromMs: 0, minutes: 1_440 };
const TRIPS_A_DAY = syntheticDemand(day, createRandom('1')).trips.length;

/** The trips that were asked for, numbered through the days. */
async function requested(): Promise<number[]> {
  const rows = await sql<{ rider_id: string }[]>`select rider_id from rides`;
  return rows
    .map(({ rider_id: id }) => /^demand-(\d+)-(\d+)$/.exec(id)!)
    .map(([, ofDay, index]) => Number(ofDay) * TRIPS_A_DAY + Number(index))
    .toSorted((a, b) => a - b);
}

it('of three processes one generates; each starts, stops and tells how it is, and none of their deaths costs a trip', async () => {
  await operator.putRegion('endless', CITY);
  const all = await Promise.all([startProcess(), startProcess(), startProcess()]);
  const everyone = () =>
    Promise.all(
      all.filter(({ child }) => child.exitCode === null && child.signalCode === null).map(({ ask }) => ask('status')),
    );
  const generating = () =>
    vi.waitFor(
      async () => {
        const said = await everyone();
        expect(new Set(said.map(({ state }) => state))).toEqual(new Set(['generating']));
        expect(new Set(said.map(({ holder }) => holder)).size).toBe(1);
        return all.find(({ holder }) => holder.test(said[0]!.holder!))!;
      },
      { timeout: 20_000 },
    );
  const more = async (): Promise<void> => {
    const before = (await requested()).length;
    await vi.waitFor(async () => expect((await requested()).length).toBeGreaterThan(before + 10), { timeout: 20_000 });
  };
  const leader = await generating();
  await more();

  // Killed: another takes over, and asks for what was missed.
  leader.child.kill('SIGKILL');
  await once(leader.child, 'exit');
  await vi.waitFor(async () => expect((await everyone())[0]!.holder).not.toMatch(leader.holder), { timeout: 20_000 });
  const successor = await generating();
  await more();
  const newest = (await requested()).at(-1)!;
  await vi.waitFor(
    async () => {
      const unbroken = (await requested()).filter((trip) => trip <= newest);
      expect(unbroken).toEqual(Array.from(unbroken, (_, i) => unbroken[0]! + i));
    },
    { timeout: 20_000 },
  );

  // Stopped by one that doesn't generate: it holds for all, and nothing is asked for any more.
  const other = all.find((each) => each !== leader && each !== successor)!;
  expect(await other.ask('stop')).toMatchObject({ state: 'stopped', holder: expect.stringMatching(other.holder) });
  const whenStopped = (await requested()).length;
  expect(await successor.ask('stop')).toMatchObject({ state: 'stopped', holder: expect.stringMatching(other.holder) });
  expect((await everyone()).map(({ state }) => state)).toEqual(['stopped', 'stopped']);
  expect((await requested()).length).toBe(whenStopped);

  expect(await successor.ask('start')).toMatchObject({ state: 'generating' });
  await more();
  // Ended in order: the last one hands over at once.
  const last = await generating();
  last.child.kill('SIGTERM');
  expect(await once(last.child, 'exit')).toEqual([0, null]);
  await generating();
}, 120_000);
