import { createServer, type Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Server, type Socket } from 'socket.io';

type Handler = (socket: Socket, data: never) => unknown;

/** A socket.io server with the contract's namespace and nothing behind it: each test says what it answers. */
export class DriverServer implements AsyncDisposable {
  readonly url: string;
  readonly sockets: Socket[] = [];
  /** What arrived, in order. */
  readonly heard: { event: string; data: unknown }[] = [];
  /** Called for each new connection. */
  onConnection: (socket: Socket) => void = (socket) =>
    socket.emit('state', { status: 'available', offer: null, assignment: null });
  /** By event: the answer's data, or a `{refused}`; an event without a handler is never answered. */
  readonly handlers: Record<string, Handler> = {};
  readonly #io: Server;

  private constructor(http: HttpServer) {
    this.url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
    this.#io = new Server(http, { transports: ['websocket'] });
    this.#io.of('/drivers').on('connection', (socket) => {
      this.sockets.push(socket);
      socket.onAny((event: string, ...args: unknown[]) => this.#hear(socket, event, args));
      this.onConnection(socket);
    });
  }

  static async listen(port = 0): Promise<DriverServer> {
    const http = createServer();
    await new Promise<void>((resolve) => http.listen(port, '127.0.0.1', resolve));
    return new DriverServer(http);
  }

  /** Turns every connection away. */
  refuse(code: string): void {
    this.#io.of('/drivers').use((_socket, next) => next(Object.assign(new Error(code), { data: { code } })));
  }

  get last(): Socket {
    const socket = this.sockets.at(-1);
    if (socket === undefined) throw new Error('nobody has connected');
    return socket;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#io.close();
  }

  #hear(socket: Socket, event: string, args: unknown[]): void {
    this.heard.push({ event, data: args[0] });
    const acknowledge = args.at(-1);
    const handler = this.handlers[event];
    if (typeof acknowledge !== 'function' || handler === undefined) return;
    const answer = handler(socket, args[0] as never) as { refused?: string } | undefined;
    if (answer?.refused !== undefined) acknowledge({ ok: false, error: { code: answer.refused } });
    else acknowledge({ ok: true, data: answer ?? {} });
  }
}
