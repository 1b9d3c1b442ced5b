import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { problems } from '../../src/api/problem.ts';
import { openApiDocument } from '../../src/api/server.ts';

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly security?: object[];
  readonly parameters?: { in: string; name: string; required: boolean }[];
  readonly requestBody?: object;
  readonly responses: Record<string, object>;
}
interface Document {
  readonly openapi: string;
  readonly info: { description: string };
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { schemas: Record<string, object>; responses: Record<string, object> };
}

const document = (await openApiDocument()) as Document;
const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method, name: `${method} ${path}`, operation })),
);

test('the committed description is the one the routes give', async () => {
  const committed = await readFile(new URL('../../docs/openapi.json', import.meta.url), 'utf8');
  expect(committed, 'run: node src/main.ts openapi > docs/openapi.json').toBe(`${JSON.stringify(document, null, 2)}\n`);
});

test('every route of the contract is described, under its own name', () => {
  expect(operations.map(({ name }) => name).sort()).toEqual(
    [
      'delete /v1/webhooks/{id}',
      'get /healthz',
      'get /v1/webhooks',
      'get /v1/webhooks/{id}',
      'get /v1/webhooks/{id}/dead',
      'post /v1/webhooks/{id}/redeliver',
      'put /v1/webhooks/{id}',
      'put /v1/riders/{id}/blocks/{driverId}',
      'delete /v1/riders/{id}/blocks/{driverId}',
      'get /v1/riders/{id}/blocks',
      'post /v1/queues/{queue}/items',
      'post /v1/queues/{queue}/next',
      'post /v1/claims/complete',
      'post /v1/claims/fail',
      'post /v1/claims/heartbeat',
      'post /v1/claims/put-back',
      'get /metrics',
      'get /openapi.json',
      'get /readyz',
      'get /v1/drivers',
      'get /v1/drivers/{id}',
      'get /v1/leases',
      'get /v1/leases/{resource}',
      'get /v1/leases/{resource}/terms',
      'get /v1/offers/{id}',
      'get /v1/regions/{id}',
      'get /v1/regions/{id}/policy',
      'get /v1/rides',
      'get /v1/rides/{id}',
      'get /v1/rides/{id}/timeline',
      'post /v1/drivers/{id}/location',
      'post /v1/drivers/{id}/offline',
      'post /v1/drivers/{id}/online',
      'post /v1/leases',
      'post /v1/leases/break',
      'post /v1/leases/confirm',
      'post /v1/leases/release',
      'post /v1/leases/renew',
      'post /v1/offers/{id}/confirm',
      'post /v1/offers/{id}/decline',
      'post /v1/offers/{id}/received',
      'post /v1/offers/{id}/release',
      'post /v1/rides',
      'post /v1/rides/{id}/arrive',
      'post /v1/rides/{id}/assign',
      'post /v1/rides/{id}/unassign',
      'post /v1/rides/{id}/reassign',
      'post /v1/rides/{id}/hold',
      'post /v1/rides/{id}/release',
      'post /v1/rides/{id}/cancel',
      'post /v1/rides/{id}/complete',
      'post /v1/rides/{id}/offers',
      'post /v1/rides/{id}/start',
      'put /v1/drivers/{id}',
      'put /v1/regions/{id}',
      'put /v1/regions/{id}/policy',
      'get /v1/regions/{id}/policy/canary',
      'put /v1/regions/{id}/policy/canary',
      'delete /v1/regions/{id}/policy/canary',
      'post /v1/regions/{id}/policy/canary/promote',
    ].sort(),
  );
  const ids = operations.map(({ operation }) => operation.operationId);
  expect(new Set(ids).size).toBe(ids.length);
});

test('every reference leads somewhere, and every component is referred to', () => {
  const references = [...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/(\w+)"/g)].map(
    ([, kind, name]) => `${kind}/${name}`,
  );
  const components = Object.entries(document.components)
    .filter(([kind]) => kind !== 'securitySchemes')
    .flatMap(([kind, named]) => Object.keys(named).map((name) => `${kind}/${name}`));
  expect([...new Set(references)].sort()).toEqual(components.sort());
});

test.each(operations)('$name says what it takes and how it answers', ({ path, operation, method }) => {
  expect(operation.summary).not.toBe('');
  const named = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
  const inPath = (operation.parameters ?? []).filter((parameter) => parameter.in === 'path');
  expect(inPath.map(({ name }) => name)).toEqual(named);
  expect(Object.keys(operation.responses).some((status) => status.startsWith('2'))).toBe(true);
  if (!path.startsWith('/v1/')) return;
  expect(operation.security).toEqual([{ bearer: [] }]);
  expect(Object.keys(operation.responses)).toEqual(expect.arrayContaining(['400', '401', '403', '500', '503']));
  if (method !== 'get' && method !== 'delete') expect(operation.requestBody).toBeDefined();
});

test('every code of the table is documented', () => {
  for (const code of Object.keys(problems)) expect(document.info.description).toContain(`\`${code}\``);
  expect(document.openapi).toBe('3.1.0');
});
