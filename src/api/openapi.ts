/** The API's description, made from the routes themselves: their schemas, roles and problems. */
import { STATUS_CODES } from 'node:http';
import swagger from '@fastify/swagger';
import type { SwaggerTransform, SwaggerTransformObject } from '@fastify/swagger';
import { createJsonSchemaTransform, createJsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { z } from 'zod';
import packageJson from '../../package.json' with { type: 'json' };
import type { App } from './context.ts';
import { problemDocument, problems, problemTable, type ProblemCode } from './problem.ts';

const description = `Cabrank leases a driver for a few seconds, offers the ride, and turns an accepted offer into an assignment.

Tokens are JWTs (HS256) with the claims \`sub\`, \`role\` (\`rider\`, \`driver\`, \`service\` or \`ops\`) and \`exp\`. What isn't one's own is refused with 403: \`wrong_rider\`, \`wrong_driver\`; a call that isn't for one's role with \`forbidden\`.

Bodies are JSON objects without unknown fields. Errors are RFC 9457 problem documents with a stable \`code\`; those with \`Retry-After\` may be answered otherwise then.

${problemTable()}`;

const tags = [
  { name: 'rides', description: 'What riders ask for, and what becomes of it.' },
  { name: 'offers', description: 'What drivers are asked.' },
  { name: 'drivers', description: 'Profiles and shifts.' },
  { name: 'regions', description: 'Cities and the policies they run under.' },
  { name: 'service', description: 'About the service itself; open to all.' },
];

z.globalRegistry.add(
  z.object({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.string().meta({ description: 'Stable; what to decide on.' }),
    detail: z.string().optional(),
    errors: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
  }),
  { id: 'Problem', description: 'RFC 9457.' },
);

/** Before the first route: it listens to their registration. */
export async function describeRoutes(app: App): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Cabrank', version: packageJson.version, description, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
      tags,
      components: { securitySchemes: { bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } } },
    },
    transform: describeRoute,
    transformObject: describeComponents,
  });
}

const toJsonSchema = createJsonSchemaTransform({});

const describeRoute: SwaggerTransform = (input) => {
  const { answers, roles, problems: own = [], idempotent = false } = input.route.config ?? {};
  const described = { ...input, schema: { ...input.schema, ...(answers && { response: answers }) } };
  const { schema, url } = (toJsonSchema as SwaggerTransform)(described);
  if (schema === undefined || schema.hide === true || roles === undefined) return { schema, url };
  const hasBody = schema.body !== undefined;
  const codes = new Set<ProblemCode>([
    'invalid_request',
    'token_missing',
    'token_invalid',
    'token_expired',
    'forbidden',
    ...own,
    ...(hasBody ? (['malformed_json', 'body_too_large', 'unsupported_media_type'] as const) : []),
    'internal_error',
    'busy',
    'overloaded',
    'no_answer_in_time',
    'database_unavailable',
  ]);
  const success = Object.entries(schema.response ?? {}).map(([status, answer]) => [
    status,
    { ...answer, description: STATUS_CODES[status], ...(idempotent && { headers: replayedHeader }) },
  ]);
  return {
    url,
    schema: {
      ...schema,
      description: [schema.description, `Roles: ${roles.map((role) => `\`${role}\``).join(', ')}.`].filter(Boolean).join('\n\n'),
      security: [{ bearer: [] }],
      response: { ...Object.fromEntries(success), ...problemResponses(codes) },
    },
  };
};

const replayedHeader = {
  'Idempotency-Replayed': { type: 'string', enum: ['true'], description: 'Present when the key was used before.' },
};
const retryAfterHeader = { 'Retry-After': { type: 'integer', description: 'Seconds.' } };

function problemResponses(codes: ReadonlySet<ProblemCode>): Record<string, object> {
  const byStatus = Map.groupBy(codes, (code) => problems[code].status);
  return Object.fromEntries(
    [...byStatus].map(([status, ofStatus]) => [
      status,
      {
        description: `${STATUS_CODES[status]}: ${ofStatus.map((code) => `\`${code}\``).join(', ')}`,
        ...(status === 503 && { headers: retryAfterHeader }),
        content: {
          'application/problem+json': {
            schema: {
              allOf: [{ $ref: '#/components/schemas/Problem' }],
              properties: { code: { type: 'string', enum: ofStatus } },
            },
            examples: Object.fromEntries(ofStatus.map((code) => [code, { value: problemDocument(code) }])),
          },
        },
      },
    ]),
  );
}

const addComponents = createJsonSchemaTransformObject({});

/** Each shape is offered as it goes in and as it comes out; only those that a route refers to are kept. */
const describeComponents: SwaggerTransformObject = (input) => {
  const document = addComponents(input) as { components: { schemas: Record<string, object> } };
  const all = document.components.schemas;
  const used = new Set<string>();
  const look = (part: unknown): void => {
    for (const [, name] of JSON.stringify(part).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      if (used.has(name!)) continue;
      used.add(name!);
      look(all[name!]);
    }
  };
  look({ ...document, components: {} });
  const schemas = Object.fromEntries([...used].sort().map((name) => [name, all[name]!]));
  return { ...document, components: { ...document.components, schemas } } as ReturnType<SwaggerTransformObject>;
};
