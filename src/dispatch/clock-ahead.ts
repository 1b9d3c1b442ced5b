/**
 * Mends what a database clock that was ahead leaves behind when it is put back. By that clock its leases and waits are over
 * only when it has come there again; here they are over when they have been known, by a clock that nobody sets, for as
 * long as they may last.
 */
import type { Sql } from '../database/connection.ts';
import type { Leasing } from '../leasing/leasing.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Logger } from '../ops/log.ts';
import type { Region } from '../regions.ts';

/** Terms looked at together; those beyond are for the next look. */
const TERMS_MAX = 1_000;
const RIDES_MAX = 1_000;
/** A wait that a policy allows is no longer than this beyond it, however long its transaction took. */
const WAIT_MARGIN_MS = 1_000;

interface Deps {
  readonly sql: Sql;
  readonly leasing: Pick<Leasing, 'endTermsAhead'>;
  readonly log: Logger;
}

export class ClockAhead {
  readonly #deps: Deps;
  readonly #nowMs: () => number;
  /** Since when each term of a region that begins in the future has been known. */
  readonly #known = new Map<number, ReadonlyMap<string, number>>();

  constructor(deps: Deps, nowMs: () => number = () => performance.now()) {
    this.#deps = deps;
    this.#nowMs = nowMs;
  }

  async mend({ number, policy }: Region): Promise<void> {
    const { sql, leasing, log } = this.#deps;
    const ahead = await transitions.termsAhead(sql, number, TERMS_MAX);
    const now = this.#nowMs();
    const before = this.#known.get(number);
    const known = new Map(ahead.map(({ offer_id: id }) => [id, before?.get(id) ?? now]));
    this.#known.set(number, known);
    const over = ahead.filter(({ offer_id: id, lifetime_ms: lifetimeMs }) => now - known.get(id)! >= lifetimeMs);
    if (over.length > 0) {
      log.warn({ region: number, leases: over.length }, 'leases of a clock that was put back are over');
      await leasing.endTermsAhead(
        number,
        over.map(({ offer_id: id }) => id),
      );
    }
    const waitMaxMs = Math.max(policy.retryMaxMs, policy.rescueMs) + WAIT_MARGIN_MS;
    const moved = await transitions.bringRidesForward(sql, number, waitMaxMs, RIDES_MAX);
    if (moved > 0)
      log.warn({ region: number, rides: moved }, 'rides that waited for a clock that was put back are due');
  }
}
