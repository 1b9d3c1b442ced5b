/** What is broken: the service's processes, mostly one role each, its database, Redis if asked for, and a proxy on every line. */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { accessSync, constants } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Random } from '../domain/random.ts';
import { type EmbeddedDatabase, startEmbedded } from '../src/database/embedded.ts';
import { type Disk, mountDisk } from './disk.ts';
import { Missing } from './missing.ts';
import { ServiceProcess } from './process.ts';
import { type Address, Proxy, type Rule } from './proxy.ts';
import { type Replica, startReplica } from './replica.ts';

export const ROLES = ['api', 'gateway', 'matcher', 'sweeper', 'outbox'] as const;
export type Role = (typeof ROLES)[number];
export type Link = 'rider→api' | 'driver→api' | 'driver→gateway' | `${Role}→postgres` | `${Role}→redis`;

/** Whatever one of them has in hand when it dies, the other has to go on with; of the last two one stands by anyway. */
const SEVERAL: ReadonlySet<Role> = new Set(['api', 'gateway', 'matcher']);
const WATCH_EVERY_MS = 500;
const MIGRATE_DEADLINE_MS = 120_000;
const CABRANK = fileURLToPath(new URL('../src/main.ts', import.meta.url));

export interface ArenaNeeds {
  /** Processes of each role that there can be several of. */
  readonly ofEach: number;
  readonly redis?: boolean;
  /** Clocks that can be moved: with libfaketime. */
  readonly clocks?: readonly ('app' | 'database')[];
  /** The database on a disk of its own that can be filled. */
  readonly smallDisk?: boolean;
}

/** What the small disk holds besides the tables. */
const SMALL_DISK_SETTINGS = { max_wal_size: '256MB', min_wal_size: '96MB' } as const;

export class Arena implements AsyncDisposable {
  readonly authSecret = randomBytes(32).toString('hex');
  /** What ended though nobody had asked it to. */
  readonly ended: string[] = [];
  readonly processes: ServiceProcess[] = [];
  readonly links = new Map<Link, Proxy[]>();
  readonly folder: string;
  readonly #needs: ArenaNeeds;
  readonly #random: Random;
  readonly #open = new AsyncDisposableStack();
  #database: EmbeddedDatabase | null = null;
  #standby: Replica | null = null;
  /** Those that were made; they stop when no process of the service needs them any more. */
  readonly #standbys = new AsyncDisposableStack();
  #databaseIsDoomed = false;
  #starting: Promise<void> | null = null;
  #databasePort = 0;
  #redis: ChildProcess | null = null;
  #redisPort = 0;
  #disk: Disk | null = null;

  private constructor(folder: string, needs: ArenaNeeds, random: Random) {
    this.folder = folder;
    this.#needs = needs;
    this.#random = random;
  }

  static async open(needs: ArenaNeeds, random: Random): Promise<Arena> {
    const folder = await mkdtemp(join(tmpdir(), 'cabrank-chaos-'));
    // The database's user passes through.
    await chmod(folder, 0o711);
    const arena = new Arena(folder, needs, random);
    arena.#open.defer(() => rm(folder, { recursive: true, force: true }));
    try {
      await arena.#start();
      return arena;
    } catch (error) {
      await arena[Symbol.asyncDispose]();
      throw error;
    }
  }

  get databaseUrl(): string {
    return this.#database!.url;
  }

  get databasePid(): number {
    return this.#database!.pid;
  }

  get disk(): Disk {
    return this.#disk!;
  }

  get redisPort(): number {
    return this.#redisPort;
  }

  urlOf(link: Link): string {
    return `http://127.0.0.1:${this.#proxies(link)[0]!.port}`;
  }

  processesOf(role: Role): readonly ServiceProcess[] {
    return this.processes.filter((process) => process.role === role);
  }

  /** Puts a rule on every line of a kind; returns how to take it away. */
  inject(link: Link, rule: Rule): () => void {
    const heals = this.#proxies(link).map((proxy) => proxy.inject(rule));
    return () => heals.forEach((heal) => heal());
  }

  countsOf(link: Link): Proxy['counts'] {
    const counts = { cut: 0, repliesLost: 0, duplicated: 0 };
    for (const proxy of this.#proxies(link)) {
      for (const key of Object.keys(counts) as (keyof typeof counts)[]) counts[key] += proxy.counts[key];
    }
    return counts;
  }

  async killDatabase(): Promise<void> {
    this.#databaseIsDoomed = true;
    const database = this.#database!;
    if (isAlive(database.pid)) process.kill(database.pid, 'SIGKILL');
    await database.stop();
  }

  /** From now on it may end by itself, until it is started or revived. */
  expectDatabaseToEnd(): void {
    this.#databaseIsDoomed = true;
  }

  /** Starts it again if it ended; whether it had. */
  async reviveDatabase(): Promise<boolean> {
    const hasEnded = !isAlive(this.#database!.pid);
    if (hasEnded) {
      await this.#database!.stop();
      await this.startDatabase();
    }
    this.#databaseIsDoomed = false;
    return hasEnded;
  }

  /** Of two faults that ended it one starts it again; and nobody could while its disk is full. */
  async startDatabase(): Promise<void> {
    await this.#disk?.hasRoom();
    this.#starting ??= this.#startDatabase().finally(() => {
      this.#starting = null;
    });
    await this.#starting;
  }

  async #startDatabase(): Promise<void> {
    if (this.#database !== null && isAlive(this.#database.pid)) return;
    const { clocks = [] } = this.#needs;
    const before = { ...process.env };
    // The embedded server passes these on to PostgreSQL.
    if (clocks.includes('database')) Object.assign(process.env, this.#clockOf('database'));
    try {
      const database = await startEmbedded({
        dataDir: this.#database?.dataDir ?? join(this.#disk?.path ?? this.folder, 'data'),
        settings: this.#disk === null ? {} : SMALL_DISK_SETTINGS,
        ...(this.#databasePort > 0 && { port: this.#databasePort }),
      });
      this.#useDatabase(database);
    } finally {
      for (const name of Object.keys(this.#clockOf('database'))) {
        if (before[name] === undefined) delete process.env[name];
        else process.env[name] = before[name];
      }
    }
  }

  #useDatabase(database: EmbeddedDatabase): void {
    this.#database = database;
    this.#databasePort = Number(new URL(database.url).port);
    this.#databaseIsDoomed = false;
  }

  /** A standby that has every commit before it is acknowledged. */
  async makeStandby(): Promise<void> {
    if (this.#standby !== null) return;
    const standby = this.#standbys.use(await startReplica(this.#database!));
    await standby.becomeSynchronous();
    this.#standby = standby;
  }

  async promoteStandby(): Promise<void> {
    const standby = this.#standby!;
    this.#standby = null;
    await standby.promote();
    this.#useDatabase(standby.database);
  }

  async killRedis(): Promise<void> {
    const redis = this.#redis!;
    this.#redis = null;
    const gone = once(redis, 'exit');
    redis.kill('SIGKILL');
    await gone;
  }

  async startRedis(): Promise<void> {
    const args = [
      '--bind',
      '127.0.0.1',
      '--port',
      `${this.#redisPort}`,
      '--hz',
      '100',
      '--save',
      '',
      '--dir',
      this.folder,
    ];
    const child = spawn('redis-server', args, { stdio: ['ignore', 'pipe', 'ignore'] });
    this.#redis = child;
    child.once('exit', (code, signal) => {
      if (this.#redis === child) this.ended.push(`redis ended with ${signal ?? code}`);
    });
    for await (const chunk of child.stdout as AsyncIterable<Buffer>) if (chunk.includes('Ready to accept')) break;
    child.stdout.resume();
  }

  /** Moves the clock of the database, or of the process of that name, to so many seconds from the true one. */
  async setClock(of: string, offsetS: number): Promise<void> {
    await writeFile(this.#clockFile(of), `${offsetS >= 0 ? '+' : ''}${offsetS}\n`, { mode: 0o644 });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#open.disposeAsync();
  }

  async #start(): Promise<void> {
    if ((this.#needs.clocks ?? []).length > 0) checkFaketime();
    await this.setClock('database', 0);
    if (this.#needs.smallDisk === true) {
      this.#disk = await mountDisk(this.folder);
      this.#open.use(this.#disk);
    }
    await this.startDatabase();
    this.#open.defer(async () => {
      this.#databaseIsDoomed = true;
      await this.#database?.stop();
      await this.#standbys.disposeAsync();
    });
    if (this.#needs.redis === true) await this.#openRedis();
    await this.#migrate();
    this.#watchDatabase();
    // A matcher beside the API leases what is requested there in the transaction that makes it.
    const isMatched = this.#random.fork('a matcher beside the API').chance(0.5);
    for (const role of ROLES)
      for (let i = 1; i <= (SEVERAL.has(role) ? this.#needs.ofEach : 1); i++)
        await this.#addProcess(role, `${role} ${i}`, role === 'api' && isMatched ? ['matcher'] : []);
    // The first brings the queue's tables up to date; the others find them.
    const [first, ...others] = this.processes;
    await first!.start();
    await Promise.all(others.map((each) => each.start()));
    for (const [link, role] of [
      ['rider→api', 'api'],
      ['driver→api', 'api'],
      ['driver→gateway', 'gateway'],
    ] as const)
      await this.#addLink(link, this.#balance(role));
  }

  async #addProcess(role: Role, name: string, besides: readonly Role[]): Promise<void> {
    const postgres = await this.#addLink(`${role}→postgres`, () => [{ host: '127.0.0.1', port: this.#databasePort }]);
    const databaseUrl = new URL(this.databaseUrl);
    databaseUrl.port = `${postgres.port}`;
    const env: Record<string, string> = { DATABASE_URL: databaseUrl.href, AUTH_SECRET: this.authSecret };
    if (this.#needs.redis === true) {
      const redis = await this.#addLink(`${role}→redis`, () => [{ host: '127.0.0.1', port: this.#redisPort }]);
      env['REDIS_URL'] = `redis://127.0.0.1:${redis.port}`;
    }
    if (this.#needs.clocks?.includes('app') === true) {
      await this.setClock(name, 0);
      Object.assign(env, this.#clockOf(name));
    }
    const process = new ServiceProcess({
      name,
      role,
      besides,
      env,
      logFile: join(this.folder, `${name.replace(' ', '-')}.log`),
      ended: (what) => this.ended.push(what),
    });
    this.processes.push(process);
    this.#open.use(process);
  }

  async #addLink(link: Link, targets: () => readonly Address[]): Promise<Proxy> {
    const proxy = await Proxy.listen({ targets, random: this.#random.fork(`link ${link}`) });
    this.#open.use(proxy);
    this.links.set(link, [...(this.links.get(link) ?? []), proxy]);
    return proxy;
  }

  #proxies(link: Link): readonly Proxy[] {
    const proxies = this.links.get(link);
    if (proxies === undefined) throw new RangeError(`there is no line ${link}`);
    return proxies;
  }

  /** A load balancer: by turns, and past those that aren't up. */
  #balance(role: Role): () => readonly Address[] {
    let turn = 0;
    return () => {
      const up = this.processesOf(role).flatMap(({ port }) => (port === null ? [] : [{ host: '127.0.0.1', port }]));
      turn += 1;
      return [...up.slice(turn % up.length), ...up.slice(0, turn % up.length)];
    };
  }

  async #openRedis(): Promise<void> {
    if (!isOnPath('redis-server')) throw new Missing('redis-server isn’t installed');
    this.#redisPort = await findFreePort();
    await this.startRedis();
    this.#open.defer(async () => {
      if (this.#redis !== null) await this.killRedis();
    });
  }

  async #migrate(): Promise<void> {
    const child = spawn(process.execPath, [CABRANK, 'migrate'], {
      env: { ...process.env, DATABASE_URL: this.databaseUrl },
      stdio: ['ignore', 'ignore', 'inherit'],
      signal: AbortSignal.timeout(MIGRATE_DEADLINE_MS),
    });
    const [code] = (await once(child, 'close')) as [number];
    if (code !== 0) throw new Error(`migrate ended with ${code}`);
  }

  #watchDatabase(): void {
    let reported = 0;
    const timer = setInterval(() => {
      const { pid } = this.#database!;
      if (this.#databaseIsDoomed || pid === reported || isAlive(pid)) return;
      reported = pid;
      this.ended.push('postgres ended');
    }, WATCH_EVERY_MS);
    this.#open.defer(() => clearInterval(timer));
  }

  #clockFile(of: string): string {
    return join(this.folder, `${of.replace(' ', '-')}-clock`);
  }

  /** Only the clock that people read: what timers and deadlines run on stays true. */
  #clockOf(of: string): Record<string, string> {
    return {
      LD_PRELOAD: FAKETIME,
      FAKETIME_TIMESTAMP_FILE: this.#clockFile(of),
      FAKETIME_NO_CACHE: '1',
      DONT_FAKE_MONOTONIC: '1',
    };
  }
}

const FAKETIME = ['/usr', 'lib', 'x86_64-linux-gnu', 'faketime', 'libfaketimeMT.so.1'].join('/');

function checkFaketime(): void {
  try {
    accessSync(FAKETIME, constants.R_OK);
  } catch {
    throw new Missing('libfaketime isn’t installed (Debian: apt-get install faketime)');
  }
}

const isOnPath = (program: string): boolean =>
  (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
