/**
 * Mends what a database clock that was ahead leaves behind when it is put back. By that clock its leases and waits are over
 * only when it has come there again; here they are over when they have been known, by a clock that nobody sets, for as
 * long as they may last. Every process with the sweeper's role does it: the lease that names the one sweeper may be such a
 * lease, of a process that is dead.
 */
import type { Sql } from '../database/connection.ts';
import type { Leasing } from '../leasing/leasing.ts';
import * as transitions from '../leasing/transitions.ts';
import type { Logger } from '../ops/log.ts';
import { lookEvery } from '../ops/look-every.ts';
import type { Region, Regions } from '../regions.ts';
import { endLeasesAhead, leasesAhead } from '../resource-leases/transitions.ts';

const EVERY_MS = 5_000;
/** Terms looked at together; those beyond are for the next look. */
const TERMS_MAX = 1_000;
const RIDES_MAX = 1_000;

interface Deps {
  readonly sql: Sql;
  readonly leasing: Pick<Leasing, 'endTermsAhead'>;
  readonly regions: Pick<Regions, 'all'>;
  readonly log: Logger;
}

/** Since when things of one kind have been known, of those that were there at the last look. */
class Known {
  #sinceMs: ReadonlyMap<string, number> = new Map();

  /** Those that have been known for as long as they may last. */
  over<Each>(
    all: readonly Each[],
    nowMs: number,
    keyOf: (one: Each) => string,
    lastsMs: (one: Each) => number,
  ): Each[] {
    const before = this.#sinceMs;
    const now = new Map(all.map((one) => [keyOf(one), before.get(keyOf(one)) ?? nowMs]));
    this.#sinceMs = now;
    return all.filter((one) => nowMs - now.get(keyOf(one))! >= lastsMs(one));
  }
}

export class ClockAhead {
  readonly #deps: Deps;
  readonly #nowMs: () => number;
  readonly #terms = new Map<number, Known>();
  readonly #leases = new Known();

  constructor(deps: Deps, nowMs: () => number = () => performance.now()) {
    this.#deps = deps;
    this.#nowMs = nowMs;
  }

  async mend(): Promise<void> {
    await this.#endLeases();
    for (const region of await this.#deps.regions.all()) {
      await this.#endTerms(region.number);
      await this.#bringRidesForward(region);
    }
  }

  /** Of resources: a holder that lives has renewed its own meanwhile. */
  async #endLeases(): Promise<void> {
    const { sql, log } = this.#deps;
    const over = this.#leases.over(
      await leasesAhead(sql, TERMS_MAX),
      this.#nowMs(),
      ({ resource, fence, renewals }) => `${resource} ${fence} ${renewals}`,
      ({ free_after_ms: freeAfterMs }) => freeAfterMs,
    );
    if (over.length === 0) return;
    log.warn({ leases: over.map(({ resource }) => resource) }, 'leases of a clock that was put back are over');
    await endLeasesAhead(sql, over);
  }

  async #endTerms(region: number): Promise<void> {
    const { sql, leasing, log } = this.#deps;
    const known = this.#terms.get(region) ?? new Known();
    this.#terms.set(region, known);
    const over = known.over(
      await transitions.termsAhead(sql, region, TERMS_MAX),
      this.#nowMs(),
      ({ offer_id: id }) => id,
      ({ lifetime_ms: lifetimeMs }) => lifetimeMs,
    );
    if (over.length === 0) return;
    log.warn({ region, leases: over.length }, 'leases of a clock that was put back are over');
    await leasing.endTermsAhead(
      region,
      over.map(({ offer_id: id }) => id),
    );
  }

  async #bringRidesForward({ number, policy }: Region): Promise<void> {
    const waitMaxMs = Math.max(policy.retryMaxMs, policy.rescueMs);
    const moved = await transitions.bringRidesForward(this.#deps.sql, number, waitMaxMs, RIDES_MAX);
    if (moved > 0)
      this.#deps.log.warn({ region: number, rides: moved }, 'rides that waited for a clock that was put back are due');
  }
}

/** Looks every few seconds; the returned function stops it and waits for the look under way. */
export function startMendingClocks(deps: Deps): () => Promise<void> {
  const clockAhead = new ClockAhead(deps);
  return lookEvery(
    EVERY_MS,
    () => clockAhead.mend(),
    (error) => deps.log.warn({ err: error }, 'a look for leases of a clock that was put back failed'),
  );
}
