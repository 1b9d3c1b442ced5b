/** A process that holds a lease: `holder.ts URL SECRET RESOURCE TTL_MS MODE`. Says `held FENCE`, then does as told. */
import { LeaseClient } from '../../../src/client/leases/client.ts';
import { connectDatabase } from '../../../src/database/connection.ts';
import { databaseLeases } from '../../../src/resource-leases/database-leases.ts';
import { guardFence } from '../../../src/resource-leases/transitions.ts';

const [url, secret, resource, ttlMs, mode] = process.argv.slice(2) as [string, string, string, string, string];
const leases = new LeaseClient(databaseLeases(url, secret));
const lease = await leases.acquire(resource, { ttlMs: Number(ttlMs) });
process.send!({ held: lease.fence });

const stay = setInterval(() => {}, 1_000);
if (mode === 'exits') process.on('message', () => process.exit(0));
if (mode === 'busy') {
  const untilMs = performance.now() + 2.5 * Number(ttlMs);
  while (performance.now() < untilMs);
  lease.assertHeld();
  process.send!({ held: lease.fence });
}
if (mode === 'writes') {
  const database = connectDatabase(url);
  // Told to write after it was stopped: what does it know, and what does the database say?
  process.on('message', () => {
    void (async () => {
      const { aborted } = lease.signal;
      const allowed = await database.cold.begin(async (tx) => guardFence(tx as never, resource, lease.fence));
      process.send!({ aborted, allowed });
      clearInterval(stay);
      await database.close();
      await leases.close();
      process.disconnect();
    })();
  });
}
