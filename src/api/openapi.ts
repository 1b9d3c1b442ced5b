/** The API's description, made from the routes themselves: their schemas, roles and problems. */
import { STATUS_CODES } from 'node:http';
import { isDeepStrictEqual } from 'node:util';
import swagger from '@fastify/swagger';
import type { SwaggerTransform, SwaggerTransformObject } from '@fastify/swagger';
import { createJsonSchemaTransform, createJsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { z } from 'zod';
import packageJson from '../../package.json' with { type: 'json' };
import type { App } from './context.ts';
import { problemDocument, problems, problemTable, PROBLEM_TYPE, type ProblemCode } from './problem.ts';

type ZodToJsonConfig = NonNullable<NonNullable<Parameters<typeof createJsonSchemaTransform>[0]>['zodToJsonConfig']>;

const description = `Cabrank leases a driver for a few seconds, offers the ride, and turns an accepted offer into an assignment.

Tokens are JWTs (HS256) with the claims \`sub\`, \`role\` (\`rider\`, \`driver\`, \`service\` or \`ops\`) and \`exp\`. What isn't one's own is refused with 403: \`wrong_rider\`, \`wrong_driver\`; a call that isn't for one's role with \`forbidden\`.

Bodies are JSON objects without unknown fields. Errors are RFC 9457 problem documents with a stable \`code\`; those with \`Retry-After\` may be answered otherwise then.

${problemTable()}`;

const tags = [
  { name: 'rides', description: 'What riders ask for, and what becomes of it.' },
  { name: 'offers', description: 'What drivers are asked.' },
  { name: 'drivers', description: 'Profiles and shifts.' },
  { name: 'regions', description: 'Cities and the policies they run under.' },
  { name: 'leases', description: 'Anything that only one may hold at a time.' },
  { name: 'webhooks', description: 'Where what happens to rides is told.' },
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
    held: z
      .array(z.object({ resource: z.string(), holder: z.string(), fence: z.int(), forMs: z.int().nullable() }))
      .optional()
      .meta({ description: 'With `held`: who has which resource, and for how long as far as is known.' }),
  }),
  { id: 'Problem', description: 'RFC 9457.' },
);

/** Before the first route: it listens to their registration. */
export async function describeRoutes(app: App): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Cabrank',
        version: packageJson.version,
        description,
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      tags,
      components: { securitySchemes: { bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } } },
    },
    transform: describeRoute,
    transformObject: describeComponents,
  });
}

/** What zod says of numbers and times that readers, and generators of clients, are better off without. */
const readable: ZodToJsonConfig = {
  override({ jsonSchema }) {
    if (jsonSchema.format === 'date-time' || jsonSchema.format === 'uuid') delete jsonSchema.pattern;
    if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
  },
};
const toJsonSchema = createJsonSchemaTransform({ zodToJsonConfig: readable }) as SwaggerTransform;
const addComponents = createJsonSchemaTransformObject({ zodToJsonConfig: readable });

const describeRoute: SwaggerTransform = (input) => {
  const { answers, roles, problems: own = [], idempotent = false } = input.route.config ?? {};
  const described = { ...input, schema: { ...input.schema, ...(answers && { response: answers }) } };
  const { schema, url } = toJsonSchema(described);
  if (schema === undefined || schema.hide === true) return { schema, url };
  const success = Object.entries(schema.response ?? { 200: {} }).map(([status, answer]) => [
    status,
    { ...answer, 'x-response-description': STATUS_CODES[status], ...(idempotent && { headers: replayedHeader }) },
  ]);
  const response = Object.fromEntries(success);
  if (roles === undefined) return { url, schema: { ...schema, response } };
  const only = `Roles: ${roles.map((role) => `\`${role}\``).join(', ')}.`;
  return {
    url,
    schema: {
      ...schema,
      description: [schema.description, only].filter(Boolean).join('\n\n'),
      security: [{ bearer: [] }],
      response: { ...response, ...problemResponses(problemsOf(own, mayHaveBody(schema, input.route.method))) },
    },
  };
};

/** One that comes with a DELETE counts for nothing, and is read all the same. */
const mayHaveBody = (schema: { readonly body?: unknown }, method: string | readonly string[]): boolean =>
  schema.body !== undefined || [method].flat().includes('DELETE');

const replayedHeader = {
  'Idempotency-Replayed': { type: 'string', enum: ['true'], description: 'Present when the key was used before.' },
};
const retryAfterHeader = { 'Retry-After': { type: 'integer', description: 'Seconds.' } };

const problemsOf = (own: readonly ProblemCode[], hasBody: boolean): ReadonlySet<ProblemCode> =>
  new Set<ProblemCode>([
    'invalid_request',
    ...(hasBody ? (['malformed_json'] as const) : []),
    'token_missing',
    'token_invalid',
    'token_expired',
    'forbidden',
    'too_many_requests',
    ...own,
    ...(hasBody ? (['body_too_large', 'unsupported_media_type'] as const) : []),
    'internal_error',
    'busy',
    'overloaded',
    'no_answer_in_time',
    'database_unavailable',
  ]);

function problemResponses(codes: ReadonlySet<ProblemCode>): Record<string, object> {
  const byStatus = Map.groupBy(codes, (code) => problems[code].status);
  return Object.fromEntries(
    [...byStatus].map(([status, ofStatus]) => [
      status,
      {
        description: `${STATUS_CODES[status]}: ${ofStatus.map((code) => `\`${code}\``).join(', ')}`,
        ...(ofStatus.some((code) => 'retryAfterS' in problems[code]) && { headers: retryAfterHeader }),
        content: {
          [PROBLEM_TYPE]: {
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

interface Operation {
  readonly responses: Record<string, object>;
  readonly requestBody?: { required: boolean; content: { 'application/json': { schema: { properties?: object } } } };
}
interface Document {
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { schemas: Record<string, object>; responses?: Record<string, object> };
}

const describeComponents: SwaggerTransformObject = (input) => {
  const document = addComponents(input) as unknown as Document;
  allowNoBody(document);
  return keepUsedSchemas(shareProblems(document)) as unknown as ReturnType<SwaggerTransformObject>;
};

/** Where nothing can be said, nothing has to be sent. */
function allowNoBody({ paths }: Document): void {
  for (const { requestBody } of Object.values(paths).flatMap((path) => Object.values(path))) {
    const properties = requestBody?.content['application/json'].schema.properties;
    if (properties !== undefined && Object.keys(properties).length === 0) requestBody!.required = false;
  }
}

/** Statuses that refuse with the same codes wherever they appear: said once. */
const SHARED_STATUSES: ReadonlySet<string> = new Set(['401', '413', '415', '429', '500', '503']);

function shareProblems({ paths, components, ...rest }: Document): Document {
  const responses: Record<string, object> = {};
  for (const operation of Object.values(paths).flatMap((path) => Object.values(path))) {
    for (const [status, response] of Object.entries(operation.responses)) {
      if (!SHARED_STATUSES.has(status) || !JSON.stringify(response).includes(PROBLEM_TYPE)) continue;
      const name = STATUS_CODES[status]!.replaceAll(' ', '');
      responses[name] = response;
      operation.responses[status] = { $ref: `#/components/responses/${name}` };
    }
  }
  return { ...rest, paths, components: { ...components, responses } };
}

/** Each shape comes as it goes in (`…Input`) and as it goes out. Those in use are kept; where both say the same, one is. */
function keepUsedSchemas({ components, ...rest }: Document): Document {
  const { schemas: all, ...others } = components;
  const used = new Set<string>();
  const look = (part: unknown): void => {
    for (const [, name] of JSON.stringify(part).matchAll(/"#\/components\/schemas\/([^"]+)"/g)) {
      if (used.has(name!)) continue;
      used.add(name!);
      look(all[name!]);
    }
  };
  look({ ...rest, components: others });
  const plainName = (name: string): string => {
    const plain = name.replace(/Input$/, '');
    return !used.has(plain) || isDeepStrictEqual(all[plain], all[name]) ? plain : name;
  };
  const schemas = Object.fromEntries([...used].sort().map((name) => [plainName(name), all[name]]));
  const text = JSON.stringify({ ...rest, components: { ...others, schemas } });
  return JSON.parse(text.replaceAll(/(?<="#\/components\/schemas\/)[^"]+/g, plainName)) as Document;
}
