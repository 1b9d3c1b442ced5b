/** The lease benchmark: whole cycles a second, Cabrank's and others', by turns in the same run. */
import { connectDatabase, type Sql } from '../../src/database/connection.ts';
import postgres from '../../src/database/postgres.ts';
import { startMember } from '../member.ts';
import { type Spread, spreadOf } from '../spread.ts';
import { bullmqOnPostgres, bullmqOnRedis } from './bullmq.ts';
import { cabrankCycle } from './cabrank.ts';
import type { Contender, Session } from './contender.ts';
import { etcdLease } from './etcd.ts';
import { graphileWorker } from './graphile-worker.ts';
import { pgBoss } from './pg-boss.ts';
import { redisLock } from './redis.ts';
import { type DiskFigures, measureDisk, soak, type SoakFigures } from './storage.ts';
import { selectForUpdate, upsertTable } from './textbook.ts';

export interface LeasesOptions {
  readonly drivers: number;
  readonly connections: number;
  readonly seconds: number;
  readonly runs: number;
  /** How long the sets of 50 go on in the end, at 1,000 cycles/s. */
  readonly soakS: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface ContenderFigures {
  readonly name: string;
  readonly durability: string;
  readonly driven: string;
  /** Null: it wasn't on this machine. */
  readonly cyclesPerSecond: Spread | null;
  /** Of the medians, this one's over Cabrank's one at a time on the same number of connections as its sets. */
  readonly ratio: number | null;
}

export interface LeasesFigures {
  readonly drivers: number;
  readonly connections: number;
  readonly seconds: number;
  readonly contenders: readonly ContenderFigures[];
  /** Of sets of 50. */
  readonly disk: DiskFigures;
  readonly soak: SoakFigures;
}

const SETS = [10, 50, 200];
/** At a time, of those who share one connection. */
const LANES = 200;
const FEW = 8;
/** What every figure is compared with. */
const ONE_AT_A_TIME = `Cabrank, one at a time × ${FEW}`;
const SET_OF_50 = `Cabrank, sets of 50 × ${FEW}`;

export async function benchLeases(options: LeasesOptions): Promise<LeasesFigures> {
  const { drivers, connections, seconds, runs, soakS, say, signal } = options;
  await using server = await startMember(['database', '--temporary']);
  const { databaseUrl } = server;
  await using many = connectDatabase(databaseUrl, { hotConnections: connections });
  await using few = connectDatabase(databaseUrl, { hotConnections: FEW });
  await using open = new AsyncDisposableStack();
  const plain = open.adopt(postgres(databaseUrl, { max: connections, onnotice: () => {} }), (pool) =>
    pool.end({ timeout: 2 }),
  );
  const contenders = [
    ...ownContenders(many.hot, few.hot, drivers, connections),
    upsertTable(plain, drivers, connections),
    selectForUpdate(plain, drivers, connections),
    ...otherContenders(databaseUrl, drivers),
  ];
  const sessions = new Map<string, Session>();
  for (const contender of contenders) {
    signal.throwIfAborted();
    const session = await contender.open();
    if (session === null) say(`  ${contender.name}: not on this machine`);
    else sessions.set(contender.name, open.use(session));
  }
  await plain`vacuum (analyze)`;
  const measured = await takeTurns(sessions, { sql: plain, seconds, runs, say, signal });
  const ofFifty = sessions.get(SET_OF_50)!;
  return {
    drivers,
    connections,
    seconds,
    contenders: figuresOf(contenders, measured),
    disk: await measureDisk(plain, () => ofFifty.run(seconds * 1000)),
    soak: await soak(plain, ofFifty, soakS, signal),
  };
}

/** One at a time it takes many connections to fill the machine, in sets a few: that is also what the service has. */
function ownContenders(many: Sql, few: Sql, drivers: number, connections: number): Contender[] {
  const overFew = { sql: few, connections: FEW, drivers };
  return [
    cabrankCycle(`Cabrank, one at a time × ${connections}`, { sql: many, connections, drivers, set: 1 }),
    cabrankCycle(ONE_AT_A_TIME, { ...overFew, set: 1 }),
    ...SETS.map((set) => cabrankCycle(`Cabrank, sets of ${set} × ${FEW}`, { ...overFew, set })),
  ];
}

const otherContenders = (databaseUrl: string, drivers: number): Contender[] => [
  graphileWorker(databaseUrl),
  pgBoss(databaseUrl),
  bullmqOnPostgres(databaseUrl),
  bullmqOnRedis(true),
  redisLock(true, drivers, LANES),
  redisLock(false, drivers, LANES),
  etcdLease(drivers, LANES),
];

async function takeTurns(
  sessions: ReadonlyMap<string, Session>,
  around: { sql: Sql; seconds: number; runs: number } & Pick<LeasesOptions, 'say' | 'signal'>,
): Promise<ReadonlyMap<string, number[]>> {
  const { sql, seconds, runs, say, signal } = around;
  const measured = new Map<string, number[]>();
  // Once more than counted: caches, plans and compilers warm up.
  for (let run = 0; run <= runs; run++) {
    for (const [name, session] of sessions) {
      signal.throwIfAborted();
      await sql`checkpoint`;
      const { cycles, seconds: took } = await session.run(run === 0 ? 1_000 : seconds * 1000);
      if (run === 0) continue;
      const rate = Math.round(cycles / took);
      measured.set(name, [...(measured.get(name) ?? []), rate]);
      say(`  ${name.padEnd(28)} ${String(rate).padStart(7)} cycles/s`);
    }
  }
  return measured;
}

function figuresOf(
  contenders: readonly Contender[],
  measured: ReadonlyMap<string, readonly number[]>,
): ContenderFigures[] {
  const base = spreadOf(measured.get(ONE_AT_A_TIME)!).median;
  return contenders.map(({ name, durability, driven }) => {
    const rates = measured.get(name);
    const cyclesPerSecond = rates === undefined ? null : spreadOf(rates);
    const ratio = cyclesPerSecond === null ? null : Math.round((100 * cyclesPerSecond.median) / base) / 100;
    return { name, durability, driven, cyclesPerSecond, ratio };
  });
}

export function formatLeases({ contenders, disk, soak: soaked }: LeasesFigures): string {
  return [
    ...contenders.map(({ name, cyclesPerSecond, ratio, durability }) =>
      cyclesPerSecond === null
        ? `${name.padEnd(28)} not on this machine`
        : `${name.padEnd(28)} ${String(cyclesPerSecond.median).padStart(7)} cycles/s (${cyclesPerSecond.min}–${cyclesPerSecond.max}), × ${ratio}   ${durability}`,
    ),
    `a cycle in sets of 50 writes ${disk.walBytesPerCycle} bytes of WAL; ${(100 * disk.hotShare).toFixed(1)} % of the updates of drivers are HOT`,
    `after ${soaked.seconds} s at ${soaked.cyclesPerSecond} cycles/s: ${Object.entries(soaked.deadRows)
      .map(([table, rows]) => `${table} ${rows}`)
      .join(', ')} dead rows; drivers take ${soaked.driverStateMb} MB`,
  ].join('\n');
}
