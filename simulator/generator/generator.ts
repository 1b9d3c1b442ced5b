/**
 * Demand that never ends, from one process at a time. Any number of processes stand for the job; a resource lease says
 * who has it, and whether anybody may: `stop` takes the lease for good, `start` ends that. So all of them answer alike,
 * for they ask the lease. Each trip is requested under a key of its own, the same from whoever requests it: what a
 * holder that died left open is requested again, and no trip twice.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { type LeaseClient, LeaseNotAcquired } from '../../src/client/leases/client.ts';
import type { Lease } from '../../src/client/leases/lease.ts';
import { singleton } from '../../src/client/leases/singleton.ts';
import type { OperatorClient, ResourceLease } from '../../src/client/operator-client.ts';
import type { RiderClient } from '../../src/client/rider-client.ts';
import type { StreamedTrip, TripStream } from './stream.ts';

export interface GeneratorOptions {
  readonly regionId: string;
  readonly stream: TripStream;
  /** City time ÷ wall time. */
  readonly speedup: number;
  readonly leases: LeaseClient;
  readonly operator: OperatorClient;
  /** Of role `service`: requests rides for every rider. */
  readonly riders: RiderClient;
  /** What went wrong and is tried again, or couldn't be requested. */
  readonly onError: (error: unknown) => void;
}

export interface GeneratorStatus {
  /** `vacant`: may go on, and nobody has taken it up yet. */
  readonly state: 'generating' | 'stopped' | 'vacant';
  /** The process that generates, or that stopped it. */
  readonly holder: string | null;
  readonly since: string | null;
}

/** After its holder's death the city asks for nothing for so long; then for all that it has missed. */
const TTL_MS = 3_000;
const TICK_MS = 100;
const AT_ONCE_MAX = 32;
/** Longer gaps than this aren't made up for. */
const CATCH_UP_MAX_MS = 60_000;
/** Whoever stops it has to be in the queue, ahead of the candidates, before the term ends. */
const BREAK_AFTER_MS = 250;
const STOP_PRIORITY = 100;
const TRIES_MAX = 20;
const TRY_MS = 1_000;
const LOOK_MS = 50;

export class DemandGenerator {
  readonly #options: GeneratorOptions;
  readonly #resource: string;
  readonly #closing = new AbortController();
  readonly #standing: Promise<void>;

  /** Stands for the job from the start. */
  constructor(options: GeneratorOptions) {
    this.#options = options;
    this.#resource = `simulator/demand/${options.regionId}`;
    const { leases, onError } = options;
    const run = (lease: Lease): Promise<void> => this.#generate(lease);
    this.#standing = singleton(leases, this.#resource, run, { ttlMs: TTL_MS, signal: this.#closing.signal, onError });
  }

  async status(): Promise<GeneratorStatus> {
    return statusOf(await this.#options.operator.findLease(this.#resource));
  }

  /** Answers once somebody generates, or with how it is after a while. */
  async start(): Promise<GeneratorStatus> {
    const { operator } = this.#options;
    let lease = await operator.findLease(this.#resource);
    if (lease !== null && statusOf(lease).state === 'stopped') await operator.breakLease(lease, 0);
    for (let looks = 0; looks < (TRIES_MAX * TRY_MS) / LOOK_MS; looks++) {
      lease = await operator.findLease(this.#resource);
      if (statusOf(lease).state === 'generating') break;
      await pause(LOOK_MS);
    }
    return statusOf(lease);
  }

  /** Answers once nobody generates, and nobody who did can believe that it still may. */
  async stop(): Promise<GeneratorStatus> {
    const { operator } = this.#options;
    let wasBroken = false;
    for (let tries = 0; tries < TRIES_MAX; tries++) {
      const lease = await operator.findLease(this.#resource);
      if (statusOf(lease).state === 'stopped') break;
      const isHeld = statusOf(lease).state === 'generating';
      const breaking = isHeld && operator.breakLease(lease!, BREAK_AFTER_MS);
      const [isTaken, isBroken] = await Promise.all([this.#takeForGood(), breaking]);
      wasBroken ||= isBroken;
      if (isTaken) break;
    }
    // A holder learns at its next renewal that its term was ended, and at the term's own end at the latest.
    if (wasBroken) await pause(TTL_MS);
    return this.status();
  }

  /** Hands the job over, at once. */
  async close(): Promise<void> {
    this.#closing.abort(new Error('closing'));
    await this.#standing;
  }

  async #takeForGood(): Promise<boolean> {
    try {
      const options = { ttlMs: TTL_MS, waitMs: TRY_MS, priority: STOP_PRIORITY, autoRenew: false };
      await using lease = await this.#options.leases.acquire(this.#resource, options);
      await lease.confirm({ isStopped: true });
      return true;
    } catch (error) {
      if (error instanceof LeaseNotAcquired) return false;
      throw error;
    }
  }

  async #generate(lease: Lease): Promise<void> {
    const { stream, speedup } = this.#options;
    const underWay = new Set<Promise<void>>();
    let fromMs = Date.now() - (await this.#missedMs(lease));
    while (!lease.signal.aborted) {
      const toMs = Date.now();
      for (const trip of stream.between(fromMs * speedup, toMs * speedup)) {
        if (underWay.size >= AT_ONCE_MAX) await Promise.race(underWay);
        if (lease.signal.aborted) break;
        const request = this.#request(trip).finally(() => underWay.delete(request));
        underWay.add(request);
      }
      fromMs = toMs;
      await pause(TICK_MS, undefined, { signal: lease.signal }).catch(() => {});
    }
    await Promise.all(underWay);
  }

  /** How far back the holder before may have left requests open: by the lease's own times, so by one clock. */
  async #missedMs(lease: Lease): Promise<number> {
    const [ours, before] = await this.#options.operator.leaseTerms(lease.resource, 2);
    if (ours === undefined || before === undefined || before.endedAt === null || before.confirmedAt !== null) return 0;
    const gapMs = Date.parse(ours.grantedAt) - Date.parse(before.endedAt);
    return Math.min(CATCH_UP_MAX_MS, gapMs + 2 * TTL_MS);
  }

  async #request({ key, pickup, dropoff }: StreamedTrip): Promise<void> {
    const { regionId, riders, onError } = this.#options;
    try {
      await riders.request({ regionId, riderId: `demand-${key}`, pickup, dropoff }, `${this.#resource}/${key}`);
    } catch (error) {
      onError(error);
    }
  }
}

function statusOf(lease: ResourceLease | null): GeneratorStatus {
  if (lease === null) return { state: 'vacant', holder: null, since: null };
  const { state, holder, grantedAt: since } = lease;
  if (state === 'confirmed') return { state: 'stopped', holder, since };
  if (state === 'active' || state === 'renewed') return { state: 'generating', holder, since };
  return { state: 'vacant', holder: null, since: null };
}
