/** How requests are read: who sends them, whether they have the right form, and which of a list is asked for. */
import { createHash } from 'node:crypto';
import type { FastifyRequest, FastifySchemaCompiler, onRequestAsyncHookHandler } from 'fastify';
import { z } from 'zod';
import type { Authenticator, Role } from '../auth.ts';
import type { CallerLimiter } from '../rate-limit.ts';
import { ApiProblem, type FieldError } from './problem.ts';

/** Lets only these roles through, and nobody too often, before a byte of the body is read. */
export function guard(
  { authenticator, mayAsk }: { readonly authenticator: Authenticator; readonly mayAsk: CallerLimiter },
  roles: readonly Role[],
): onRequestAsyncHookHandler {
  const only = `only for: ${roles.join(', ')}`;
  return async (request: FastifyRequest) => {
    const identity = await authenticator.verify(bearerToken(request.headers.authorization));
    if (!mayAsk(identity)) throw new ApiProblem('too_many_requests');
    if (!roles.includes(identity.role)) throw new ApiProblem('forbidden', { detail: only });
    request.identity = identity;
  };
}

function bearerToken(authorization: string | undefined): string {
  if (authorization === undefined) return '';
  return /^Bearer +(\S+) *$/i.exec(authorization)?.[1] ?? '';
}

/** Singletons and queues that the service has for itself. */
const OWN_NAMES = 'cabrank/';

/** Nobody outside may hold up the service's own jobs. */
export function refuseOwnName(name: string): void {
  if (name.startsWith(OWN_NAMES))
    throw new ApiProblem('forbidden', { detail: `names that begin with ${OWN_NAMES} are the service’s own` });
}

const places: Readonly<Record<string, string>> = { querystring: 'query' };

/** Checks a part of a request by its schema. What comes out has exactly the fields the schema names. */
export const validatorCompiler: FastifySchemaCompiler<z.ZodType> = ({ schema, httpPart }) => {
  const place = places[httpPart ?? ''] ?? httpPart ?? 'request';
  return (data: unknown) => {
    // Where no body was sent, fastify says null.
    const result = schema.safeParse(data ?? undefined);
    if (result.success) return { value: result.data };
    return { error: new ApiProblem('invalid_request', { errors: result.error.issues.flatMap(fieldErrors(place)) }) };
  };
};

const fieldErrors =
  (place: string) =>
  (issue: z.core.$ZodIssue): FieldError[] => {
    const path = [place, ...issue.path].join('.');
    if (issue.code !== 'unrecognized_keys') return [{ path, message: issue.message }];
    return issue.keys.map((key) => ({ path: `${path}.${key}`, message: 'is not a known field' }));
  };

/** Other headers are nobody's business here. */
export const idempotencyHeaders = (description: string) =>
  z.looseObject({
    'idempotency-key': z
      .string()
      .regex(/^[\x21-\x7e]{1,255}$/, 'must be 1–255 visible ASCII characters')
      .optional()
      .meta({ description }),
  });

export const IdempotencyHeaders = idempotencyHeaders(
  'The same key with the same request again: the same answer, for 24 hours.',
);

export interface Idempotency {
  readonly subject: string;
  readonly key: string;
  readonly requestHash: Buffer;
}

/** `asked` are the request's values in an order of their own, so that the order of the body's fields doesn't count. */
export function idempotencyOf(
  { headers, identity }: FastifyRequest,
  asked: readonly (string | number)[],
): Idempotency | null {
  const key = headers['idempotency-key'];
  if (typeof key !== 'string') return null;
  const requestHash = createHash('sha256').update(JSON.stringify(asked)).digest();
  return { subject: `${identity.role}:${identity.sub}`, key, requestHash };
}

/** The longest names of anything that is listed have 256 bytes. */
const CURSOR_MAX_CHARS = 400;

/** The parts of a list's query that all lists share; `cursorId` is the form of the ids that its cursors hold. */
export const pageQuery = (cursorId: RegExp) => ({
  limit: z.coerce.number().int().min(1).max(500).default(100),
  cursor: z
    .string()
    .max(CURSOR_MAX_CHARS)
    .transform((cursor) => ({ cursor, id: Buffer.from(cursor, 'base64url').toString() }))
    .refine(({ cursor, id }) => cursorOf(id) === cursor && cursorId.test(id), 'is not a cursor of this list')
    .transform(({ id }) => id)
    .optional()
    .meta({ description: 'The `nextCursor` of the page before.' }),
});

/** Opaque to whoever gets it, so that what a list is ordered by can change. */
export const cursorOf = (id: string | null): string | null =>
  id === null ? null : Buffer.from(id).toString('base64url');

export const pageOf = <Item extends z.ZodType>(item: Item) =>
  z.object({
    items: z.array(item),
    nextCursor: z.string().nullable().meta({
      description: 'Null: there is no more. A filtered page may be short, even empty, and still have one.',
    }),
  });
