/** The generator's control over HTTP: `GET /status`, `POST /start`, `POST /stop`, the same answer from each process. */
import fastify from 'fastify';
import type { DemandGenerator } from './generator.ts';

export interface Control extends AsyncDisposable {
  readonly url: string;
}

/** On loopback only: whoever reaches it may start and stop the demand. */
export async function listenForControl(generator: DemandGenerator, port: number): Promise<Control> {
  const app = fastify({ forceCloseConnections: true });
  app.get('/status', () => generator.status());
  app.post('/start', () => generator.start());
  app.post('/stop', () => generator.stop());
  // The service behind the lease didn't answer, or refused.
  app.setErrorHandler(async (error, _request, reply) => reply.code(503).send({ error: (error as Error).message }));
  const url = await app.listen({ host: '127.0.0.1', port });
  return { url, [Symbol.asyncDispose]: () => app.close() };
}
