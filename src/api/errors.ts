/** Turns whatever goes wrong into a problem document, in one place: errors of ours, of fastify, of the database. */
import { STATUS_CODES } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { AuthError } from '../auth.ts';
import { Problem } from '../client/problem.ts';
import { isLockTimeout, isUnreachable } from '../database/connection.ts';
import { OverloadedError } from '../leasing/group-commit.ts';
import { NoPlaceError } from '../resource-leases/queue.ts';
import type { Logger } from '../ops/log.ts';
import { ApiProblem, isProblemCode, problemDocument, PROBLEM_TYPE, type ProblemCode } from './problem.ts';

/** An outage fails every request: one line in this time says it as well as thousands. */
const LOG_INTERVAL_MS = 5_000;
/** The database's errors arrive wrapped, by drizzle for one; no chain is longer than this. */
const CAUSES_MAX = 5;

const frameworkCodes: Readonly<Record<string, ProblemCode>> = {
  FST_ERR_CTP_INVALID_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_BODY_TOO_LARGE: 'body_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
};

export function problemOf(error: unknown): ApiProblem {
  if (error instanceof ApiProblem) return error;
  if (error instanceof AuthError) return authProblem(error);
  if (error instanceof Problem && isProblemCode(error.code))
    return new ApiProblem(error.code, error.detail === undefined ? {} : { detail: error.detail });
  if (error instanceof OverloadedError || error instanceof NoPlaceError) return new ApiProblem('overloaded');
  const causes = causesOf(error);
  for (const cause of causes) {
    if (isUnreachable(cause)) return new ApiProblem('database_unavailable');
    // A row that stayed locked, a deadlock, a statement that ran into its deadline: each was rolled back.
    if (isLockTimeout(cause)) return new ApiProblem('busy');
  }
  const { code, statusCode } = (error ?? {}) as { code?: unknown; statusCode?: unknown };
  const known = typeof code === 'string' ? frameworkCodes[code] : undefined;
  if (known !== undefined) return new ApiProblem(known);
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500) return new ApiProblem('bad_request');
  return new ApiProblem('internal_error');
}

/** Answers every request of the app that failed. Only what is wrong on our side is logged, and never what was sent. */
export function createErrorHandler(log: Logger) {
  const report = createReporter(log);
  return (error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply => {
    const problem = problemOf(error);
    // Whoever hung up hears nothing, and is no failure. The socket tells: a request is `destroyed` once its body was read.
    if (problem.status >= 500 && !request.socket.destroyed) report(problem, error, request);
    if (problem.retryAfterS !== undefined) reply.header('retry-after', problem.retryAfterS);
    return reply
      .code(problem.status)
      .headers(problem.headers)
      .header('content-type', PROBLEM_TYPE)
      .serializer(JSON.stringify)
      .send(problem.document());
  };
}

/** The same for what isn't even HTTP, or didn't arrive in time: there is no request yet, only the socket. */
export function answerBrokenRequest(error: { code?: string }, socket: NodeJS.WritableStream & DestroyableSocket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed) return;
  const code = brokenRequestCodes[error.code ?? ''] ?? 'bad_request';
  const document = problemDocument(code);
  const body = JSON.stringify(document);
  if (socket.writable) {
    socket.write(
      `HTTP/1.1 ${document.status} ${STATUS_CODES[document.status]}\r\nConnection: close\r\n` +
        `Content-Type: ${PROBLEM_TYPE}\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
  }
  socket.destroy();
}

interface DestroyableSocket {
  readonly destroyed: boolean;
  destroy(): void;
}

const brokenRequestCodes: Readonly<Record<string, ProblemCode>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
};

function authProblem({ code, message }: AuthError): ApiProblem {
  const challenge = code === 'token_missing' ? 'Bearer' : 'Bearer error="invalid_token"';
  return new ApiProblem(code, { detail: message, headers: { 'www-authenticate': challenge } });
}

function causesOf(error: unknown): unknown[] {
  const causes: unknown[] = [];
  for (let at = error; at instanceof Error && causes.length < CAUSES_MAX; at = at.cause) causes.push(at);
  return causes;
}

/** Logs the first failure of a kind at once, and then how many followed. Errors of our own making are always logged. */
function createReporter(log: Logger) {
  const kinds = new Map<ProblemCode, { loggedAtMs: number; unlogged: number }>();
  return (problem: ApiProblem, error: unknown, request: FastifyRequest): void => {
    const route = `${request.method} ${request.routeOptions.url ?? 'unknown'}`;
    if (problem.code === 'internal_error') {
      log.error({ err: error, route }, 'request failed');
      return;
    }
    const nowMs = performance.now();
    const kind = kinds.get(problem.code) ?? { loggedAtMs: Number.NEGATIVE_INFINITY, unlogged: 0 };
    kinds.set(problem.code, kind);
    kind.unlogged += 1;
    if (nowMs - kind.loggedAtMs < LOG_INTERVAL_MS) return;
    log.warn({ code: problem.code, route, failures: kind.unlogged, reason: reasonOf(error) }, 'requests failed');
    Object.assign(kind, { loggedAtMs: nowMs, unlogged: 0 });
  };
}

const reasonOf = (error: unknown): string => String(causesOf(error).at(-1) ?? error);
