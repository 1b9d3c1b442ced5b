/**
 * One of the processes that stand for the singleton: `singleton-process.ts DATABASE_URL SECRET TTL_MS`. While it leads it
 * writes under its fence, and goes on until a write is refused, whatever it knows of its lease: the fence alone is tried.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { LeaseClient } from '../../src/client/leases/client.ts';
import type { Lease } from '../../src/client/leases/lease.ts';
import { singleton } from '../../src/client/leases/singleton.ts';
import { connectDatabase } from '../../src/database/connection.ts';
import { databaseLeases } from '../../src/resource-leases/database-leases.ts';

const RESOURCE = 'bench/singleton';
const WRITE_EVERY_MS = 10;

const [url, secret, ttlMs] = process.argv.slice(2) as [string, string, string];
const database = connectDatabase(url, { hotConnections: 2, coldConnections: 1 });
const leases = new LeaseClient(databaseLeases(url, secret));
const stop = new AbortController();
process.once('SIGTERM', () => stop.abort(new Error('SIGTERM')));

/** In one statement: suspended between two, we would hold up whoever is next. */
async function write({ fence }: Lease): Promise<boolean> {
  const written = await database.hot`insert into bench_writes (fence, at)
    select ${fence}::bigint, clock_timestamp() where guard_fence(${RESOURCE}, ${fence}::bigint)`;
  return written.count === 1;
}

async function lead(lease: Lease): Promise<void> {
  for (;;) {
    if (!(await write(lease))) break;
    // In order: what was released is somebody else's at once.
    if (stop.signal.aborted) return;
    await pause(WRITE_EVERY_MS);
  }
  const knew = lease.signal.aborted;
  await database.hot`insert into bench_refusals (fence, knew) values (${lease.fence}, ${knew ? 1 : 0})`;
}

await singleton(leases, RESOURCE, lead, { ttlMs: Number(ttlMs), signal: stop.signal });
await leases.close();
await database.close();
