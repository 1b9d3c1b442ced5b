/** Regions and their policies, as the processes know them: read once, and looked at again every two seconds while used. */
import { type Canary, isInCanary } from '../domain/canary.ts';
import type { Point } from '../domain/geo.ts';
import { defaultPolicy, type Policy } from '../domain/policy.ts';
import type { Database } from './database/connection.ts';
import { orm } from './database/drizzle.ts';
import { policies, regions } from './database/schema.ts';

const { and, eq } = orm;
const FRESH_MS = 2_000;

export interface Region {
  readonly number: number;
  /** The fleet's own name for it. */
  readonly id: string;
  readonly name: string;
  readonly center: Point;
  readonly radiusM: number;
  readonly policyVersion: number;
  readonly policy: Policy;
  /** A version that is tried on a share of the rides. */
  readonly canary: Canary | null;
}

export class Regions {
  readonly #database: Database;
  readonly #nowMs: () => number;
  #byNumber = new Map<number, Region>();
  #byId = new Map<string, Region>();
  readonly #policies = new Map<string, Policy>();
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | null = null;
  /** How often what was read was forgotten: what is being read meanwhile may be older. */
  #forgotten = 0;

  constructor(database: Database, nowMs: () => number = () => performance.now()) {
    this.#database = database;
    this.#nowMs = nowMs;
  }

  async all(): Promise<Region[]> {
    await this.#refresh();
    return [...this.#byNumber.values()];
  }

  /** A region that isn't known yet is looked for at once. */
  async byId(id: string): Promise<Region | null> {
    return (await this.#find(() => this.#byId.get(id))) ?? null;
  }

  async byNumber(number: number): Promise<Region | null> {
    return (await this.#find(() => this.#byNumber.get(number))) ?? null;
  }

  /** What the fleet calls a region, as far as it was read here; its number until then. */
  idOf(number: number): string {
    return this.#byNumber.get(number)?.id ?? String(number);
  }

  /** The policy of a ride or offer made under `version`; versions never change. */
  async policy(number: number, version: number): Promise<Policy> {
    const key = `${number}/${version}`;
    const known = this.#policies.get(key);
    if (known !== undefined) return known;
    const [row] = await this.#database.orm
      .select({ document: policies.document })
      .from(policies)
      .where(and(eq(policies.region, number), eq(policies.version, version)));
    if (row === undefined) throw new Error(`policy ${key} isn't in the database`);
    const policy = withDefaults(row.document);
    this.#policies.set(key, policy);
    return policy;
  }

  /** The policy that a new ride runs under, for as long as it lives. */
  async policyFor(region: Region, rideId: string): Promise<{ readonly version: number; readonly policy: Policy }> {
    const { number, canary, policyVersion, policy } = region;
    if (canary === null || !isInCanary(rideId, canary)) return { version: policyVersion, policy };
    return { version: canary.version, policy: await this.policy(number, canary.version) };
  }

  /** What this process changed itself is seen by it at once. */
  forget(): void {
    this.#readAtMs = Number.NEGATIVE_INFINITY;
    this.#forgotten += 1;
  }

  async #find(look: () => Region | undefined): Promise<Region | undefined> {
    await this.#refresh();
    const found = look();
    if (found !== undefined) return found;
    this.forget();
    await this.#refresh();
    return look();
  }

  async #refresh(): Promise<void> {
    // The second read began after this was asked for, whatever was forgotten during the first.
    for (let reads = 0; reads < 2 && this.#nowMs() - this.#readAtMs >= FRESH_MS; reads += 1) {
      this.#reading ??= this.#read().finally(() => {
        this.#reading = null;
      });
      await this.#reading;
    }
  }

  async #read(): Promise<void> {
    const readAtMs = this.#nowMs();
    const forgotten = this.#forgotten;
    const rows = await this.#database.orm
      .select({ region: regions, policy: policies.document })
      .from(regions)
      .innerJoin(policies, eq(policies.region, regions.number))
      .where(eq(policies.version, regions.policyVersion));
    const known = rows.map(({ region, policy }) => ({
      number: region.number,
      id: region.id,
      name: region.name,
      center: { lat: region.centerLat, lng: region.centerLng },
      radiusM: region.radiusM,
      policyVersion: region.policyVersion,
      policy: withDefaults(policy),
      canary: region.canaryVersion === null ? null : { version: region.canaryVersion, share: region.canaryShare ?? 0 },
    }));
    this.#byNumber = new Map(known.map((region) => [region.number, region]));
    this.#byId = new Map(known.map((region) => [region.id, region]));
    for (const { number, policyVersion, policy } of known) this.#policies.set(`${number}/${policyVersion}`, policy);
    if (forgotten === this.#forgotten) this.#readAtMs = readAtMs;
  }
}

/** A version that was saved before a setting existed runs under its default. */
const withDefaults = (document: Policy): Policy => ({ ...defaultPolicy, ...document });
