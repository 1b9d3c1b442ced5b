import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface HeardRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: unknown;
}

/** Answers one request, or destroys its connection, or lets it wait. */
type Answer = (request: HeardRequest, response: ServerResponse) => void;

/** An HTTP server that says what a test tells it to, and remembers what it was asked. */
export class RestServer implements AsyncDisposable {
  readonly url: string;
  readonly heard: HeardRequest[] = [];
  answer: Answer = (_request, response) => response.writeHead(200).end('{}');
  readonly #http: Server;

  private constructor(http: Server) {
    this.#http = http;
    this.url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
    http.on('request', (request: IncomingMessage, response: ServerResponse) => void this.#hear(request, response));
  }

  static async listen(): Promise<RestServer> {
    const http = createServer();
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
    return new RestServer(http);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#http.closeAllConnections();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  async #hear(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const part of request.setEncoding('utf8')) text += part as string;
    const { method = '', url: path = '', headers } = request;
    const heard = { method, path, headers, body: text === '' ? null : (JSON.parse(text) as unknown) };
    this.heard.push(heard);
    this.answer(heard, response);
  }
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: object,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

/** Gives each answer in turn; the last one stays. */
export function inTurn(...answers: [Answer, ...Answer[]]): Answer {
  let next = 0;
  return (request, response) => answers[Math.min(next++, answers.length - 1)]?.(request, response);
}
