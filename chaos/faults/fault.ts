/** What a fault is: how it is done to an arena, and how it is taken back. */
import type { Random } from '../../domain/random.ts';
import type { Arena, ArenaNeeds } from '../arena.ts';

export interface Fault {
  /** As in `npm run chaos -- NAME`. */
  readonly name: string;
  /** One line for people. */
  readonly what: string;
  readonly kind: 'kill' | 'pause' | 'line' | 'replies' | 'clock' | 'storage' | 'contention' | 'redis' | 'restart';
  readonly needs?: Partial<ArenaNeeds>;
  /** How long it stays, in milliseconds: drawn between these. */
  readonly holdMs: readonly [number, number];
  /** The service has to answer again so soon after it was healed. */
  readonly backWithinMs: number;
  /** A term that nobody touched may be live again: what clients believe to be late isn't. */
  readonly stretchesTerms?: boolean;
  /** What has to be there before, and is nothing broken. */
  readonly prepare?: (arena: Arena) => Promise<void>;
  readonly inject: (arena: Arena, random: Random) => Promise<Injected>;
}

export interface Injected {
  /** `postgres`, `matcher 1`, `api→postgres`. */
  readonly target: string;
  readonly heal: () => Promise<void>;
  /** What it did, once it is healed. */
  readonly detail?: () => string;
}

/** Of a process that died, or of a database: it has to be up again, and the pools to have noticed. */
export const BACK_AFTER_RETURN_MS = 2_000;
/** Of a line: also sockets have to be found dead and opened again. */
export const BACK_AFTER_CUT_MS = 5_000;
