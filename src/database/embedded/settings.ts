/** The settings of the server, and the file that they are written to. */
import { EmbeddedDatabaseError } from './errors.ts';

/**
 * What PostgreSQL is told, made for this service on a small machine: short statements on few hot rows, and nothing
 * acknowledged is ever lost. `ALTER SYSTEM` overrides it; `startEmbedded({settings})` adds to it.
 */
export const EMBEDDED_SETTINGS: Readonly<Record<string, string>> = {
  // Durability: an acknowledged confirm survives a power cut. Stated, although they are the defaults.
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',

  max_connections: '200', // every role's pool, several processes of each, and psql
  shared_buffers: '256MB', // a city's drivers, waiting rides and live offers fit many times over
  effective_cache_size: '1GB', // planner only: what the page cache of a small machine holds
  work_mem: '8MB', // match rounds sort some thousand rows; the default 4MB is on the edge of spilling
  wal_buffers: '16MB', // group commits of many sets at once don't wait for each other's WAL pages
  wal_compression: 'pglz', // full page images dominate after a checkpoint (this build has neither lz4 nor zstd)
  max_wal_size: '4GB', // checkpoints come by time (5 min), not in the middle of a rush
  min_wal_size: '512MB', // WAL files are recycled, not created, when a rush begins
  random_page_cost: '1.1', // solid state: with the default 4 the planner shuns the indexes that hot statements need
  jit: 'off', // compiling costs more than any of our statements takes
  max_parallel_workers_per_gather: '0', // statements are short; parallel plans would take cores from the others

  // Hot tables are small and rewritten all day: visit often, finish fast, before they bloat.
  autovacuum_naptime: '5s',
  autovacuum_vacuum_threshold: '500',
  autovacuum_vacuum_scale_factor: '0.02',
  autovacuum_vacuum_cost_delay: '0', // the tables are in memory: nothing to be gentle with

  // Hot statements don't go by statistics. One analysis of a million rides takes a second; at every 5 % changed (a ride
  // changes seven times) they took a sixth of the database's time in a rush.
  autovacuum_analyze_threshold: '50000',
  autovacuum_analyze_scale_factor: '0.5',

  // A client that is stuck or gone must not keep its row locks, nor hold back vacuum.
  idle_in_transaction_session_timeout: '30s',
  client_connection_check_interval: '5s',

  timezone: 'UTC', // times are read by people in many cities
  log_timezone: 'UTC',
  cluster_name: 'cabrank', // shows in `ps`
};

export const SETTINGS_FILE = 'cabrank.conf';

export function formatSettings(settings: Readonly<Record<string, string>>): string {
  const lines = Object.entries(settings).map(([name, value]) => {
    if (!/^[a-z_]\w*(\.\w+)?$/i.test(name) || /[\r\n\0]/.test(value)) {
      throw new EmbeddedDatabaseError(
        'invalid_setting',
        `${JSON.stringify(name)} can't be set to ${JSON.stringify(value)}`,
      );
    }
    return `${name} = '${value.replaceAll('\\', '\\\\').replaceAll("'", "''")}'\n`;
  });
  return `# Written at every start. To keep a change, use ALTER SYSTEM.\n${lines.join('')}`;
}
