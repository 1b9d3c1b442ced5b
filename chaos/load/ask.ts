/** Asks the service, once, and writes down what was asked and what was heard. Repeating is the caller's, who says so. */
import { createHash } from 'node:crypto';
import type { Socket } from 'socket.io-client';
import { isTransient, Problem } from '../../src/client/problem.ts';
import { type Call, type Connections, Rest } from '../../src/client/rest.ts';
import { signedTokens, type Role, type TokenSource } from '../../src/client/token.ts';
import type { HistoryCommand } from '../../src/verify/history.ts';
import { type History, nowMs } from '../history.ts';

export type Asked = Pick<
  HistoryCommand,
  'client' | 'command' | 'rideId' | 'driverId' | 'offerId' | 'idempotencyKey' | 'repeats' | 'isStale'
> & { readonly id?: string; readonly leaseToken?: string };

export interface Heard {
  readonly id: string;
  readonly outcome: HistoryCommand['outcome'];
  readonly code: string | undefined;
  /** Null unless the outcome is `ok`. */
  readonly data: unknown;
}

const ANSWER_DEADLINE_MS = 4_000;
const TOKEN_TTL_S = 7 * 24 * 3600;
const CLIENTS_MAX = 5_000;

export interface AskerOptions {
  readonly history: History;
  readonly authSecret: string;
  readonly connections: Connections;
  /** Base URLs: riders, fleets and operators come one way, drivers another. */
  readonly urls: { readonly rider: string; readonly driver: string };
}

export class Asker {
  readonly #options: AskerOptions;
  readonly #clients = new Map<string, Rest>();
  readonly #tokens = new Map<string, TokenSource>();
  readonly #underWay = new Set<Promise<Heard>>();

  constructor(options: AskerOptions) {
    this.#options = options;
  }

  /** Until what was asked was answered, or given up: what comes later would be in no history. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay);
  }

  get history(): History {
    return this.#options.history;
  }

  rest(asked: Asked, role: Role, call: Omit<Call, 'repeatable'>): Promise<Heard> {
    return this.#track(this.#overRest(asked, role, call));
  }

  socket(asked: Asked, socket: Socket, event: string, body: object): Promise<Heard> {
    return this.#track(this.#overSocket(asked, socket, event, body));
  }

  #track(asking: Promise<Heard>): Promise<Heard> {
    this.#underWay.add(asking);
    return asking.finally(() => this.#underWay.delete(asking));
  }

  async #overRest(asked: Asked, role: Role, call: Omit<Call, 'repeatable'>): Promise<Heard> {
    const askedAtMs = nowMs();
    const id = asked.id ?? this.history.nextId();
    try {
      const data = await this.#client(asked.client, role).call({ ...call, repeatable: false });
      this.#record(id, asked, 'rest', askedAtMs, { outcome: 'ok', data });
      return { id, outcome: 'ok', code: undefined, data };
    } catch (error) {
      const heard = hearError(error);
      this.#record(id, asked, 'rest', askedAtMs, heard);
      return { id, ...heard, data: null };
    }
  }

  async #overSocket(asked: Asked, socket: Socket, event: string, body: object): Promise<Heard> {
    const askedAtMs = nowMs();
    const id = asked.id ?? this.history.nextId();
    const heard = await emit(socket, event, body);
    this.#record(id, asked, 'socket', askedAtMs, heard);
    return { id, outcome: heard.outcome, code: heard.code, data: heard.data ?? null };
  }

  /** Reads are no commands, and aren't written down; null when there was no answer. */
  async read<Answer>(client: string, role: Role, path: string): Promise<Answer | null> {
    try {
      return await this.#client(client, role).call<Answer>({ method: 'GET', path, repeatable: false });
    } catch (error) {
      if (error instanceof Problem && error.status === 500) this.history.tally.serverErrors += 1;
      return null;
    }
  }

  tokenOf(sub: string, role: Role): TokenSource {
    const key = `${role} ${sub}`;
    let source = this.#tokens.get(key);
    if (source === undefined) {
      source = signedTokens({ secret: this.#options.authSecret, sub, role, ttlS: TOKEN_TTL_S });
      this.#tokens.set(key, source);
    }
    return source;
  }

  #client(sub: string, role: Role): Rest {
    const key = `${role} ${sub}`;
    let client = this.#clients.get(key);
    if (client === undefined) {
      if (this.#clients.size >= CLIENTS_MAX) throw new RangeError(`more than ${CLIENTS_MAX} clients`);
      const { urls, connections } = this.#options;
      const url = role === 'driver' ? urls.driver : urls.rider;
      client = new Rest({ url, token: this.tokenOf(sub, role), connections, deadlineMs: ANSWER_DEADLINE_MS });
      this.#clients.set(key, client);
    }
    return client;
  }

  #record(
    id: string,
    asked: Asked,
    over: 'rest' | 'socket',
    askedAtMs: number,
    { outcome, code, status, data }: RawHeard,
  ): void {
    const { leaseToken, id: _, ...rest } = asked;
    const isHeard = outcome !== 'unknown' || status !== undefined;
    this.history.command({
      ...withoutUndefined(rest),
      id,
      over,
      askedAtMs,
      answeredAtMs: isHeard ? nowMs() : null,
      outcome,
      ...(status !== undefined && { status }),
      ...(code !== undefined && { code }),
      ...(leaseToken !== undefined && { tokenSha256: sha256(leaseToken) }),
      ...(outcome === 'ok' && factsOf(asked, data)),
    });
  }
}

interface RawHeard {
  readonly outcome: HistoryCommand['outcome'];
  readonly code?: string | undefined;
  readonly status?: number;
  readonly data?: unknown;
}

export const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const withoutUndefined = <T extends object>(record: T): T =>
  Object.fromEntries(Object.entries(record).filter(([, value]) => value !== undefined)) as T;

/** What an answer tells about a grant or an assignment. */
function factsOf({ command, rideId, offerId }: Asked, data: unknown): Partial<HistoryCommand> {
  const answer = (data ?? {}) as {
    id?: string;
    rideId?: string;
    driverId?: string;
    fence?: number;
    leaseToken?: string | null;
    assignment?: { rideId: string; driverId: string; fence: number; assignedAt: string };
  };
  if (command === 'request' && answer.id !== undefined) return { rideId: answer.id };
  if (command === 'offer' && answer.id !== undefined) {
    return {
      offerId: answer.id,
      ...(answer.fence !== undefined && { fence: answer.fence }),
      ...(typeof answer.leaseToken === 'string' && { tokenSha256: sha256(answer.leaseToken) }),
    };
  }
  if (command === 'confirm' && answer.assignment !== undefined) {
    const { fence, assignedAt, rideId: of } = answer.assignment;
    return { fence, assignedAt, rideId: of };
  }
  return { ...(rideId !== undefined && { rideId }), ...(offerId !== undefined && { offerId }) };
}

const UNKNOWN_STATUSES = new Set([500, 502, 503, 504]);

function hearError(error: unknown): { outcome: 'refused' | 'unknown'; code: string; status?: number } {
  if (error instanceof Problem) {
    const status = error.status!;
    return { outcome: UNKNOWN_STATUSES.has(status) ? 'unknown' : 'refused', code: error.code, status };
  }
  const cause = (error as Error).cause as { code?: string; message?: string } | undefined;
  return { outcome: 'unknown', code: cause?.code ?? (cause?.message?.startsWith('no answer') ? 'no_answer' : 'cut') };
}

type SocketAnswer = { ok: true; data: unknown } | { ok: false; error: { code: string } };

async function emit(socket: Socket, event: string, body: object): Promise<RawHeard> {
  if (!socket.connected) return { outcome: 'unknown', code: 'not_connected' };
  try {
    const answer = (await socket.timeout(ANSWER_DEADLINE_MS).emitWithAck(event, body)) as SocketAnswer;
    if (answer.ok) return { outcome: 'ok', data: answer.data };
    const { code } = answer.error;
    return { outcome: isTransient(new Problem({ code })) ? 'unknown' : 'refused', code };
  } catch (error) {
    return {
      outcome: 'unknown',
      code: (error as Error).message.includes('disconnected') ? 'disconnected' : 'no_answer',
    };
  }
}
