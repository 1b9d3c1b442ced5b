import type { DriverProfile } from '../eligibility.ts';
import { DriverTree } from './driver-tree.ts';

export interface Cab extends DriverProfile {
  /** In the order of the ids. */
  readonly number: number;
}

/** Those of one vehicle class, and where they are. */
export interface Rank {
  readonly cabs: readonly Cab[];
  readonly tree: DriverTree<Cab>;
}

/**
 * Drivers in order, and where they are: that is most of a round's work where drivers are many and rides few, so it is done
 * once for as many rounds as look at the same drivers.
 */
export class Fleet {
  readonly cabs: readonly Cab[];
  readonly ranks: ReadonlyMap<string, Rank>;
  readonly isFree: (driver: DriverProfile) => boolean;

  private constructor({ cabs, ranks }: Pick<Fleet, 'cabs' | 'ranks'>, isFree: (driver: DriverProfile) => boolean) {
    this.cabs = cabs;
    this.ranks = ranks;
    this.isFree = isFree;
  }

  /** Drivers have distinct ids. */
  static of(drivers: readonly DriverProfile[]): Fleet {
    const known = drivers.toSorted((a, b) => byText(a.driverId, b.driverId));
    const cabs = known.map((driver, number): Cab => ({ ...driver, number }));
    const ranks = new Map<string, Rank>();
    for (const [vehicleClass, of] of Map.groupBy(cabs, (cab) => cab.vehicleClass))
      ranks.set(vehicleClass, { cabs: of, tree: new DriverTree(of) });
    return new Fleet({ cabs, ranks }, () => true);
  }

  /** As if the others weren't in it. */
  only(isFree: (driver: DriverProfile) => boolean): Fleet {
    return new Fleet(this, (driver) => this.isFree(driver) && isFree(driver));
  }

  get drivers(): Cab[] {
    return this.cabs.filter(this.isFree);
  }
}

/** By UTF-16 unit: the same everywhere, unlike a locale's order. */
export function byText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
