/** Requests as the API's description has them, and spoiled ones. */
import fc from 'fast-check';
import type { Method } from '../api/harness.ts';
import { resolved, type Operation, type Parameter, type Schema } from './operations.ts';

export interface FuzzRequest {
  readonly method: Method;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** As it is sent; undefined: none. */
  readonly body: string | undefined;
  readonly type: string;
}

/** Values that lead somewhere, by the name of the field or parameter they are for. */
export type Known = Readonly<Record<string, readonly unknown[]>>;

/** What breaks programs: half characters, NULs, names that every object has, numbers beyond all numbers, depth. */
const texts = [
  '',
  ' ',
  '\0',
  'a\0b',
  '\ud800',
  'x\udfff',
  '💥'.repeat(70),
  'e\u0301',
  '\u202e',
  '__proto__',
  'constructor',
  '../../etc',
  '%00',
  "'; drop table rides; --",
  '\\x',
  'y'.repeat(5_000),
];
const numbers = [0, -0, -1, 0.5, 5e-324, 1e-46, 1e39, 1.7976931348623157e308, 2 ** 31, 2 ** 53, -(2 ** 63), 2 ** 64];
const times = ['0000-01-01T00:00:00Z', '9999-12-31T23:59:59.999Z', `2026-11-21T08:15:30.${'1'.repeat(200)}Z`];
const deep = (levels: number): unknown => {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = level % 2 === 0 ? [value] : { a: value };
  return value;
};
const junk: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(null, true, [], {}, [[]], deep(50), deep(2_000), ...texts, ...numbers, ...times),
  fc.jsonValue(),
);
const OPTIONAL_MAX = 3;
/** Any JSON, with what is hard to keep among it. */
const anyJson = fc.oneof(
  fc.jsonValue(),
  fc.constantFrom<unknown>(...texts, ...numbers, { '\0': 1 }, { '\ud800': '\0' }, deep(50), deep(2_000)),
);

function text(schema: Schema): fc.Arbitrary<string> {
  const { minLength = 0, maxLength = 300 } = schema;
  if (schema.format === 'uuid') return fc.uuid();
  if (schema.format === 'uri') return fc.oneof(fc.webUrl(), fc.constant('http://127.0.0.1:1/\u0000'));
  if (schema.format === 'date-time')
    return fc.oneof(
      fc.date({ noInvalidDate: true }).map((date) => date.toISOString()),
      fc.constantFrom(...times),
    );
  if (schema.pattern !== undefined) return fc.stringMatching(new RegExp(schema.pattern));
  return fc.oneof(
    fc.string({ unit: 'binary', minLength, maxLength }),
    fc.constantFrom(...texts.filter(({ length }) => length >= minLength && length <= maxLength)),
  );
}

const number = ({ type, minimum, maximum, exclusiveMinimum }: Schema): fc.Arbitrary<number> =>
  type === 'integer'
    ? fc.maxSafeInteger().map((any) => Math.min(Math.max(any, minimum ?? any), maximum ?? any))
    : fc.double({
        noNaN: true,
        noDefaultInfinity: true,
        min: minimum ?? exclusiveMinimum ?? -1e300,
        minExcluded: minimum === undefined && exclusiveMinimum !== undefined,
        max: maximum ?? 1e300,
      });

/** Values that the description allows there; known ones three times in four. */
export function valueOf(reference: Schema, known: Known, name = ''): fc.Arbitrary<unknown> {
  const values = known[name];
  const any = anyValueOf(resolved(reference), known, name);
  return values === undefined ? any : fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...values) }, any);
}

function anyValueOf(schema: Schema, known: Known, name: string): fc.Arbitrary<unknown> {
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map((each) => valueOf(each, known)));
  switch (schema.type) {
    case 'string':
      return text(schema);
    case 'integer':
      return fc.oneof(number(schema), fc.integer({ min: schema.minimum ?? 0, max: schema.maximum ?? 1_000 }));
    case 'number':
      return number(schema);
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    case 'array': {
      const { minItems = 0, maxItems = 10 } = schema;
      return fc.array(valueOf(schema.items ?? {}, known, name), {
        minLength: minItems,
        maxLength: Math.min(maxItems, 5),
      });
    }
    case 'object': {
      const { properties = {}, required = [] } = schema;
      const values = Object.fromEntries(
        Object.entries(properties).map(([field, each]) => [field, valueOf(each, known, field)]),
      );
      const optional = Object.keys(properties).filter((field) => !required.includes(field));
      // Few at a time: of many, two would often exclude each other.
      return fc
        .subarray(optional, { maxLength: Math.min(optional.length, OPTIONAL_MAX) })
        .chain((some) =>
          fc.record(Object.fromEntries([...required, ...some].map((field) => [field, values[field]!] as const))),
        );
    }
    default:
      return anyJson;
  }
}

const asJson = (body: unknown): string | undefined => (body === undefined ? undefined : JSON.stringify(body));

/** A request that the description allows. */
export function requestFor(operation: Operation, known: Known): fc.Arbitrary<FuzzRequest> {
  const { method, path, parameters, body } = operation;
  const parts = parameters.map((parameter) => {
    const any = valueOf(parameter.schema, known, parameter.in === 'path' ? pathName(path, parameter) : parameter.name);
    return parameter.required === true || parameter.in === 'path' ? any : fc.option(any, { nil: undefined, freq: 2 });
  });
  const bodies = body === null ? fc.constant(undefined) : valueOf(body, known);
  return fc.tuple(bodies, ...parts).map(([content, ...values]) => {
    const given = parameters.map((parameter, i) => [parameter, values[i]] as const);
    return {
      method,
      path: fill(path, given),
      headers: Object.fromEntries(
        given.flatMap(([{ in: place, name }, value]) =>
          place === 'header' && value !== undefined ? [[name, asText(value)]] : [],
        ),
      ),
      body: asJson(content),
      type: 'application/json',
    };
  });
}

/** In paths, queries and headers. */
const asText = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

/** Ids in paths are known by what they are of: `rides.id`. */
const pathName = (path: string, { name }: Parameter): string => (name === 'id' ? `${path.split('/')[2]}.id` : name);

function fill(path: string, given: readonly (readonly [Parameter, unknown])[]): string {
  const query = new URLSearchParams();
  let filled = path;
  for (const [{ in: place, name }, value] of given) {
    if (place === 'path') filled = filled.replace(`{${name}}`, () => encoded(asText(value)));
    else if (place === 'query' && value !== undefined) query.append(name, asText(value));
  }
  return query.size === 0 ? filled : `${filled}?${query.toString()}`;
}

/** `encodeURIComponent` refuses halves of characters; a client that doesn't sends what stands for them. */
const encoded = (value: string): string =>
  /^\.{1,2}$/.test(value) ? '%2e' : encodeURIComponent(value.toWellFormed()) || '%20';

/** A request that something is wrong with: not always more than the description allows. */
export const spoiledRequestFor = (operation: Operation, known: Known): fc.Arbitrary<FuzzRequest> =>
  requestFor(operation, known).chain((request) =>
    fc.oneof(
      { weight: 6, arbitrary: fc.tuple(fc.nat(), junk).map(([at, value]) => withValue(request, at, value)) },
      { weight: 1, arbitrary: fc.nat().map((at) => withoutField(request, at)) },
      { weight: 1, arbitrary: junk.map((value) => withField(request, 'unknown', value)) },
      { weight: 1, arbitrary: junk.map((value) => ({ ...request, body: JSON.stringify(value) })) },
      {
        weight: 2,
        arbitrary: fc.constantFrom(...brokenTexts).map((spoil) => ({ ...request, body: spoil(request.body ?? '{}') })),
      },
      {
        weight: 1,
        arbitrary: fc
          .constantFrom(
            'text/plain',
            'text/xml',
            'application/x-www-form-urlencoded',
            'multipart/form-data; boundary=x',
            'application/json; charset=utf-7',
            '',
          )
          .map((type) => ({ ...request, type, body: request.body ?? 'x' })),
      },
      {
        weight: 1,
        arbitrary: fc.tuple(fc.string(), fc.string()).map(([name, value]) => ({
          ...request,
          path: `${request.path}${request.path.includes('?') ? '&' : '?'}${encodeURIComponent(name.toWellFormed())}=${encodeURIComponent(value.toWellFormed())}`,
        })),
      },
      {
        weight: 1,
        arbitrary: fc.constantFrom(...texts).map((value) => ({
          ...request,
          path: request.path.replace(/(?<=^\/v1\/\w+\/)[^/?]+/, () => encoded(value)),
        })),
      },
    ),
  );

const brokenTexts: readonly ((body: string) => string)[] = [
  (body) => body.slice(0, -1),
  (body) => `${body}}`,
  (body) => `\ufeff${body}`,
  () => '',
  () => '\0',
  () => '{"a":1e999}',
  () => '{"__proto__":{"role":"ops"}}',
  () => '{"constructor":{"prototype":{}}}',
  () => '['.repeat(8_000),
  () => `${'['.repeat(7_000)}${']'.repeat(7_000)}`,
  () => `{"a":"${'y'.repeat(2_000_000)}"}`,
  // The same key twice: the last counts, and is junk.
  (body) => body.replace(/^\{"([^"]+)":/, '{"$1":null,"$1":{},"$1":'),
  (body) => body.replace(/^\{("[^"]+"):(.*)\}$/s, '{$1:$2,$1:[]}'),
  (body) => body.replaceAll(/:-?\d+(\.\d+)?/g, ':1e400'),
  (body) => body.replaceAll(/:-?\d+(\.\d+)?/g, ':123456789012345678901234567890'),
];

type Tree = Record<string, unknown>;

/** The body with the value at one of its places. */
function withValue(request: FuzzRequest, at: number, value: unknown): FuzzRequest {
  if (request.body === undefined) return { ...request, body: JSON.stringify(value) };
  const body = JSON.parse(request.body) as unknown;
  const places = placesOf(body);
  if (places.length === 0) return { ...request, body: JSON.stringify(value) };
  const [holder, key] = places[at % places.length]!;
  holder[key] = value;
  return { ...request, body: JSON.stringify(body) };
}

function withoutField(request: FuzzRequest, at: number): FuzzRequest {
  const body = JSON.parse(request.body ?? '{}') as unknown;
  const places = placesOf(body);
  if (places.length === 0) return request;
  const [holder, key] = places[at % places.length]!;
  if (!Array.isArray(holder)) delete holder[key];
  return { ...request, body: JSON.stringify(body) };
}

function withField(request: FuzzRequest, field: string, value: unknown): FuzzRequest {
  const body = JSON.parse(request.body ?? '{}') as unknown;
  return { ...request, body: JSON.stringify({ ...(body as object), [field]: value }) };
}

/** Every field and item within, as who holds it and its name there; no deeper than requests are. */
function placesOf(value: unknown, depth = 0): [Tree, string][] {
  if (typeof value !== 'object' || value === null || depth > 4) return [];
  const holder = value as Tree;
  return Object.keys(holder).flatMap((key) => [[holder, key] as [Tree, string], ...placesOf(holder[key], depth + 1)]);
}
