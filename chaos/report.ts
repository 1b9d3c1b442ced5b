/** docs/reliability.md, made from the results in chaos/results/. */
import { FAULTS } from './faults/catalog.ts';
import type { Fault } from './faults/fault.ts';
import { readResults, type Result } from './results.ts';

const SECTIONS: Readonly<Record<Fault['kind'], string>> = {
  kill: 'Killed',
  restart: 'Restarted',
  pause: 'Paused',
  line: 'Lines cut, one way and both, half-open, slow',
  replies: 'Answers lost, requests doubled',
  contention: 'Locks and connections taken',
  clock: 'Clocks',
  storage: 'Disk',
  redis: 'Redis',
};

export async function makeReport(): Promise<string> {
  const results = await readResults();
  const first = [...results.values()][0];
  if (first === undefined) throw new Error('there are no results: npm run chaos -- all makes them');
  const known = new Set(FAULTS.map(({ name }) => name));
  const mixed = [...results.values()].filter(({ name }) => !known.has(name));
  const sections = (Object.keys(SECTIONS) as Fault['kind'][]).flatMap((kind) => {
    const faults = FAULTS.filter((fault) => fault.kind === kind);
    return section(SECTIONS[kind], faults, results);
  });
  return `${[intro(first, results), ...sections, ...mixedSection(mixed)].join('\n\n')}\n`;
}

const count = (value: number): string => value.toLocaleString('en-US');

const sum = (results: Iterable<Result>, of: (result: Result) => number): string =>
  count([...results].reduce((total, result) => total + of(result), 0));

function intro({ machine }: Result, results: ReadonlyMap<string, Result>): string {
  const all = [...results.values()];
  const failed = all.filter(({ problems }) => problems.length > 0);
  const without = FAULTS.filter(({ name }) => !results.has(name)).map(({ name }) => `\`${name}\``);
  return `# Reliability

What isn't promised: a PostgreSQL replica that is promoted without having received every commit, or a database restored from
an older backup, has lost what was acknowledged since; its fences are used by nobody else (shown by
\`test/database/failover.pg.test.ts\`: below, the replica that takes over is synchronous). A database clock that is put back makes a term that nobody has touched since live again, until it is over by that clock; of what it wrote while it ran
ahead, drivers' leases are over when the sweeper has known of them for as long as they may last, and rides that wait are due at its
next look; but an operator's hold and the wait at a pickup last until the clock has caught up, and a confirm that it refused
as too late may be granted. An answer that was lost is to be
asked for again, under the same token or key. A device may see an offer twice. Two machines, and a network between them, were
not part of this: all of it ran on one, with a proxy on every line.

Made by \`npm run chaos -- report\` from the runs in \`chaos/results/\`: ${count(all.length)} runs, ${sum(all, ({ operations }) => operations)} operations, ${sum(all, ({ kills }) => kills)} kills,
${sum(all, ({ confirmsUnderFault }) => confirmsUnderFault)} confirms asked while something was broken or not yet back, ${sum(all, ({ stale }) => stale)} confirms asked after their term, ${sum(all, ({ lostReplies }) => lostReplies)} confirms whose answer was lost; ${sum(all, ({ verify }) => verify.checked)} records verified afterwards,
${sum(all, ({ verify }) => verify.violations)} violations, ${sum(all, ({ serverErrors }) => serverErrors)} answers of 500. ${failed.length === 0 ? 'Every run held.' : `${failed.length} of them failed, each said below.`}${without.length === 0 ? '' : ` Not run: ${without.join(', ')}.`} ${machine.cpu}, ${machine.cores} cores shared with other work, ${machine.memoryGb} GB,
Node ${machine.node}, ${machine.os}.

A run is the real service: two processes each of \`api\`, \`gateway\` and \`matcher\`, one of \`sweeper\` and \`outbox\` (in some runs,
as the seed has it, those of the API have matchers of their own beside them), an embedded
PostgreSQL with full durability, and a proxy between any two parties. A hundred devices on real websockets accept, decline,
accept twice, over two sockets, over REST as well, too late, and again when no answer came; riders request under keys, twice,
and cancel as somebody accepts; a fleet's own matcher and an operator lease and release beside the service's rounds. Terms are
of about a second. Devices believe what they are told and never ask. Each fault is done over and over for the length of the run
and taken back; then within 60 s every ride has to end, every driver to be available again, and no device to think that it has
a ride; and \`verify\` reads the records. A run fails on a violation, an answer of 500, a process that ended though nobody killed
it, a service that isn't back in time (2 s after one process, or the database, that was killed or restarted is up again; 5 s
after anything else is healed; sockets 3 s more, the time that a device gives one attempt to connect), an open ride, a driver
who is held or a device that is mistaken.

_Unheard_ are the commands that had no answer in the service's own words: a cut connection, or a 503 that says to ask again.
All were asked again. _Back_ is the time from the healing to the first answer, the longest of all injections, over REST and
over a socket. \`npm run chaos -- NAME --seed SEED\` runs one again: the seed decides the plan of load and faults, not their timing.`;
}

const HEAD = [
  'fault',
  'times',
  'operations',
  'unheard',
  'back ms',
  'rides ended, drivers free',
  'records, violations',
  'seed',
  '',
];

function section(title: string, faults: readonly Fault[], results: ReadonlyMap<string, Result>): string[] {
  const rows = faults.flatMap((fault) => {
    const result = results.get(fault.name);
    return result === undefined ? [] : [row(`\`${fault.name}\` ${fault.what}`, result)];
  });
  return rows.length === 0 ? [] : [`## ${title}`, table(rows)];
}

function mixedSection(results: readonly Result[]): string[] {
  if (results.length === 0) return [];
  return ['## Several', table(results.map((result) => row(`\`${result.name}\``, result)))];
}

function row(what: string, result: Result): string[] {
  const { faults, operations, heard, ridesEndedAfterMs, driversFreeAfterMs, verify, seed, problems } = result;
  const back = (over: 'rest' | 'socket'): string => count(Math.max(...faults.map(({ backMs }) => backMs[over])));
  return [
    what,
    count(faults.reduce((total, { injected }) => total + injected, 0)),
    count(operations),
    `${count(heard.unknown)}${unheard(result)}`,
    `${back('rest')}, ${back('socket')}`,
    `${after(ridesEndedAfterMs)}, ${after(driversFreeAfterMs)}`,
    `${count(verify.checked)}, ${count(verify.violations)}`,
    `\`${seed}\``,
    problems.length === 0 ? 'held' : `failed: ${problems.join('; ').replaceAll('|', '/')}`,
  ];
}

const after = (ms: number | null): string => (ms === null ? 'no' : `${(ms / 1000).toFixed(1)} s`);

/** The two commonest reasons. */
function unheard({ unknown }: Result): string {
  const most = Object.entries(unknown)
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, 2);
  return most.length === 0 ? '' : ` (${most.map(([code, times]) => `${count(times)} ${code}`).join(', ')})`;
}

const table = (rows: readonly (readonly string[])[]): string =>
  [HEAD, HEAD.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
