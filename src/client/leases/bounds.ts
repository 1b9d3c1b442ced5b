/** What is wrong with a request, before anybody is asked. */
import { type AcquireRequest, leaseBounds, type LeaseClaim } from './contract.ts';

const bytes = new TextEncoder();
const byteLength = (text: string): number => bytes.encode(text).byteLength;

/** A whole number within its bounds, or absent. */
function numberProblem(name: keyof typeof leaseBounds, value: unknown): string | null {
  const { min, max } = leaseBounds[name] as { min: number; max: number };
  if (value === undefined || (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max))
    return null;
  return `${name} must be a whole number from ${min} to ${max}`;
}

/** Text that a database can keep: of so many bytes of UTF-8, without NUL and without half a character. */
function textProblem(name: string, value: unknown, { min, max }: { min: number; max: number }): string | null {
  if (typeof value !== 'string' || byteLength(value) < min || byteLength(value) > max)
    return `${name} must be ${min} to ${max} bytes of UTF-8`;
  return value.includes('\0') || !value.isWellFormed() ? `${name} must be well-formed text without NUL` : null;
}

const resourceProblem = (value: unknown): string | null => textProblem('resource', value, leaseBounds.resourceBytes);

function setProblem(name: string, items: readonly unknown[]): string | null {
  const { min, max } = leaseBounds.setItems;
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
      first(numbers.map((name) => numberProblem(name, request[name]))) ??
      (maxLifetimeMs !== undefined && maxLifetimeMs < ttlMs ? 'maxLifetimeMs must be at least ttlMs' : null) ??
      (softTtlMs !== undefined && softTtlMs >= ttlMs ? 'softTtlMs must be less than ttlMs' : null)
    );
  },
  claims: (claims: readonly LeaseClaim[]): string | null =>
    setProblem('leases', claims) ?? first(claims.map(({ resource }) => resourceProblem(resource))),
  data(data: unknown): string | null {
    if (data === undefined) return null;
    const { max } = leaseBounds.dataBytes;
    return byteLength(JSON.stringify(data)) <= max ? null : `data must be at most ${max} bytes of JSON`;
  },
};
