/** Resource leases over REST: anything that has to be held by one at a time. Knows nothing of rides. */
import { randomUUID } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { jsonProblem } from '../client/leases/bounds.ts';
import { type AcquireRequest, leaseBounds } from '../client/leases/contract.ts';
import { findLease, LEASE_STATES, listLeases, listTerms } from '../resource-leases/reads.ts';
import { breakLease, resourcesOf } from '../resource-leases/transitions.ts';
import type { ApiDeps, App } from './context.ts';
import { ApiProblem } from './problem.ts';
import { cursorOf, idempotencyHeaders, pageOf, pageQuery, refuseOwnName } from './requests.ts';
import { bounded, DurationMs, LeaseToken, named, Time } from './schemas.ts';

/** A hundred names of 256 bytes, with their tokens. */
const BODY_MAX_BYTES = 64 * 1024;

const Resource = named(leaseBounds.resourceBytes).meta({
  description: 'What is leased: any name, 1–256 bytes of UTF-8.',
  examples: ['report/nightly'],
});
const Holder = named(leaseBounds.holderBytes).meta({
  description: 'Who holds it, for people; no right comes from it.',
  examples: ['worker-3'],
});
const { min: SET_MIN, max: SET_MAX } = leaseBounds.setItems;
const ResourceSet = z
  .array(Resource)
  .min(SET_MIN)
  .max(SET_MAX)
  .refine((set) => new Set(set).size === set.length, { error: 'names each resource once' });
const Fence = z.int().meta({ description: 'Orders the terms of a resource: +1 at each grant, never reused.' });
const Token = LeaseToken.meta({ description: 'Proves who holds the term.' });

const AcquireBody = z
  .strictObject({
    resource: Resource.optional(),
    anyOf: ResourceSet.optional().meta({ description: 'In place of `resource`: the first free one, in this order.' }),
    allOf: ResourceSet.optional().meta({ description: 'In place of `resource`: all of them, or none.' }),
    holder: Holder,
    ttlMs: bounded(leaseBounds.ttlMs).meta({ description: 'The term’s length, from the grant and from each renewal.' }),
    waitMs: bounded(leaseBounds.waitMs)
      .optional()
      .meta({ description: 'How long to queue when it is held: first come, first served within a priority.' }),
    priority: bounded(leaseBounds.priority).optional().meta({ description: 'Higher goes first; 0 unless given.' }),
    maxLifetimeMs: bounded(leaseBounds.maxLifetimeMs)
      .optional()
      .meta({ description: 'No renewal moves the end past the grant plus this.' }),
    lockDelayMs: bounded(leaseBounds.lockDelayMs)
      .optional()
      .meta({ description: 'For so long after an end that nobody declared, others have to wait.' }),
    graceMs: bounded(leaseBounds.graceMs)
      .optional()
      .meta({ description: 'For so long after it expired, only the former token may take the next term.' }),
    softTtlMs: bounded(leaseBounds.softTtlMs)
      .optional()
      .meta({ description: 'Unrenewed for so long, an acquire by others ends the term after `graceMs`.' }),
    formerToken: Token.optional().meta({ description: 'The token of the term before, within its grace.' }),
  })
  .refine(({ resource, anyOf, allOf }) => [resource, anyOf, allOf].filter((each) => each !== undefined).length === 1, {
    error: 'exactly one of resource, anyOf and allOf is needed',
  })
  .refine(({ ttlMs, maxLifetimeMs }) => maxLifetimeMs === undefined || maxLifetimeMs >= ttlMs, {
    path: ['maxLifetimeMs'],
    error: 'must be at least ttlMs',
  })
  .refine(({ ttlMs, softTtlMs }) => softTtlMs === undefined || softTtlMs < ttlMs, {
    path: ['softTtlMs'],
    error: 'must be less than ttlMs',
  });

const AcquireHeaders = idempotencyHeaders(
  'The same key with the same request again: the term that it was granted. While that lives, the key is refused for the ' +
    'same resources with another `holder` or other durations; `waitMs` and `priority` may change.',
);

const GrantedLease = z
  .object({
    resource: Resource,
    holder: Holder,
    token: Token,
    fence: Fence,
    expiresInMs: DurationMs,
    renewAfterMs: DurationMs.meta({ description: 'Renew after this: two more renewals may fail before the end.' }),
  })
  .meta({ id: 'GrantedLease', description: 'A term, as its holder gets it.' });

const Claim = z.strictObject({ resource: Resource, token: Token });
const ClaimsBody = z
  .strictObject({
    resource: Resource.optional(),
    token: Token.optional(),
    leases: z.array(Claim).min(SET_MIN).max(SET_MAX).optional(),
  })
  .refine(
    ({ resource, token, leases }) =>
      leases === undefined
        ? resource !== undefined && token !== undefined
        : resource === undefined && token === undefined,
    {
      error: 'either resource and token, or leases, are needed',
    },
  );
type ClaimsBody = z.infer<typeof ClaimsBody>;

const Refused = z.enum(['lease_expired', 'lease_lost']).nullable().meta({ description: 'Null: done.' });
const RenewResults = z.object({
  results: z.array(
    z.object({
      resource: Resource,
      refused: Refused,
      fence: Fence.optional(),
      expiresInMs: DurationMs.nullable().optional().meta({ description: 'Null: confirmed, without an end.' }),
      renewAfterMs: DurationMs.optional(),
    }),
  ),
});
const ReleaseResults = z.object({ results: z.array(z.object({ resource: Resource, refused: Refused })) });

const Data = z.unknown().meta({ description: 'What the holder wants kept with it; at most 8 KiB of JSON.' });

const ConfirmBody = z
  .strictObject({ resource: Resource, token: Token, data: Data.optional() })
  .superRefine(({ data }, context) => {
    const message = data === undefined ? null : jsonProblem('data', data, leaseBounds.dataBytes);
    if (message !== null) context.addIssue({ code: 'custom', path: ['data'], message });
  });

const Lease = z
  .object({
    resource: Resource,
    state: z.enum(LEASE_STATES).meta({ description: '`renewed`: active, and renewed at least once.' }),
    holder: Holder,
    fence: Fence,
    grantedAt: Time,
    renewedAt: Time.nullable(),
    renewals: z.int(),
    confirmedAt: Time.nullable(),
    data: Data,
    endsAt: Time.nullable().meta({ description: 'The end, past or to come; null for a confirmed one.' }),
    expiresInMs: DurationMs.nullable(),
  })
  .meta({ id: 'Lease', description: 'A resource with its newest term.' });

const LeaseTerm = z
  .object({
    fence: Fence,
    holder: Holder,
    grantedAt: Time,
    renewedAt: Time.nullable(),
    renewals: z.int(),
    confirmedAt: Time.nullable(),
    data: Data,
    endedAt: Time.nullable().meta({ description: 'Null for the term that runs.' }),
    endedAs: z.enum(['released', 'expired', 'recovered', 'broken']).nullable(),
    endedBy: z.string().nullable().meta({ description: 'The operator who broke it.' }),
  })
  .meta({ id: 'LeaseTerm' });

const ResourceParams = z.strictObject({ resource: Resource });
const ROLES = ['service', 'ops'] as const;

export function leaseRoutes(app: App, deps: ApiDeps): void {
  acquireLease(app, deps);
  renewLeases(app, deps);
  releaseLeases(app, deps);
  confirmLease(app, deps);
  breakLeaseRoute(app, deps);
  getLeases(app, deps);
  getLease(app, deps);
  getTerms(app, deps);
}

function acquireLease(app: App, { resourceLeases }: ApiDeps): void {
  app.post(
    '/leases',
    {
      bodyLimit: BODY_MAX_BYTES,
      schema: {
        operationId: 'acquireLease',
        tags: ['leases'],
        summary: 'Lease a resource, the first free of several, or all of several',
        description:
          'Granted when it is free, released or expired; otherwise `held`, after `waitMs` in the queue. With an ' +
          '`Idempotency-Key` the call may be repeated: it is answered with the term that it was granted first, or ' +
          '`lease_expired` once that is over. A key is known by its term, for as long as that is its resource’s newest: ' +
          'afterwards, and for other resources, the call is a new one.',
        headers: AcquireHeaders,
        body: AcquireBody,
        response: { 201: z.union([GrantedLease, z.object({ leases: z.array(GrantedLease) })]) },
      },
      config: { roles: ROLES, problems: ['held', 'lease_expired', 'idempotency_key_reused'], waits: true },
    },
    async (request, reply) => {
      const asked = withoutUndefined(request.body) as unknown as AcquireRequest;
      resourcesOf(asked).forEach(refuseOwnName);
      const signal = hangUp(reply);
      const answer = await resourceLeases.acquire(asked, keyOf(request), signal);
      if (answer.refused !== null) throw new ApiProblem(answer.refused, { members: { held: answer.held } });
      // Not without an idempotency key, by which the client may still come for it.
      if (signal.aborted && request.headers['idempotency-key'] === undefined)
        await resourceLeases.release(answer.leases);
      return reply.code(201).send('resource' in asked ? answer.leases[0]! : { leases: [...answer.leases] });
    },
  );
}

function renewLeases(app: App, { resourceLeases }: ApiDeps): void {
  app.post(
    '/leases/renew',
    {
      bodyLimit: BODY_MAX_BYTES,
      schema: {
        operationId: 'renewLeases',
        tags: ['leases'],
        summary: 'Put the end of terms off, one TTL from now',
        description: 'One result each, in one commit. A term that is over stays over.',
        body: ClaimsBody,
        response: { 200: RenewResults },
      },
      config: { roles: ROLES },
    },
    async ({ body }) => {
      const claims = claimsOf(body);
      const results = await resourceLeases.renew(claims);
      return { results: results.map((result, i) => ({ resource: claims[i]!.resource, ...result })) };
    },
  );
}

function releaseLeases(app: App, { resourceLeases }: ApiDeps): void {
  app.post(
    '/leases/release',
    {
      bodyLimit: BODY_MAX_BYTES,
      schema: {
        operationId: 'releaseLeases',
        tags: ['leases'],
        summary: 'End terms now',
        description:
          'One result each, in one commit; whoever queues is next. Repeated, it is answered as the first time, for as ' +
          'long as the term is one of its resource’s newest hundred.',
        body: ClaimsBody,
        response: { 200: ReleaseResults },
      },
      config: { roles: ROLES },
    },
    async ({ body }) => {
      const claims = claimsOf(body);
      const results = await resourceLeases.release(claims);
      return { results: results.map(({ refused }, i) => ({ resource: claims[i]!.resource, refused })) };
    },
  );
}

function confirmLease(app: App, { resourceLeases }: ApiDeps): void {
  app.post(
    '/leases/confirm',
    {
      schema: {
        operationId: 'confirmLease',
        tags: ['leases'],
        summary: 'Make a reservation permanent, until it is released',
        description: 'Every holder of the token hears the first answer, however often it asks.',
        body: ConfirmBody,
        response: { 200: z.object({ resource: Resource, fence: Fence, confirmedAt: Time, data: Data }) },
      },
      config: { roles: ROLES, problems: ['lease_lost', 'lease_expired'] },
    },
    async ({ body: { resource, token, data } }) => {
      const answer = await resourceLeases.confirm({ resource, token }, data);
      if (answer.refused !== null) throw new ApiProblem(answer.refused);
      const { fence, confirmedAt, data: kept } = answer;
      return { resource, fence, confirmedAt, data: kept };
    },
  );
}

function breakLeaseRoute(app: App, { database, metrics }: ApiDeps): void {
  app.post(
    '/leases/break',
    {
      schema: {
        operationId: 'breakLease',
        tags: ['leases'],
        summary: 'End a term that isn’t one’s own',
        description:
          'Now, or after a delay that no renewal outlasts. With a fence only that term, not the one that may have come ' +
          'after it. The history keeps who did it.',
        body: z.strictObject({
          resource: Resource,
          fence: Fence.optional(),
          afterMs: bounded(leaseBounds.breakAfterMs).optional(),
        }),
        response: { 200: z.object({ resource: Resource, holder: Holder, fence: Fence, endsInMs: DurationMs }) },
      },
      config: { roles: ['ops'], problems: ['lease_not_found', 'not_held'] },
    },
    async ({ body, identity }) => {
      const broken = await breakLease(database.hot, body, identity.sub);
      if (broken === undefined) throw new ApiProblem('lease_not_found');
      metrics.countLease('break', broken.refused ?? 'applied');
      if (broken.refused !== null) throw new ApiProblem(broken.refused);
      return {
        resource: body.resource,
        holder: broken.holder,
        fence: broken.fence,
        endsInMs: Math.ceil(broken.ends_in_ms),
      };
    },
  );
}

function getLeases(app: App, { database }: ApiDeps): void {
  app.get(
    '/leases',
    {
      schema: {
        operationId: 'listLeases',
        tags: ['leases'],
        summary: 'Resources with their newest term',
        querystring: z.strictObject({ state: z.enum(LEASE_STATES).optional(), ...pageQuery(/^[^\0]+$/u) }),
        response: { 200: pageOf(Lease) },
      },
      config: { roles: ROLES },
    },
    async ({ query: { state, limit, cursor } }) => {
      const { items, next } = await listLeases(database.cold, { state, after: cursor ?? '', limit });
      return { items, nextCursor: cursorOf(next) };
    },
  );
}

function getLease(app: App, { database }: ApiDeps): void {
  app.get(
    '/leases/:resource',
    {
      schema: {
        operationId: 'getLease',
        tags: ['leases'],
        summary: 'A resource with its newest term',
        params: ResourceParams,
        response: { 200: Lease },
      },
      config: { roles: ROLES, problems: ['lease_not_found'] },
    },
    async ({ params: { resource } }) => {
      const lease = await findLease(database.cold, resource);
      if (lease === null) throw new ApiProblem('lease_not_found');
      return lease;
    },
  );
}

function getTerms(app: App, { database }: ApiDeps): void {
  app.get(
    '/leases/:resource/terms',
    {
      schema: {
        operationId: 'listLeaseTerms',
        tags: ['leases'],
        summary: 'A resource’s terms, the newest first',
        params: ResourceParams,
        querystring: z.strictObject(pageQuery(/^\d{1,16}$/)),
        response: { 200: pageOf(LeaseTerm) },
      },
      config: { roles: ROLES, problems: ['lease_not_found'] },
    },
    async ({ params: { resource }, query: { limit, cursor } }) => {
      const before = cursor === undefined ? null : Number(cursor);
      const page = await listTerms(database.cold, resource, { before, limit });
      if (page === null) throw new ApiProblem('lease_not_found');
      return { items: page.items, nextCursor: cursorOf(page.next) };
    },
  );
}

const claimsOf = ({ resource, token, leases }: ClaimsBody) => leases ?? [{ resource: resource!, token: token! }];

/** Of each caller its own: nobody finds another's term by guessing a key. */
function keyOf({ headers, identity }: FastifyRequest): string {
  const key = headers['idempotency-key'];
  return `${identity.role}:${identity.sub}\0${typeof key === 'string' ? key : randomUUID()}`;
}

/** Whoever hung up waits for nothing, and gets nothing. */
function hangUp({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  raw.once('close', () => {
    if (!raw.writableFinished) gone.abort(new Error('the client hung up'));
  });
  return gone.signal;
}

const withoutUndefined = (body: object): object =>
  Object.fromEntries(Object.entries(body).filter(([, value]) => value !== undefined));
