/** Versions of a region's policy: made, tried on a share of the rides, rolled forward and back. */
import { isDeepStrictEqual } from 'node:util';
import { defaultPolicy, policyProblems, type Policy } from '../../domain/policy.ts';
import type { Sql } from '../database/connection.ts';
import { ApiProblem } from './problem.ts';

export interface PolicyChange {
  readonly change: { readonly [setting in keyof Policy]?: Policy[setting] | undefined };
  readonly basedOn: number | null;
  readonly by: string;
}

export interface SavedPolicy {
  readonly version: number;
  readonly policy: Policy;
}

export interface SavedCanary extends SavedPolicy {
  readonly share: number;
}

interface RegionRow {
  readonly number: number;
  readonly policy_version: number;
  readonly canary_version: number | null;
  readonly canary_share: number | null;
}

/** Changes the policy of all new rides. A canary goes on beside it. */
export const savePolicy = (sql: Sql, id: string, { change, basedOn, by }: PolicyChange): Promise<SavedPolicy> =>
  inRegion(sql, id, async (transaction, region) => {
    const current = await documentOf(transaction, region.number, region.policy_version);
    const policy = changed(current, change);
    if (policy === current) return { version: region.policy_version, policy };
    requireBase(region, basedOn);
    const version = await addVersion(transaction, region.number, policy, by);
    await transaction`update regions set policy_version = ${version}, updated_at = now() where number = ${region.number}`;
    return { version, policy };
  });

/** Tries a change of the current policy on a share of the new rides; the same change again only sets the share. */
export const saveCanary = (
  sql: Sql,
  id: string,
  { change, basedOn, by, share }: PolicyChange & { readonly share: number },
): Promise<SavedCanary> =>
  inRegion(sql, id, async (transaction, region) => {
    const policy = changed(await documentOf(transaction, region.number, region.policy_version), change);
    requireBase(region, basedOn);
    const known = region.canary_version;
    const isKnown = known !== null && isDeepStrictEqual(await documentOf(transaction, region.number, known), policy);
    const version = isKnown ? known : await addVersion(transaction, region.number, policy, by);
    await transaction`update regions set canary_version = ${version}, canary_share = ${share}, updated_at = now()
      where number = ${region.number}`;
    return { version, policy, share };
  });

/** Makes the canary the policy of all new rides. */
export const promoteCanary = (sql: Sql, id: string): Promise<SavedPolicy> =>
  inRegion(sql, id, async (transaction, region) => {
    if (region.canary_version === null) throw new ApiProblem('canary_not_found');
    await transaction`update regions set policy_version = canary_version, canary_version = null, canary_share = null,
      updated_at = now() where number = ${region.number}`;
    const version = region.canary_version;
    return { version, policy: await documentOf(transaction, region.number, version) };
  });

/** New rides run under the current policy again; those under the canary keep it. Repeated, it changes nothing. */
export const dropCanary = (sql: Sql, id: string): Promise<SavedPolicy> =>
  inRegion(sql, id, async (transaction, region) => {
    await transaction`update regions set canary_version = null, canary_share = null, updated_at = now()
      where number = ${region.number} and canary_version is not null`;
    const version = region.policy_version;
    return { version, policy: await documentOf(transaction, region.number, version) };
  });

/** The region's row is held from reading the policy to writing it: of two changes at once, the second sees the first. */
async function inRegion<Result>(
  sql: Sql,
  id: string,
  work: (transaction: Sql, region: RegionRow) => Promise<Result>,
): Promise<Result> {
  const result = await sql.begin(async (tx) => {
    const transaction = tx as unknown as Sql;
    const [region] = await transaction<RegionRow[]>`
      select number, policy_version, canary_version, canary_share from regions where id = ${id} for no key update`;
    if (region === undefined) throw new ApiProblem('region_not_found');
    return { of: await work(transaction, region) };
  });
  return result.of as Result;
}

async function documentOf(transaction: Sql, region: number, version: number): Promise<Policy> {
  const [row] = await transaction<{ document: Policy }[]>`
    select document from policies where region = ${region} and version = ${version}`;
  return { ...defaultPolicy, ...row!.document };
}

async function addVersion(transaction: Sql, region: number, policy: Policy, by: string): Promise<number> {
  const [row] = await transaction<{ version: number }[]>`
    insert into policies (region, version, document, created_by)
    select ${region}, max(version) + 1, ${transaction.json(policy as never)}, ${by} from policies where region = ${region}
    returning version`;
  return row!.version;
}

function requireBase({ policy_version: version }: RegionRow, basedOn: number | null): void {
  if (basedOn !== null && basedOn !== version)
    throw new ApiProblem('policy_version_changed', { detail: `the policy has version ${version}` });
}

/** The policy itself when the change changes nothing. Throws `policy_invalid` for what couldn't run. */
function changed(policy: Policy, change: PolicyChange['change']): Policy {
  const changedTo = { ...policy, ...change } as Policy;
  const names = Object.keys(changedTo) as (keyof Policy)[];
  if (names.every((name) => isDeepStrictEqual(changedTo[name], policy[name]))) return policy;
  const errors = policyProblems(changedTo).map(({ setting, problem }) => ({
    path: `body.${setting}`,
    message: problem,
  }));
  if (errors.length > 0) throw new ApiProblem('policy_invalid', { errors });
  return changedTo;
}
