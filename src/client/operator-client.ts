import type { DriverStatus, Position, Ride, RideStatus } from './contract.ts';
import { Problem } from './problem.ts';
import { Rest, type RestOptions } from './rest.ts';

export interface Region {
  readonly name: string;
  readonly center: Position;
  readonly radiusM: number;
}

export interface DriverProfile {
  readonly regionId: string;
  readonly vehicleClass?: string;
  readonly seats?: number;
  readonly attributes?: readonly string[];
  /** Metres; null: any. */
  readonly maxPickupM?: number | null;
  /** ISO 8601; null: no set end. */
  readonly shiftEndsAt?: string | null;
}

export interface Driver {
  readonly id: string;
  readonly regionId: string;
  readonly status: DriverStatus;
}

/** A resource lease with its newest term, as far as operators care. */
export interface ResourceLease {
  readonly resource: string;
  readonly state: 'active' | 'renewed' | 'confirmed' | 'released' | 'expired' | 'recovered' | 'broken';
  readonly holder: string;
  readonly fence: number;
  readonly grantedAt: string;
  readonly data: unknown;
}

export interface ResourceLeaseTerm {
  readonly fence: number;
  readonly holder: string;
  readonly grantedAt: string;
  readonly confirmedAt: string | null;
  /** Null for the term that runs. */
  readonly endedAt: string | null;
}

interface Page<Item> {
  readonly items: readonly Item[];
  readonly nextCursor: string | null;
}

const PAGE_ITEMS = 500;
/** A list that never ends is a mistake, and not worth waiting for. */
const PAGES_MAX = 10_000;

/**
 * What an operator's tools need (token role `ops`; `service` for rides). Every call has a deadline and throws
 * `Problem` when refused, `Unreachable` when nobody answered in time; all may be repeated, and are until then.
 */
export class OperatorClient {
  readonly #rest: Rest;

  constructor(options: RestOptions) {
    this.#rest = new Rest(options);
  }

  putRegion(regionId: string, region: Region): Promise<unknown> {
    return this.#rest.call({ method: 'PUT', path: path('regions', regionId), body: region, repeatable: true });
  }

  getRegion(regionId: string): Promise<Region> {
    return this.#rest.call({ method: 'GET', path: path('regions', regionId), repeatable: true });
  }

  getPolicy<Policy>(regionId: string): Promise<Policy> {
    return this.#rest.call({ method: 'GET', path: `${path('regions', regionId)}/policy`, repeatable: true });
  }

  putPolicy(regionId: string, policy: object): Promise<unknown> {
    return this.#rest.call({
      method: 'PUT',
      path: `${path('regions', regionId)}/policy`,
      body: policy,
      repeatable: true,
    });
  }

  putDriver(driverId: string, profile: DriverProfile): Promise<Driver> {
    return this.#rest.call({ method: 'PUT', path: path('drivers', driverId), body: profile, repeatable: true });
  }

  /** This rider's rides aren't offered to this driver any more. */
  putBlock(riderId: string, driverId: string): Promise<unknown> {
    const block = `${path('riders', riderId)}/blocks/${encodeURIComponent(driverId)}`;
    return this.#rest.call({ method: 'PUT', path: block, repeatable: true });
  }

  getRide(rideId: string): Promise<Ride> {
    return this.#rest.call({ method: 'GET', path: path('rides', rideId), repeatable: true });
  }

  /** A region's rides, all or of one status, page by page. */
  rides(regionId: string, status?: RideStatus): AsyncGenerator<Ride> {
    return this.#list<Ride>('/v1/rides', { regionId, ...(status !== undefined && { status }) });
  }

  drivers(regionId: string, status?: DriverStatus): AsyncGenerator<Driver> {
    return this.#list<Driver>('/v1/drivers', { regionId, ...(status !== undefined && { status }) });
  }

  /** Null: nobody ever leased it. */
  async findLease(resource: string): Promise<ResourceLease | null> {
    try {
      return await this.#rest.call({ method: 'GET', path: path('leases', resource), repeatable: true });
    } catch (error) {
      if (error instanceof Problem && error.code === 'lease_not_found') return null;
      throw error;
    }
  }

  /** The newest terms of a resource, the newest first. */
  async leaseTerms(resource: string, limit: number): Promise<readonly ResourceLeaseTerm[]> {
    const terms = `${path('leases', resource)}/terms?limit=${limit}`;
    return (await this.#rest.call<Page<ResourceLeaseTerm>>({ method: 'GET', path: terms, repeatable: true })).items;
  }

  /** Ends that term, and no newer one, at once or after a delay; false when it is over. */
  async breakLease({ resource, fence }: ResourceLease, afterMs: number): Promise<boolean> {
    try {
      const body = { resource, fence, afterMs };
      await this.#rest.call({ method: 'POST', path: '/v1/leases/break', body, repeatable: true });
      return true;
    } catch (error) {
      if (error instanceof Problem && error.code === 'not_held') return false;
      throw error;
    }
  }

  close(): void {
    this.#rest.close();
  }

  async *#list<Item>(path: string, filter: Record<string, string>): AsyncGenerator<Item> {
    let cursor: string | null = null;
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const query = new URLSearchParams({ ...filter, limit: String(PAGE_ITEMS), ...(cursor !== null && { cursor }) });
      const page: Page<Item> = await this.#rest.call({
        method: 'GET',
        path: `${path}?${query.toString()}`,
        repeatable: true,
      });
      yield* page.items;
      if (page.nextCursor === null) return;
      cursor = page.nextCursor;
    }
    throw new RangeError(`${path} has more than ${PAGES_MAX} pages`);
  }
}

const path = (collection: string, id: string): string => `/v1/${collection}/${encodeURIComponent(id)}`;
