/** What is wrong with a request, before anybody is asked. */
import { Problem } from '../problem.ts';
import { type AcquireRequest, leaseBounds, type LeaseClaim } from './contract.ts';
import { type NewWork, workBounds, type WorkClaim, type WorkFailure } from './work.ts';

/** Throws the `Problem` that the service would answer with. */
export function refuse(problem: string | null): void {
  if (problem !== null) throw new Problem({ code: 'invalid_request', status: 400, detail: problem });
}

const bytes = new TextEncoder();
const byteLength = (text: string): number => bytes.encode(text).byteLength;

interface Range {
  readonly min: number;
  readonly max: number;
}

/** A whole number within its bounds, or absent. */
function numberProblem(name: string, value: unknown, { min, max }: Range): string | null {
  if (value === undefined || (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max))
    return null;
  return `${name} must be a whole number from ${min} to ${max}`;
}

/** Text that a database can keep: of so many bytes of UTF-8, without NUL and without half a character. */
function textProblem(name: string, value: unknown, { min, max }: Range): string | null {
  if (typeof value !== 'string' || byteLength(value) < min || byteLength(value) > max)
    return `${name} must be ${min} to ${max} bytes of UTF-8`;
  return isText(value) ? null : `${name} must be well-formed text without NUL`;
}

/** Far deeper than data is, and far from where reading it would use up a stack, here or in PostgreSQL. */
const JSON_DEPTH_MAX = 64;

const isText = (value: string): boolean => value.isWellFormed() && !value.includes('\0');

/** PostgreSQL's JSON has no NUL and no half of a character either; JSON has no number beyond all numbers. */
function isKeepable(value: unknown, depth = 0): boolean {
  if (typeof value === 'string') return isText(value);
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object' || value === null) return true;
  if (depth === JSON_DEPTH_MAX) return false;
  return Object.entries(value).every(([key, each]) => isText(key) && isKeepable(each, depth + 1));
}

/** What JSON can't say, such as undefined, can't be kept either. */
export function jsonProblem(name: string, value: unknown, { max }: { readonly max: number }): string | null {
  if (!isKeepable(value))
    return `${name} must be JSON of well-formed text without NUL, at most ${JSON_DEPTH_MAX} levels deep`;
  const json: string | undefined = JSON.stringify(value);
  return json !== undefined && byteLength(json) <= max ? null : `${name} must be at most ${max} bytes of JSON`;
}

const resourceProblem = (value: unknown): string | null => textProblem('resource', value, leaseBounds.resourceBytes);

function setProblem(
  name: string,
  items: readonly unknown[],
  { min, max }: Range = leaseBounds.setItems,
): string | null {
  return items.length >= min && items.length <= max ? null : `${name} must hold ${min} to ${max} items`;
}

function targetProblem(request: AcquireRequest): string | null {
  const { resource, anyOf, allOf } = request as {
    resource?: string;
    anyOf?: readonly string[];
    allOf?: readonly string[];
  };
  const given = [resource, anyOf, allOf].filter((each) => each !== undefined);
  if (given.length !== 1) return 'exactly one of resource, anyOf and allOf is needed';
  if (resource !== undefined) return resourceProblem(resource);
  const set = (anyOf ?? allOf)!;
  if (new Set(set).size < set.length) return 'a set names each resource once';
  return setProblem(anyOf === undefined ? 'allOf' : 'anyOf', set) ?? first(set.map(resourceProblem));
}

const first = (problems: readonly (string | null)[]): string | null => problems.find((each) => each !== null) ?? null;

export const requestProblem = {
  acquire(request: AcquireRequest): string | null {
    const { holder, ttlMs, maxLifetimeMs, softTtlMs } = request;
    if (ttlMs === undefined) return 'ttlMs is needed';
    const numbers = ['ttlMs', 'waitMs', 'priority', 'maxLifetimeMs', 'lockDelayMs', 'graceMs', 'softTtlMs'] as const;
    return (
      targetProblem(request) ??
      textProblem('holder', holder, leaseBounds.holderBytes) ??
      first(numbers.map((name) => numberProblem(name, request[name], leaseBounds[name]))) ??
      (maxLifetimeMs !== undefined && maxLifetimeMs < ttlMs ? 'maxLifetimeMs must be at least ttlMs' : null) ??
      (softTtlMs !== undefined && softTtlMs >= ttlMs ? 'softTtlMs must be less than ttlMs' : null)
    );
  },
  claims: (claims: readonly LeaseClaim[]): string | null =>
    setProblem('leases', claims) ?? first(claims.map(({ resource }) => resourceProblem(resource))),
  data: (data: unknown): string | null =>
    data === undefined ? null : jsonProblem('data', data, leaseBounds.dataBytes),
};

const workName = (name: string, value: unknown): string | null => textProblem(name, value, workBounds.nameBytes);

export const workProblem = {
  add: (queue: string, items: readonly NewWork[]): string | null =>
    workName('queue', queue) ??
    setProblem('items', items, workBounds.addItems) ??
    first(
      items.map(
        ({ key, group, payload, delayMs }) =>
          workName('key', key) ??
          (group === undefined ? null : workName('group', group)) ??
          numberProblem('delayMs', delayMs, workBounds.delayMs) ??
          jsonProblem('payload', payload, workBounds.payloadBytes),
      ),
    ),
  next: (queue: string, max: number, ttlMs: number): string | null =>
    workName('queue', queue) ??
    numberProblem('max', max, workBounds.nextItems) ??
    numberProblem('ttlMs', ttlMs, workBounds.ttlMs),
  claims: (claims: readonly WorkClaim[], ttlMs?: number): string | null =>
    setProblem('claims', claims, workBounds.claims) ??
    first(claims.map(({ queue, key }) => workName('queue', queue) ?? workName('key', key))) ??
    numberProblem('ttlMs', ttlMs, workBounds.ttlMs),
  failure: ({ retryInMs, attemptsMax }: WorkFailure): string | null =>
    numberProblem('retryInMs', retryInMs, workBounds.delayMs) ??
    numberProblem('attemptsMax', attemptsMax, workBounds.attemptsMax),
};
