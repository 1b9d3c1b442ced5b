/**
 * A history: what clients asked of a service under faults, when, and what they were told, one JSON object a line. The
 * first line says what ran, the last one when everything was healed and the load had ended. Times are milliseconds on the
 * machine's monotonic clock, so that lines of several processes compare. Tokens are never in it, only their SHA-256.
 */
import { z } from 'zod';

const atMs = z.number().nonnegative();
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** What a client may ask, REST and websocket alike. */
export const COMMANDS = [
  'request',
  'cancel',
  'offer',
  'online',
  'offline',
  'received',
  'confirm',
  'decline',
  'release',
  'arrive',
  'start',
  'complete',
] as const;

const run = z.strictObject({
  kind: z.literal('run'),
  name: z.string(),
  seed: z.string(),
  atMs,
  /** ISO 8601, for people. */
  startedAt: z.string(),
  regionId: z.string(),
  policy: z.record(z.string(), z.unknown()),
});

const command = z.strictObject({
  kind: z.literal('command'),
  /** Unique in its history. */
  id: z.string(),
  client: z.string(),
  over: z.enum(['rest', 'socket']),
  command: z.enum(COMMANDS),
  askedAtMs: atMs,
  /** Null: no answer came, or none that could be read. */
  answeredAtMs: atMs.nullable(),
  /**
   * `ok` and `refused` are the service's own word. `unknown`: no answer, a cut connection, 502 to 504, or a socket that
   * went away; it may have happened or not.
   */
  outcome: z.enum(['ok', 'refused', 'unknown']),
  /** HTTP status, where there was one. */
  status: z.number().int().optional(),
  /** The problem's code of a refusal, or what cut the answer. */
  code: z.string().optional(),
  /** The first ask of which this is a repetition, with the same ids and the same token. */
  repeats: z.string().optional(),
  rideId: z.string().optional(),
  driverId: z.string().optional(),
  offerId: z.string().optional(),
  tokenSha256: sha256.optional(),
  idempotencyKey: z.string().optional(),
  /** Of an answer that grants or confirms. */
  fence: z.number().int().optional(),
  assignedAt: z.string().optional(),
  /** The client knew that it was late: the term was over by its own clock, or a newer one had been granted. */
  isStale: z.boolean().optional(),
});

/** What a device was shown, without having asked. */
const shown = z.strictObject({
  kind: z.literal('shown'),
  client: z.string(),
  driverId: z.string(),
  event: z.enum(['offer', 'offer:withdrawn', 'assignment', 'ride:cancelled', 'state']),
  atMs,
  offerId: z.string().optional(),
  rideId: z.string().optional(),
  fence: z.number().int().optional(),
  tokenSha256: sha256.optional(),
});

const fault = z.strictObject({
  kind: z.literal('fault'),
  /** As in `npm run chaos -- NAME`. */
  name: z.string(),
  /** What it was done to: `postgres`, `matcher`, `api→postgres`, … */
  target: z.string(),
  atMs,
  /** When it was taken back; null: it is over at once, or never. */
  healedAtMs: atMs.nullable(),
  detail: z.string().optional(),
});

const end = z.strictObject({
  kind: z.literal('end'),
  atMs,
  /** Nothing was broken any more from here on. */
  healedAtMs: atMs,
});

export const historyLine = z.discriminatedUnion('kind', [run, command, shown, fault, end]);

export type HistoryLine = z.infer<typeof historyLine>;
export type HistoryRun = z.infer<typeof run>;
export type HistoryCommand = z.infer<typeof command>;
export type HistoryShown = z.infer<typeof shown>;
export type HistoryFault = z.infer<typeof fault>;
