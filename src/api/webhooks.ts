/** Webhooks over REST: where ride events are sent, and what couldn't be delivered. */
import { z } from 'zod';
import type { Sql } from '../database/connection.ts';
import { isSecret, newSecret } from '../outbox/signature.ts';
import { regionById, type ApiDeps, type App } from './context.ts';
import { ApiProblem } from './problem.ts';
import { cursorOf, pageOf, pageQuery } from './requests.ts';
import { FleetId, FleetIdParams, named, RideEventType, Time } from './schemas.ts';

const URL_MAX_CHARS = 2_000;
const TYPES_MAX = 50;
const REDELIVERED_MAX = 1_000;
const DROPPED_AT_ONCE = 10_000;

const WebhookBody = z.strictObject({
  url: z
    .url({ protocol: /^https?$/, error: 'must be an http:// or https:// address' })
    .max(URL_MAX_CHARS)
    .refine((address) => !/[\p{C}\s]/u.test(address), 'must hold no space and no control character')
    .meta({ examples: ['https://backend.example/cabrank'] }),
  secret: z
    .string()
    .refine(isSecret, 'must be whsec_ and 24–64 bytes in base64')
    .optional()
    .meta({ description: 'Signs each delivery. Unless given, one is made; or the known one is kept.' }),
  regionId: FleetId.nullable().optional().meta({ description: 'Null: the events of all regions.' }),
  types: z
    .array(RideEventType)
    .min(1)
    .max(TYPES_MAX)
    .nullable()
    .optional()
    .meta({ description: 'Null: events of all types.' }),
});

const Webhook = z
  .object({
    id: FleetId,
    url: z.string(),
    regionId: FleetId.nullable(),
    types: z.array(z.string()).nullable(),
    createdAt: Time,
    updatedAt: Time,
  })
  .meta({ id: 'Webhook', description: 'Where ride events are sent, from its creation on.' });
const NewWebhook = z
  .object({ ...Webhook.shape, secret: z.string().optional().meta({ description: 'Only in the answer that made it.' }) })
  .meta({ id: 'NewWebhook' });

const DeadDelivery = z
  .object({
    key: z.string().meta({ description: 'The event: `RIDE/SEQ`.' }),
    event: z.unknown(),
    attempts: z.int(),
    lastError: z.string().nullable(),
    deadAt: Time,
  })
  .meta({ id: 'DeadDelivery', description: 'An event that couldn’t be delivered.' });

export function webhookRoutes(app: App, deps: ApiDeps): void {
  putWebhook(app, deps);
  getWebhooks(app, deps);
  getWebhook(app, deps);
  deleteWebhook(app, deps);
  getDead(app, deps);
  redeliver(app, deps);
}

function putWebhook(app: App, { database, regions }: ApiDeps): void {
  app.put(
    '/webhooks/:id',
    {
      schema: {
        operationId: 'putWebhook',
        tags: ['webhooks'],
        summary: 'Create a webhook, or change it',
        params: FleetIdParams,
        body: WebhookBody,
        response: { 200: NewWebhook, 201: NewWebhook },
      },
      config: { roles: ['ops'], problems: ['region_not_found'] },
    },
    async ({ params: { id }, body }, reply) => {
      const region = body.regionId == null ? null : (await regionById(regions, body.regionId)).number;
      const made = body.secret ?? newSecret();
      const [row] = await database.cold<{ created: boolean }[]>`
        insert into webhooks as w (id, region, url, secret, types)
        values (${id}, ${region}, ${body.url}, ${made}, ${body.types ?? null}::text[])
        on conflict (id) do update set region = excluded.region, url = excluded.url, types = excluded.types,
          secret = case when ${body.secret === undefined ? 0 : 1}::int = 1 then excluded.secret else w.secret end, updated_at = now()
        returning xmax = 0 as created`;
      const webhook = await findWebhook(database.cold, id);
      const { created } = row!;
      return reply.code(created ? 201 : 200).send({ ...webhook, ...(created && { secret: made }) });
    },
  );
}

function getWebhooks(app: App, { database }: ApiDeps): void {
  app.get(
    '/webhooks',
    {
      schema: {
        operationId: 'listWebhooks',
        tags: ['webhooks'],
        summary: 'All webhooks',
        response: { 200: z.object({ items: z.array(Webhook) }) },
      },
      config: { roles: ['ops'] },
    },
    async () => ({ items: await readWebhooks(database.cold) }),
  );
}

function getWebhook(app: App, { database }: ApiDeps): void {
  app.get(
    '/webhooks/:id',
    {
      schema: {
        operationId: 'getWebhook',
        tags: ['webhooks'],
        summary: 'A webhook, without its secret',
        params: FleetIdParams,
        response: { 200: Webhook },
      },
      config: { roles: ['ops'], problems: ['webhook_not_found'] },
    },
    async ({ params: { id } }) => findWebhook(database.cold, id),
  );
}

function deleteWebhook(app: App, { database }: ApiDeps): void {
  app.delete(
    '/webhooks/:id',
    {
      schema: {
        operationId: 'deleteWebhook',
        tags: ['webhooks'],
        summary: 'Send nothing more',
        description: 'What was queued for it, and what couldn’t be delivered, is gone with it.',
        params: FleetIdParams,
        response: { 200: z.object({ id: FleetId }) },
      },
      config: { roles: ['ops'], problems: ['webhook_not_found'] },
    },
    async ({ params: { id } }) => {
      await findWebhook(database.cold, id);
      await dropDeliveries(database.hot, id);
      const [row] = await database.hot<{ deleted: boolean }[]>`select delete_webhook(${id}) as deleted`;
      if (!row!.deleted) throw new ApiProblem('webhook_not_found');
      return { id };
    },
  );
}

function getDead(app: App, { database }: ApiDeps): void {
  app.get(
    '/webhooks/:id/dead',
    {
      schema: {
        operationId: 'listDeadDeliveries',
        tags: ['webhooks'],
        summary: 'What couldn’t be delivered, the oldest first',
        params: FleetIdParams,
        querystring: z.strictObject(pageQuery(/^\d{1,16}$/)),
        response: { 200: pageOf(DeadDelivery) },
      },
      config: { roles: ['ops'], problems: ['webhook_not_found'] },
    },
    async ({ params: { id }, query: { limit, cursor } }) => {
      await findWebhook(database.cold, id);
      const rows = await database.cold<
        { id: string; key: string; payload: unknown; attempts: number; last_error: string | null; dead_at: Date }[]
      >`select id, key, payload, attempts, last_error, dead_at from work_items
        where queue = ${`cabrank/webhook/${id}`} and dead_at is not null and id > ${cursor ?? '0'}::bigint
        order by id limit ${limit + 1}`;
      const page = rows.slice(0, limit);
      const items = page.map(({ key, payload, attempts, last_error: lastError, dead_at: deadAt }) => ({
        key,
        event: payload,
        attempts,
        lastError,
        deadAt: deadAt.toISOString(),
      }));
      return { items, nextCursor: cursorOf(rows.length > limit ? page.at(-1)!.id : null) };
    },
  );
}

function redeliver(app: App, { database }: ApiDeps): void {
  app.post(
    '/webhooks/:id/redeliver',
    {
      schema: {
        operationId: 'redeliver',
        tags: ['webhooks'],
        summary: 'Try again what couldn’t be delivered',
        description: `All of it, or the events named; up to ${REDELIVERED_MAX} at a time.`,
        params: FleetIdParams,
        body: z
          .strictObject({
            keys: z
              .array(named({ min: 1, max: 256 }))
              .min(1)
              .max(100)
              .optional(),
          })
          .optional(),
        response: { 200: z.object({ revived: z.int() }) },
      },
      config: { roles: ['ops'], problems: ['webhook_not_found'] },
    },
    async ({ params: { id }, body }) => {
      await findWebhook(database.cold, id);
      const [row] = await database.hot<{ revived: number }[]>`
        select revive_work(${`cabrank/webhook/${id}`}, ${body?.keys ?? null}::text[], ${REDELIVERED_MAX}::int) as revived`;
      return { revived: row!.revived };
    },
  );
}

/** All but what somebody is busy with: there may be hundreds of thousands, and a statement has a deadline. */
async function dropDeliveries(sql: Sql, id: string): Promise<void> {
  for (;;) {
    const [row] = await sql<{ dropped: number }[]>`select drop_deliveries(${id}, ${DROPPED_AT_ONCE}::int) as dropped`;
    if (row!.dropped < DROPPED_AT_ONCE) return;
  }
}

type WebhookRecord = z.infer<typeof Webhook>;

async function readWebhooks(sql: Sql, id: string | null = null): Promise<WebhookRecord[]> {
  const rows = await sql<(Omit<WebhookRecord, 'createdAt' | 'updatedAt'> & { createdAt: Date; updatedAt: Date })[]>`
    select w.id, w.url, r.id as "regionId", w.types, w.created_at as "createdAt", w.updated_at as "updatedAt"
    from webhooks w left join regions r on r.number = w.region
    where ${id}::text is null or w.id = ${id} order by w.id`;
  return rows.map((row) => ({
    ...row,
    createdAt: row.createdAt.toISOString(),
    updatedAt: row.updatedAt.toISOString(),
  }));
}

async function findWebhook(sql: Sql, id: string): Promise<WebhookRecord> {
  const [webhook] = await readWebhooks(sql, id);
  if (webhook === undefined) throw new ApiProblem('webhook_not_found');
  return webhook;
}
