/** The figures that `npm run bench` has written, of a machine. */
import { readFile } from 'node:fs/promises';
import type { CityFigures } from './city/city.ts';
import type { GatewayFigures } from './gateway/gateway.ts';
import type { GrowthFigures } from './growth/growth.ts';
import type { HerdFigures } from './herd/herd.ts';
import type { IdleFigures } from './idle/idle.ts';
import type { LeasesFigures } from './leases/leases.ts';
import type { Machine } from './machine.ts';
import type { RoundFigures } from './round/round.ts';
import type { VerifyFigures } from './verify/verify.ts';

export interface Results {
  leases: LeasesFigures;
  city: CityFigures;
  round: RoundFigures;
  herd: HerdFigures;
  gateway: GatewayFigures;
  growth: GrowthFigures;
  verify: VerifyFigures;
  idle: IdleFigures;
}
export type Measured<Figures> = Figures & { readonly machine: Machine };
/** Those that are there. */
export type AllResults = { readonly [Name in keyof Results]?: Measured<Results[Name]> };

const NAMES = ['leases', 'city', 'round', 'herd', 'gateway', 'growth', 'verify', 'idle'] as const;
export const RESULTS = new URL('results/', import.meta.url);

export async function readResults(folder: URL): Promise<AllResults> {
  const read = NAMES.map(async (name) => {
    const text = await readFile(new URL(`${name}.json`, folder), 'utf8').catch(() => null);
    return text === null ? [] : [[name, JSON.parse(text)] as const];
  });
  return Object.fromEntries((await Promise.all(read)).flat()) as AllResults;
}
