/** What the API's own description says there is to attack: read from it, so that a new route can't be forgotten. */
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { TOKEN_ROLES, type Role } from '../../src/auth.ts';
import type { Method } from '../api/harness.ts';

export interface Schema {
  readonly $ref?: string;
  readonly type?: 'string' | 'integer' | 'number' | 'boolean' | 'null' | 'array' | 'object';
  readonly format?: string;
  readonly pattern?: string;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly exclusiveMinimum?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
}

export interface Parameter {
  readonly in: 'path' | 'query' | 'header';
  readonly name: string;
  readonly required?: boolean;
  readonly schema: Schema;
}

export interface Operation {
  readonly name: string;
  readonly method: Method;
  /** With its parameters in braces. */
  readonly path: string;
  /** Who may call it. */
  readonly roles: readonly Role[];
  readonly parameters: readonly Parameter[];
  readonly body: Schema | null;
}

interface DescribedOperation {
  readonly operationId: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: { readonly 'application/json': { readonly schema: Schema } } };
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

const document = JSON.parse(
  readFileSync(new URL('../../docs/openapi.json', import.meta.url), 'utf8'),
) as unknown as Document;

/** Every operation below /v1: all that need a token. */
export const operations: readonly Operation[] = Object.entries(document.paths)
  .filter(([path]) => path.startsWith('/v1/'))
  .flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => ({
      name: described.operationId,
      method: method.toUpperCase() as Method,
      path,
      roles: rolesIn(described.description ?? ''),
      parameters: described.parameters ?? [],
      body: described.requestBody?.content['application/json'].schema ?? null,
    })),
  );

function rolesIn(description: string): Role[] {
  const said = /Roles: (.*)\.$/.exec(description)?.[1] ?? '';
  return TOKEN_ROLES.filter((role) => said.includes(`\`${role}\``));
}

export const resolved = (schema: Schema): Schema =>
  schema.$ref === undefined ? schema : document.components.schemas[schema.$ref.split('/').at(-1)!]!;

/** Whether the description allows the value there. */
export function judgeOf(schema: Schema): (value: unknown) => boolean {
  const bundled = JSON.stringify({ ...schema, $defs: document.components.schemas });
  const compiled = z.fromJSONSchema(
    JSON.parse(bundled.replaceAll('#/components/schemas/', '#/$defs/')) as z.core.JSONSchema.JSONSchema,
  );
  return (value) => compiled.safeParse(value).success;
}
