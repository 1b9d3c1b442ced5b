/** Every way a request can be refused: one table for the answers, the API's description and its reader. */
import { STATUS_CODES } from 'node:http';
import type { RefusalCode } from '../../domain/refusals.ts';
import type { AuthErrorCode } from '../auth.ts';

interface Kind {
  readonly status: number;
  readonly title: string;
  /** Seconds after which the same request may be answered otherwise. */
  readonly retryAfterS?: number;
}

/** Codes are stable; titles are for people. Ordered by status. */
export const problems = {
  invalid_request: { status: 400, title: 'A part of the request has the wrong form; `errors` names each' },
  malformed_json: { status: 400, title: 'The body isn’t valid JSON' },
  bad_request: { status: 400, title: 'The request can’t be read' },
  token_missing: { status: 401, title: 'A bearer token is needed' },
  token_invalid: { status: 401, title: 'The token isn’t valid' },
  token_expired: { status: 401, title: 'The token has expired' },
  forbidden: { status: 403, title: 'This role may not make this call' },
  wrong_rider: { status: 403, title: 'The ride is another rider’s' },
  wrong_driver: { status: 403, title: 'The driver, ride or offer is another driver’s' },
  wrong_token: { status: 403, title: 'The lease token isn’t this offer’s' },
  route_not_found: { status: 404, title: 'There is no such path' },
  region_not_found: { status: 404, title: 'There is no such region' },
  ride_not_found: { status: 404, title: 'There is no such ride' },
  driver_not_found: { status: 404, title: 'There is no such driver in this region' },
  offer_not_found: { status: 404, title: 'There is no such offer' },
  webhook_not_found: { status: 404, title: 'There is no such webhook' },
  canary_not_found: { status: 404, title: 'No policy is being tried in this region' },
  lease_not_found: { status: 404, title: 'Nobody ever leased this resource' },
  method_not_allowed: { status: 405, title: 'The path doesn’t know this method; `Allow` lists those it does' },
  request_timeout: { status: 408, title: 'The request took too long to arrive' },
  ride_cancelled: { status: 409, title: 'The ride was cancelled' },
  ride_taken: { status: 409, title: 'Another driver has the ride' },
  lease_lost: { status: 409, title: 'The term ended otherwise, or a newer one has begun' },
  lease_expired: { status: 409, title: 'The term is over' },
  held: {
    status: 409,
    title: 'Others have the resource, or are before you in the queue; `held` tells who and for how long',
  },
  not_held: { status: 409, title: 'Nobody has the resource now' },
  ride_not_searching: { status: 409, title: 'The ride isn’t looking for a driver' },
  ride_held: { status: 409, title: 'An operator holds the ride' },
  ride_fully_offered: { status: 409, title: 'The ride has as many offers as its policy allows' },
  ride_in_progress: { status: 409, title: 'The rider is in the car' },
  ride_over: { status: 409, title: 'The ride is over' },
  wrong_phase: { status: 409, title: 'The ride hasn’t reached the step before this one' },
  driver_blocked: { status: 409, title: 'This rider and this driver aren’t brought together' },
  driver_excluded: { status: 409, title: 'The driver isn’t asked for this ride again' },
  driver_unavailable: { status: 409, title: 'The driver isn’t available' },
  driver_assigned: { status: 409, title: 'The driver has a ride to finish' },
  driver_not_offline: { status: 409, title: 'A driver changes region only while offline' },
  driver_held: { status: 409, title: 'The vehicle class changes only while no ride holds the driver' },
  regions_exhausted: { status: 409, title: 'All 4,095 numbers of regions are in use' },
  policy_version_changed: { status: 409, title: 'The policy has another version than the one this change is based on' },
  body_too_large: { status: 413, title: 'The body is too long' },
  unsupported_media_type: { status: 415, title: 'Bodies are application/json' },
  idempotency_key_reused: { status: 422, title: 'The idempotency key was used for another request' },
  pickup_outside_region: { status: 422, title: 'The pickup lies outside the region' },
  policy_invalid: { status: 422, title: 'The region can’t run under this policy; `errors` names each setting' },
  too_many_requests: { status: 429, title: 'This caller asks more often than it may; ask later', retryAfterS: 1 },
  headers_too_large: { status: 431, title: 'The headers are too long' },
  internal_error: { status: 500, title: 'Something is wrong on our side' },
  busy: { status: 503, title: 'Others hold the same rows; nothing was done, ask again', retryAfterS: 1 },
  overloaded: { status: 503, title: 'More is asked than can be answered; nothing was done, ask again', retryAfterS: 1 },
  no_answer_in_time: {
    status: 503,
    title: 'No answer in time; whether it took effect isn’t known, ask again',
    retryAfterS: 1,
  },
  database_unavailable: { status: 503, title: 'The database can’t be reached; ask again', retryAfterS: 1 },
} as const satisfies Record<string, Kind> & Record<AnswerableRefusal | AuthErrorCode, Kind>;

/** The media type of every refusal. */
export const PROBLEM_TYPE = 'application/problem+json';

type AnswerableRefusal = RefusalCode | 'idempotency_key_reused';
export type ProblemCode = keyof typeof problems;

export const isProblemCode = (code: string): code is ProblemCode => Object.hasOwn(problems, code);

export interface FieldError {
  /** Where in the request: `body.pickup.lat`. */
  readonly path: string;
  readonly message: string;
}

/** RFC 9457, with a stable `code`. */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly code: ProblemCode;
  readonly detail?: string;
  readonly errors?: readonly FieldError[];
  /** What a code tells besides. */
  readonly [member: string]: unknown;
}

/** Thrown by whatever answers a request, to answer it so. */
export class ApiProblem extends Error {
  override name = 'ApiProblem';
  readonly code: ProblemCode;
  readonly detail: string | undefined;
  readonly errors: readonly FieldError[] | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly members: Readonly<Record<string, unknown>>;

  constructor(
    code: ProblemCode,
    said: {
      detail?: string;
      errors?: readonly FieldError[];
      headers?: Record<string, string>;
      members?: Record<string, unknown>;
    } = {},
  ) {
    super(code);
    this.code = code;
    this.detail = said.detail;
    this.errors = said.errors;
    this.headers = said.headers ?? {};
    this.members = said.members ?? {};
  }

  get status(): number {
    return problems[this.code].status;
  }

  get retryAfterS(): number | undefined {
    const kind: Kind = problems[this.code];
    return kind.retryAfterS;
  }

  document(): ProblemDocument {
    return { ...problemDocument(this.code, this.detail, this.errors), ...this.members };
  }
}

export function problemDocument(code: ProblemCode, detail?: string, errors?: readonly FieldError[]): ProblemDocument {
  return {
    type: `urn:cabrank:problem:${code}`,
    title: problems[code].title,
    status: problems[code].status,
    code,
    ...(detail !== undefined && { detail }),
    ...(errors !== undefined && { errors }),
  };
}

/** The answer of a transition, once it is known that it wasn't refused. */
export function accepted<Answer extends { readonly refused: AnswerableRefusal | null }>(answer: Answer): Answer {
  if (answer.refused !== null) throw new ApiProblem(answer.refused);
  return answer;
}

/** The table as Markdown, for the API's description. */
export function problemTable(): string {
  const rows = Object.entries(problems).map(
    ([code, { status, title }]) => `| \`${code}\` | ${status} ${STATUS_CODES[status]} | ${title} |`,
  );
  return ['| code | status | meaning |', '|---|---|---|', ...rows].join('\n');
}
