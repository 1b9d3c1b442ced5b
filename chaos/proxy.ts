/**
 * A TCP proxy between two parties of the service, on the loopback, that breaks what passes on demand.
 *
 * TCP's promise is kept: a byte arrives in its place or its connection ends. So what a network would lose and send again
 * is held here, and a connection that lost a byte for good doesn't outlive the fault.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { Random } from '../domain/random.ts';

export type Rule =
  /** Every connection ends, and new ones are reset. */
  | { readonly kind: 'cut' }
  /** One way, or both, nothing arrives until it is healed: a cable pulled, and TCP sends again. */
  | { readonly kind: 'stall'; readonly way: Way | 'both' }
  /** Half-open: connections are accepted, nothing is ever answered, and what was written is lost. */
  | { readonly kind: 'swallow' }
  | { readonly kind: 'delay'; readonly ms: number; readonly jitterMs: number }
  | { readonly kind: 'slow'; readonly bytesPerS: number }
  /** A share of what is sent reaches the server, whose answer is lost with the connection. `of`: what it has to hold. */
  | { readonly kind: 'lose-replies'; readonly share: number; readonly of?: RegExp }
  /** A share of whole HTTP requests arrive once more, so much later, over a connection of their own. */
  | { readonly kind: 'duplicate'; readonly share: number; readonly afterMs: number };

export type Way = 'to-server' | 'to-client';

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface ProxyOptions {
  /** Whom new connections go to, the preferred one first: asked at each; the next one is tried when one refuses. */
  readonly targets: () => readonly Address[];
  readonly random: Random;
}

/** What a connection may hold back in one direction before its sender has to wait. */
const HELD_MAX_BYTES = 256 * 1024;
const CONNECTIONS_MAX = 50_000;
const SLOW_STEP_MS = 50;
/** A duplicate's answer is read and thrown away; a server that doesn't answer isn't waited for. */
const DUPLICATE_DEADLINE_MS = 5_000;
const HTTP_REQUEST = /^(GET|PUT|POST|DELETE) [^\r\n]+ HTTP\/1\.1\r\n/;

export class Proxy implements AsyncDisposable {
  readonly port: number;
  /** How often a rule took hold of something: answers lost, requests doubled, connections cut. */
  readonly counts = { cut: 0, repliesLost: 0, duplicated: 0 };
  readonly #server: Server;
  readonly #options: ProxyOptions;
  readonly #rules = new Set<Rule>();
  readonly #connections = new Set<Connection>();
  #healed = Promise.withResolvers<void>();

  private constructor(server: Server, options: ProxyOptions) {
    this.#server = server;
    this.#options = options;
    this.port = (server.address() as AddressInfo).port;
    server.on('connection', (client) => this.#accept(client));
  }

  static async listen(options: ProxyOptions): Promise<Proxy> {
    const server = createServer({ noDelay: true, allowHalfOpen: true, highWaterMark: 64 * 1024 });
    server.maxConnections = CONNECTIONS_MAX;
    server.listen(0, '127.0.0.1', 4_096);
    await once(server, 'listening');
    return new Proxy(server, options);
  }

  get connections(): number {
    return this.#connections.size;
  }

  /** Puts a rule into force until the returned function is called. Several hold at the same time. */
  inject(rule: Rule): () => void {
    this.#rules.add(rule);
    if (rule.kind === 'cut') this.reset();
    return () => {
      if (!this.#rules.delete(rule)) return;
      for (const connection of this.#connections) if (connection.lostBytes) connection.destroy();
      this.#healed.resolve();
      this.#healed = Promise.withResolvers();
    };
  }

  /** Ends every connection, as a router that restarts does. */
  reset(): void {
    this.counts.cut += this.#connections.size;
    for (const connection of this.#connections) connection.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#rules.clear();
    this.#healed.resolve();
    for (const connection of this.#connections) connection.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #accept(client: Socket): void {
    if (this.#find('cut') !== undefined) {
      this.counts.cut += 1;
      client.on('error', () => {});
      client.resetAndDestroy();
      return;
    }
    const connection = new Connection(client, {
      delayMs: () => this.#delayMs(),
      pass: (chunk, way) => this.#pass(connection, chunk, way),
    });
    this.#connections.add(connection);
    client.once('close', () => this.#connections.delete(connection));
    void this.#join(connection);
  }

  async #join(connection: Connection): Promise<void> {
    if (this.#find('swallow') !== undefined) return connection.joinNobody();
    for (const target of this.#options.targets()) {
      const server = await reach(target);
      if (server === null) continue;
      return connection.join(server);
    }
    connection.destroy();
  }

  /** What becomes of a chunk: resolves when it may be written on; false: it is lost. */
  async #pass(connection: Connection, chunk: Buffer, way: Way): Promise<boolean> {
    while (this.#isStalled(way)) {
      await this.#healed.promise;
      if (connection.isOver) return false;
    }
    if (this.#find('swallow') !== undefined) {
      connection.lostBytes = true;
      return false;
    }
    const slow = this.#find('slow');
    if (slow !== undefined) await pause(Math.max(SLOW_STEP_MS, (1000 * chunk.byteLength) / slow.bytesPerS));
    if (way === 'to-server') {
      this.#mark(connection, chunk);
      this.#duplicate(chunk);
    } else if (connection.losesNextReply) {
      this.counts.repliesLost += 1;
      connection.destroy();
      return false;
    }
    return !connection.isOver;
  }

  /** Decided as the request passes, so that the server has all of it when its answer is lost. */
  #mark(connection: Connection, chunk: Buffer): void {
    for (const rule of this.#rules) {
      if (rule.kind !== 'lose-replies') continue;
      if (rule.of !== undefined && !rule.of.test(chunk.toString('latin1'))) continue;
      if (this.#options.random.chance(rule.share)) connection.losesNextReply = true;
    }
  }

  #duplicate(chunk: Buffer): void {
    const rule = this.#find('duplicate');
    if (rule === undefined || !isWholeRequest(chunk) || !this.#options.random.chance(rule.share)) return;
    this.counts.duplicated += 1;
    void this.#sendAgain(Buffer.from(chunk), rule.afterMs);
  }

  async #sendAgain(request: Buffer, afterMs: number): Promise<void> {
    await pause(afterMs, undefined, { ref: false });
    const [target] = this.#options.targets();
    const server = target === undefined ? null : await reach(target);
    if (server === null) return;
    server.on('error', () => {});
    server.setTimeout(DUPLICATE_DEADLINE_MS, () => server.destroy());
    server.once('data', () => server.destroy());
    server.write(request);
  }

  #delayMs(): number {
    const rule = this.#find('delay');
    return rule === undefined ? 0 : rule.ms + this.#options.random.next() * rule.jitterMs;
  }

  #isStalled(way: Way): boolean {
    for (const rule of this.#rules) if (rule.kind === 'stall' && (rule.way === 'both' || rule.way === way)) return true;
    return false;
  }

  #find<Kind extends Rule['kind']>(kind: Kind): Extract<Rule, { kind: Kind }> | undefined {
    for (const rule of this.#rules) if (rule.kind === kind) return rule as Extract<Rule, { kind: Kind }>;
    return undefined;
  }
}

interface Passage {
  /** How long a chunk that arrives now is under way. */
  readonly delayMs: () => number;
  /** Resolves when the chunk may be written on; false: it is lost. */
  readonly pass: (chunk: Buffer, way: Way) => Promise<boolean>;
}

/** A client's socket and, once it is there, the server's: what arrives at one goes to the other, in order. */
class Connection {
  /** Something was written that will never arrive. */
  lostBytes = false;
  losesNextReply = false;
  isOver = false;
  readonly #client: Socket;
  readonly #passage: Passage;
  #server: Socket | null = null;

  constructor(client: Socket, passage: Passage) {
    this.#client = client;
    this.#passage = passage;
    client.setNoDelay(true);
    client.on('error', () => this.destroy());
    client.once('close', () => this.destroy());
    client.pause();
  }

  join(server: Socket): void {
    if (this.isOver) return void server.destroy();
    this.#server = server;
    server.on('error', () => this.destroy());
    server.once('close', () => this.destroy());
    this.#pump(this.#client, server, 'to-server');
    this.#pump(server, this.#client, 'to-client');
  }

  /** Whatever the client says is heard by nobody. */
  joinNobody(): void {
    this.lostBytes = true;
    this.#client.resume();
  }

  destroy(): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#client.resetAndDestroy();
    this.#server?.resetAndDestroy();
  }

  #pump(from: Socket, to: Socket, way: Way): void {
    let heldBytes = 0;
    let last: Promise<void> = Promise.resolve();
    from.on('data', (chunk: Buffer) => {
      heldBytes += chunk.byteLength;
      if (heldBytes > HELD_MAX_BYTES) from.pause();
      const leavesAtMs = performance.now() + this.#passage.delayMs();
      last = last.then(async () => {
        const restMs = leavesAtMs - performance.now();
        if (restMs >= 1) await pause(restMs);
        if ((await this.#passage.pass(chunk, way)) && !this.isOver && to.writable && !to.write(chunk)) {
          await new Promise<void>((resolve) => {
            to.once('drain', resolve);
            to.once('close', resolve);
          });
        }
        heldBytes -= chunk.byteLength;
        if (heldBytes <= HELD_MAX_BYTES) from.resume();
      });
    });
    from.once('end', () => void last.then(() => to.end()));
    from.resume();
  }
}

const CONNECT_DEADLINE_MS = 3_000;

/** A connection to it; null when it refuses or doesn't answer in time. */
async function reach({ host, port }: Address): Promise<Socket | null> {
  const socket = connect({ host, port, noDelay: true, allowHalfOpen: true });
  const signal = AbortSignal.timeout(CONNECT_DEADLINE_MS);
  try {
    await once(socket, 'connect', { signal });
    return socket;
  } catch {
    socket.destroy();
    return null;
  }
}

/** A request whose head and body arrived in one piece, as small ones do. */
function isWholeRequest(chunk: Buffer): boolean {
  const text = chunk.toString('latin1');
  if (!HTTP_REQUEST.test(text) || /\r\nupgrade:/i.test(text)) return false;
  const headEnds = text.indexOf('\r\n\r\n');
  if (headEnds < 0) return false;
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(text.slice(0, headEnds))?.[1] ?? 0);
  return text.length === headEnds + 4 + length;
}
