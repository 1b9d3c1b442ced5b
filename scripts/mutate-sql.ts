/**
 * `npm run mutants`: drops the conditions of the lease protocol's SQL, one at a time, each in a database of its own, and runs
 * the tests against it. A mutation that no test notices is a hole in the tests, or a condition without a purpose. Nothing
 * in the tree is changed, and nothing is remembered.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { createVitest, type TestProject, type Vitest } from 'vitest/node';
import { isUnreachable } from '../src/database/connection.ts';
import { checkConcurrency, checkSequences, openLane, type Lane } from '../test/leasing/agreement.ts';
import { urlOfDatabase, withConnection } from '../test/support/database.ts';
import setUpServer from '../test/support/global-setup.ts';
import { EQUIVALENT, type Excuse } from './equivalent-mutants.ts';
import { NAMED, PEEKS } from './named-mutants.ts';
import { generateMutants, lockMutants, nameMutant, type Mutant } from './sql-mutants.ts';

const help = `
npm run mutants [-- TEXT]   drops the conditions of src/leasing/*.sql one by one; exit code 1 if the tests miss one
                            TEXT: only those of which file, function, kind or text contain it, each with its killer
                            --named: only those with a name, the mistakes that such code is known for; CI runs these
`;

const root = fileURLToPath(new URL('..', import.meta.url));
const FILES = [
  'lease_drivers',
  'request_rides',
  'judge_terms',
  'confirm_offers',
  'return_offers',
  'end_offers',
  'expire_leases',
  'receive_offers',
  'cancel_rides',
  'unassign_rides',
  'advance_rides',
  'driver_shifts',
  'assign_drivers',
  'reassign_ride',
  'hold_ride',
  'clock_ahead',
].map((name) => `${name}.sql`);
/** Small and with the same commands each time: most mutations fall to the first dozen. */
const SEQUENCES = { numRuns: 50, seed: 20_261_121, endOnFailure: true };
const CONCURRENT = { numRuns: 30, seed: 20_261_121, endOnFailure: true };
/** What the random commands miss, by name; the likeliest first. */
const TESTS = [
  'leasing/held-rows',
  'leasing/refusals',
  'leasing/bystanders',
  'leasing/races',
  'leasing/one-ride',
  'dispatch/changing-ones-mind',
  'dispatch/clock-ahead',
].map((name) => `test/${name}.pg.test.ts`);
/** A machine that is busy with other things takes its time to connect; that says nothing about a mutation. */
const ATTEMPTS_MAX = 3;
const JUDGES = availableParallelism();
const JUDGE = '--judge';

const sourceOf = (file: string): string => readFileSync(new URL(`../src/leasing/${file}`, import.meta.url), 'utf8');

function mutantsOf(file: string): Mutant[] {
  const source = sourceOf(file);
  const named = NAMED.filter((each) => each.file === file).map((each) => nameMutant(each, source));
  const all = [...named, ...lockMutants(file, source, PEEKS), ...generateMutants(file, source)];
  return all.filter((each, n) => all.findIndex((other) => other.source === each.source) === n);
}

const describe = ({ file, line, of, text, functionName }: Mutant): string =>
  `src/leasing/${file}:${line}  ${functionName}, ${of}: ${text}`;

const excuseOf = (mutant: Mutant): Excuse | undefined =>
  EQUIVALENT.find(
    ({ file, text, functionName, line }) =>
      file === mutant.file &&
      text === mutant.text &&
      functionName === mutant.functionName &&
      (line === undefined || sourceOf(file).split('\n')[mutant.line - 1]!.includes(line)),
  );

/** What a file's tests are called, to be run before the others. */
const NAMES: Readonly<Record<string, string>> = {
  'lease_drivers.sql': 'lease|pair|set|clock',
  'request_rides.sql': 'request',
  'judge_terms.sql': 'confirm|received|receipt|clock|old search',
  'confirm_offers.sql': 'confirm|accept',
  'return_offers.sql': 'decline|release',
  'end_offers.sql': 'decline|sweep|cancel|clock',
  'expire_leases.sql': 'sweep|expire|lapse',
  'receive_offers.sql': 'receive|receipt|renew',
  'cancel_rides.sql': 'cancel',
  'unassign_rides.sql': 'given back|cancels after|driver.s? cancel|given to another',
  'advance_rides.sql': 'step',
  'driver_shifts.sql': 'shift',
  'assign_drivers.sql': 'assign',
  'reassign_ride.sql': 'given to another|better driver',
  'hold_ride.sql': 'hold|held',
  'clock_ahead.sql': 'future|known anew|left alone',
};

/** What random commands leave behind. */
const ROWS = 'rides, offers, assignments, ride_events, drivers, driver_state, driver_presence, rider_driver_blocks';

/** A template with a mutation in it, a database for random commands, and a runner for the tests. */
class Bench {
  readonly #adminUrl: string;
  readonly #template: string;
  readonly #lane: Lane;
  readonly #laneUrl: string;
  readonly #runner: Vitest;

  private constructor(urls: { adminUrl: string; laneUrl: string; template: string }, lane: Lane, runner: Vitest) {
    this.#adminUrl = urls.adminUrl;
    this.#laneUrl = urls.laneUrl;
    this.#template = urls.template;
    this.#lane = lane;
    this.#runner = runner;
  }

  static async open(adminUrl: string, pristine: string, number: number): Promise<Bench> {
    const template = `cabrank_mutants_${number}`;
    const copy = `${template}_lane`;
    for (const name of [template, copy])
      await withConnection(
        adminUrl,
        (sql) => sql`CREATE DATABASE ${sql(name)} TEMPLATE ${sql(pristine)} STRATEGY FILE_COPY`,
      );
    const laneUrl = urlOfDatabase(adminUrl, copy);
    const runner = await createVitest({
      config: false,
      root,
      watch: false,
      reporters: [{}],
      include: TESTS,
      pool: 'threads',
      maxWorkers: 1,
      bail: 1,
      testTimeout: 30_000,
      hookTimeout: 30_000,
    });
    return new Bench({ adminUrl, laneUrl, template }, await openLane(laneUrl, 'mutants'), runner);
  }

  async close(): Promise<void> {
    await this.#runner.close();
    await this.#lane[Symbol.asyncDispose]();
  }

  /** What notices the mutation; null when nothing does. A server that is too busy to connect to is asked again. */
  async findKiller(mutant: Mutant, original: string): Promise<string | null> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#install(mutant.source);
        return await this.#run(mutant.file, excuseOf(mutant) === undefined);
      } catch (error) {
        if (!isUnreachable(error) || attempt === ATTEMPTS_MAX) throw error;
      } finally {
        await this.#install(original);
      }
    }
  }

  /** What fails of the code as it is. */
  control(): Promise<string | null> {
    return this.#run(null, true);
  }

  /** The functions of one file, over those that are there. Bodies are parsed: a mutation has to be SQL. */
  async #install(source: string): Promise<void> {
    for (const url of [this.#laneUrl, urlOfDatabase(this.#adminUrl, this.#template)])
      await withConnection(url, (sql) => sql.unsafe(`set search_path to leasing, public; ${source}`));
  }

  /** What is said to take nothing away is shown to the random commands only. */
  async #run(file: string | null, isTested: boolean): Promise<string | null> {
    await this.#lane.sql.unsafe(`truncate ${ROWS}`);
    if (await fails(() => checkSequences(this.#lane, SEQUENCES))) return 'sequences of commands';
    if (await fails(() => checkConcurrency(this.#lane, CONCURRENT))) return 'commands at the same time';
    if (!isTested) return null;
    const named = file === null ? null : await this.#test(new RegExp(NAMES[file]!));
    // A test that has nothing to do with the file has to fail twice: one that is slow on a busy machine catches nothing.
    return named ?? ((await this.#test(null)) === null ? null : this.#test(null));
  }

  async #test(names: RegExp | null): Promise<string | null> {
    const [project] = this.#runner.projects as [TestProject];
    project.provide('adminUrl', this.#adminUrl);
    project.provide('templateDatabase', this.#template);
    if (names === null) this.#runner.resetGlobalTestNamePattern();
    else this.#runner.setGlobalTestNamePattern(names);
    const found = await this.#runner.globTestSpecifications();
    if (found.length !== TESTS.length) throw new Error(`of ${TESTS.join(', ')} some aren't there`);
    const { testModules, unhandledErrors } = await this.#runner.runTestSpecifications(found);
    for (const module of testModules) {
      const failed = [...module.children.allTests('failed')][0];
      if (failed !== undefined) return `${failed.module.relativeModuleId}: ${failed.fullName}`;
    }
    return testModules.every((module) => module.ok()) && unhandledErrors.length === 0 ? null : 'outside of the tests';
  }
}

async function fails(check: () => Promise<unknown>): Promise<boolean> {
  try {
    await check();
    return false;
  } catch (error) {
    if (isUnreachable(error)) throw error;
    return true;
  }
}

interface Verdict {
  readonly mutant: Mutant;
  readonly killer: string | null;
}

/** What a judge is sent, and what it answers: the number of a mutation, and its killer. */
type Question = { readonly mutant: number | 'control' };
type Answer = { readonly killer: string | null } | { readonly error: string };

/**
 * Each bench in a process of its own: the random commands and their comparison take a whole core. The processes are this
 * script again, and know the mutations by their number.
 */
async function judgeAll(mutants: readonly Mutant[], isTold: boolean): Promise<Verdict[]> {
  const provided = new Map<string, string>();
  const provide = (key: string, value: string): unknown => provided.set(key, value);
  const stopServer = await setUpServer({ provide } as unknown as TestProject);
  const urls = [provided.get('adminUrl')!, provided.get('templateDatabase')!];
  const judges = Array.from({ length: Math.min(JUDGES, mutants.length) }, (_, n) =>
    fork(fileURLToPath(import.meta.url), [JUDGE, String(n), ...urls], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    }),
  );
  try {
    const failing = judges[0] === undefined ? null : await ask(judges[0], { mutant: 'control' });
    if (failing !== null) throw new Error(`the code as it is fails: ${failing}`);
    const verdicts: Verdict[] = [];
    const queue = [...mutants];
    const work = async (asked: ChildProcess): Promise<void> => {
      for (let mutant = queue.shift(); mutant !== undefined; mutant = queue.shift()) {
        const question = { mutant: ALL.indexOf(mutant) };
        let killer = await ask(asked, question);
        // On a busy machine a test may be late, or two commands never meet: what surprises is asked for again.
        if ((killer === null) === (excuseOf(mutant) === undefined)) killer = await ask(asked, question);
        const verdict = { mutant, killer };
        if (isTold) console.log(`${describe(mutant)}\n    ${verdict.killer ?? 'survived'}`);
        verdicts.push(verdict);
      }
    };
    await Promise.all(judges.map(work));
    return verdicts;
  } finally {
    for (const judge of judges) if (judge.connected) judge.disconnect();
    await Promise.all(judges.filter(({ exitCode }) => exitCode === null).map((each) => once(each, 'exit')));
    await stopServer();
  }
}

async function ask(asked: ChildProcess, question: Question): Promise<string | null> {
  const over = new AbortController();
  const ended = once(asked, 'exit', { signal: over.signal }).then(() => [{ error: 'a judge ended' }]);
  const answered = once(asked, 'message', { signal: over.signal });
  asked.send(question);
  const [answer] = (await Promise.race([answered, ended]).finally(() => {
    for (const each of [ended, answered]) each.catch(() => {});
    over.abort();
  })) as [Answer];
  if ('error' in answer) throw new Error(answer.error);
  return answer.killer;
}

/** The other end: one question at a time, until the asker is gone. */
async function answerQuestions(number: number, adminUrl: string, template: string): Promise<void> {
  const bench = await Bench.open(adminUrl, template, number);
  process.on('message', ({ mutant: which }: Question) => {
    const mutant = which === 'control' ? null : ALL[which]!;
    const killer = mutant === null ? bench.control() : bench.findKiller(mutant, sourceOf(mutant.file));
    void killer.then(
      (found) => process.send!({ killer: found } satisfies Answer),
      (error: unknown) => process.send!({ error: String(error) } satisfies Answer),
    );
  });
  await once(process, 'disconnect');
  await bench.close();
}

/** 0 when all that can be caught was. */
function report(verdicts: readonly Verdict[], excused: number): number {
  const survivors = verdicts.filter(({ killer, mutant }) => killer === null && excuseOf(mutant) === undefined);
  const needless = verdicts.filter(({ killer, mutant }) => killer !== null && excuseOf(mutant) !== undefined);
  for (const { mutant } of survivors) console.log(`survived: ${describe(mutant)}`);
  for (const { mutant } of needless) console.log(`caught, though it is said that nothing can: ${describe(mutant)}`);
  const judged = verdicts.filter(({ mutant }) => excuseOf(mutant) === undefined).length;
  console.log(`${judged - survivors.length} of ${judged} caught, ${excused} more that take nothing away`);
  return survivors.length + needless.length === 0 && judged > 0 ? 0 : 1;
}

const ALL = FILES.flatMap(mutantsOf);
const [only, ...more] = process.argv.slice(2);
if (only === '--help' || only === '-h') console.log(help.trim());
else if (only === JUDGE) await answerQuestions(Number(more[0]), more[1]!, more[2]!);
else {
  const startedAtMs = performance.now();
  const names = new Set(NAMED.map(({ name }) => name));
  const isChosen = (each: Mutant): boolean =>
    only === '--named' ? names.has(each.of) : only === undefined || describe(each).includes(only);
  const chosen = ALL.filter(isChosen);
  const excused = chosen.filter((each) => excuseOf(each) !== undefined);
  process.exitCode = report(await judgeAll(chosen, only !== undefined), excused.length);
  console.log(`${chosen.length} mutations in ${Math.round((performance.now() - startedAtMs) / 1_000)} s`);
}
