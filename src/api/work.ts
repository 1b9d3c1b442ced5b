/** Work claimed under a lease, over REST. */
import { z } from 'zod';
import { jsonProblem } from '../client/leases/bounds.ts';
import { workBounds } from '../client/leases/work.ts';
import type { ApiDeps, App } from './context.ts';
import { refuseOwnName } from './requests.ts';
import { bounded, DurationMs, LeaseToken, named } from './schemas.ts';

/** The most items of an add, each with its payload and its names. */
const ADD_BODY_MAX_BYTES = workBounds.addItems.max * (workBounds.payloadBytes.max + 1_024);
/** The most claims, each with its names. */
const CLAIMS_BODY_MAX_BYTES = 128 * 1024;

const Name = named(workBounds.nameBytes);
const Queue = Name.meta({ description: 'A queue: any name, 1–256 bytes of UTF-8.', examples: ['receipts'] });
const Key = Name.meta({ description: 'Names the item in its queue; a key that is known adds nothing.' });
const Group = Name.meta({ description: 'Items of a group go one at a time, in the order in which they were added.' });
const Payload = z.unknown().meta({
  description:
    'Any JSON, up to 16 KiB. Kept by what it means: keys may come back in another order, and numbers as JavaScript has them.',
});
const Token = LeaseToken.meta({ description: 'Proves the claim.' });
const TtlMs = bounded(workBounds.ttlMs);

const NewItem = z
  .strictObject({
    key: Key,
    group: Group.optional(),
    payload: Payload,
    delayMs: bounded(workBounds.delayMs).optional().meta({ description: 'Not to be claimed before.' }),
  })
  .superRefine(({ payload }, context) => {
    const message = jsonProblem('payload', payload, workBounds.payloadBytes);
    if (message !== null) context.addIssue({ code: 'custom', path: ['payload'], message });
  });

const ClaimedItem = z
  .object({
    key: Key,
    group: Group.nullable(),
    payload: Payload,
    token: Token,
    attempt: z.int().meta({ description: 'From 1.' }),
    expiresInMs: DurationMs,
  })
  .meta({ id: 'ClaimedWork' });

const Claim = z.strictObject({ queue: Queue, key: Key, token: Token });
const Claims = z.array(Claim).min(workBounds.claims.min).max(workBounds.claims.max);
const Refused = z.enum(['claim_lost']).nullable().meta({ description: 'Null: done.' });
const Results = z.object({ results: z.array(z.object({ refused: Refused })) });

const QueueParams = z.strictObject({ queue: Queue });
const ROLES = ['service', 'ops'] as const;

export function workRoutes(app: App, deps: ApiDeps): void {
  addWork(app, deps);
  nextWork(app, deps);
  heartbeatWork(app, deps);
  endClaims(app, deps, 'complete', 'completeWork', 'Done: it isn’t claimed again, and its key is known for a day');
  endClaims(app, deps, 'put-back', 'putBackWork', 'Give claims back unused, without counting the attempt');
  failWork(app, deps);
}

function addWork(app: App, { resourceLeases: { work } }: ApiDeps): void {
  app.post(
    '/queues/:queue/items',
    {
      bodyLimit: ADD_BODY_MAX_BYTES,
      schema: {
        operationId: 'addWork',
        tags: ['work'],
        summary: 'Add items to a queue, each once by its key',
        params: QueueParams,
        body: z.strictObject({
          items: z.array(NewItem).min(workBounds.addItems.min).max(workBounds.addItems.max),
        }),
        response: { 200: z.object({ added: z.int().meta({ description: 'How many were new.' }) }) },
      },
      config: { roles: ROLES },
    },
    async ({ params: { queue }, body: { items } }) => {
      refuseOwnName(queue);
      const added = await work.add(
        queue,
        items.map(({ key, group, payload, delayMs }) => ({
          key,
          payload,
          ...(group !== undefined && { group }),
          ...(delayMs !== undefined && { delayMs }),
        })),
      );
      return { added };
    },
  );
}

function nextWork(app: App, { resourceLeases: { work } }: ApiDeps): void {
  app.post(
    '/queues/:queue/next',
    {
      schema: {
        operationId: 'nextWork',
        tags: ['work'],
        summary: 'Claim items that are due',
        description:
          'Each for a term; whoever doesn’t end or extend the claim by then has lost it. None: `items` is empty.',
        params: QueueParams,
        body: z.strictObject({ max: bounded(workBounds.nextItems), ttlMs: TtlMs }),
        response: { 200: z.object({ items: z.array(ClaimedItem) }) },
      },
      config: { roles: ROLES },
    },
    async ({ params: { queue }, body }) => {
      refuseOwnName(queue);
      return { items: await work.next(queue, body) };
    },
  );
}

function heartbeatWork(app: App, { resourceLeases: { work } }: ApiDeps): void {
  app.post(
    '/claims/heartbeat',
    {
      bodyLimit: CLAIMS_BODY_MAX_BYTES,
      schema: {
        operationId: 'heartbeatWork',
        tags: ['work'],
        summary: 'Put the end of claims off, one TTL from now',
        body: z.strictObject({ claims: Claims, ttlMs: TtlMs }),
        response: { 200: Results },
      },
      config: { roles: ROLES },
    },
    async ({ body: { claims, ttlMs } }) => ({ results: await work.heartbeat(claims, ttlMs) }),
  );
}

function endClaims(
  app: App,
  { resourceLeases: { work } }: ApiDeps,
  command: 'complete' | 'put-back',
  operationId: string,
  summary: string,
): void {
  app.post(
    `/claims/${command}`,
    {
      bodyLimit: CLAIMS_BODY_MAX_BYTES,
      schema: {
        operationId,
        tags: ['work'],
        summary,
        body: z.strictObject({ claims: Claims }),
        response: { 200: Results },
      },
      config: { roles: ROLES },
    },
    async ({ body: { claims } }) => ({
      results: await (command === 'complete' ? work.complete(claims) : work.putBack(claims)),
    }),
  );
}

function failWork(app: App, { resourceLeases: { work } }: ApiDeps): void {
  app.post(
    '/claims/fail',
    {
      schema: {
        operationId: 'failWork',
        tags: ['work'],
        summary: 'Not done: due again later, or dead when its attempts are used up',
        body: z.strictObject({
          ...Claim.shape,
          error: z.string().max(1_000).meta({ description: 'For people.' }),
          retryInMs: bounded(workBounds.delayMs),
          attemptsMax: bounded(workBounds.attemptsMax),
        }),
        response: { 200: z.object({ refused: Refused, dead: z.boolean() }) },
      },
      config: { roles: ROLES },
    },
    async ({ body: { error, retryInMs, attemptsMax, ...claim } }) =>
      work.fail(claim, { error, retryInMs, attemptsMax }),
  );
}
