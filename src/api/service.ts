/** What is open to all, below no version: health, metrics, and the API's description of itself. */
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { createStateGauges } from '../ops/health.ts';
import type { ApiDeps, App } from './context.ts';

const ReadinessAnswer = z.object({ ok: z.boolean(), checks: z.record(z.string(), z.string()) });
const RETRY_AFTER_S = 1;
/** Everything comes from here. The plugin's own policy would have browsers ask for https, which we don't speak. */
const PAGE_POLICY =
  "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'";

export function opsRoutes(app: App, deps: ApiDeps): void {
  health(app, deps);
  metrics(app, deps);
}

export async function documentationRoutes(app: App): Promise<void> {
  description(app);
  await app.register(swaggerUi, { routePrefix: '/docs', staticCSP: PAGE_POLICY, uiConfig: { deepLinking: true } });
}

function health(app: App, { readiness }: ApiDeps): void {
  app.get(
    '/healthz',
    {
      schema: {
        operationId: 'getHealth',
        tags: ['service'],
        summary: 'The process is up',
        response: { 200: z.object({ ok: z.literal(true) }) },
      },
    },
    () => ({ ok: true as const }),
  );
  app.get(
    '/readyz',
    {
      schema: {
        operationId: 'getReadiness',
        tags: ['service'],
        summary: 'The process can do its work',
        response: { 200: ReadinessAnswer, 503: ReadinessAnswer },
      },
    },
    async (_request, reply) => {
      const answer = await readiness();
      if (!answer.ok) reply.header('retry-after', RETRY_AFTER_S);
      return reply.code(answer.ok ? 200 : 503).send(answer);
    },
  );
}

function metrics(app: App, deps: ApiDeps): void {
  const { registry } = deps.metrics;
  const collectStates = createStateGauges(deps.database, deps.metrics);
  app.get(
    '/metrics',
    {
      schema: {
        operationId: 'getMetrics',
        tags: ['service'],
        summary: 'Metrics, for Prometheus',
        produces: ['text/plain'],
      },
    },
    async (_request, reply) => {
      await collectStates();
      return sendText(reply, registry.contentType, await registry.metrics());
    },
  );
}

function description(app: App): void {
  let document: string | null = null;
  app.get(
    '/openapi.json',
    { schema: { operationId: 'getOpenApi', tags: ['service'], summary: 'This description' } },
    (_request, reply) => {
      document ??= JSON.stringify(app.swagger());
      return sendText(reply, 'application/json; charset=utf-8', document);
    },
  );
}

const sendText = (reply: FastifyReply, contentType: string, text: string): FastifyReply =>
  reply.header('content-type', contentType).send(text);
