/** etcd: a lease is granted, the key put if it isn’t there, and the lease revoked. */
import { randomUUID } from 'node:crypto';
import { Etcd3 } from 'etcd3';
import { type Contender, inLanes } from './contender.ts';
import { startEtcd } from './servers.ts';

export const etcdLease = (drivers: number, lanes: number): Contender => ({
  name: 'etcd',
  durability: 'write-ahead log, fsync (its default)',
  driven: `lease grant, put if absent, revoke; one connection, ${lanes} at a time`,
  open: async () => {
    const server = await startEtcd();
    if (server === null) return null;
    const etcd = new Etcd3({ hosts: server.url });
    const each = Math.floor(drivers / lanes);
    const next = new Int32Array(lanes);
    return {
      run: (ms) =>
        inLanes(lanes, ms, async (lane) => {
          const key = `driver-${lane * each + (next[lane]! % each)}`;
          next[lane]! += 1;
          const { ID: lease } = await etcd.leaseClient.leaseGrant({ TTL: 15 });
          const put = await etcd
            .if(key, 'Create', '==', 0)
            .then(etcd.put(key).value(randomUUID()).lease(lease))
            .commit();
          if (!put.succeeded) throw new Error('etcd refused');
          await etcd.leaseClient.leaseRevoke({ ID: lease });
          return 1;
        }),
      [Symbol.asyncDispose]: async () => {
        etcd.close();
        await server[Symbol.asyncDispose]();
      },
    };
  },
});
