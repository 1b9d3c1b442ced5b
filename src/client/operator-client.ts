import type { DriverStatus, Position, Ride, RideStatus } from './contract.ts';
import { Rest, type RestOptions } from './rest.ts';

export interface Region {
  readonly name: string;
  readonly center: Position;
  readonly radiusM: number;
}

export interface DriverProfile {
  readonly regionId: string;
  readonly vehicleClass?: string;
}

export interface Driver {
  readonly id: string;
  readonly regionId: string;
  readonly status: DriverStatus;
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
