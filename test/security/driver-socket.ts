/** A driver's socket without the care of an app: what it sends is what a test says. */
import { io, type Socket } from 'socket.io-client';
import type { TestService } from '../support/service.ts';

const TRIES = 5;

export const openSocket = (service: TestService, namespace: string, auth: object): Socket =>
  io(`${service.urlOf('gateway')}${namespace}`, {
    auth,
    transports: ['websocket'],
    reconnection: false,
    forceNew: true,
  });

/** One that was told its state. On a machine with much else to do a handshake may run into its deadline. */
export async function connectDriver(service: TestService, driverId: string): Promise<Socket> {
  const auth = { token: await service.token('driver', driverId) };
  for (let attempt = 1; attempt <= TRIES; attempt += 1) {
    const socket = openSocket(service, '/drivers', auth);
    const isIn = await new Promise<boolean>((resolve) => {
      socket.once('state', () => resolve(true));
      for (const failed of ['connect_error', 'disconnect']) socket.once(failed, () => resolve(false));
    });
    if (isIn) return socket;
  }
  throw new Error(`${driverId} couldn’t connect`);
}
