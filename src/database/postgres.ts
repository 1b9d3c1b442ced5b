/**
 * postgres.js, with one guard. Version 3.4.9 ends the whole process when the server goes away between the queueing
 * of a write and the write itself: `nextWrite` runs from `setImmediate` on a socket that is null by then
 * (porsager/postgres issues 1066, 1154, 1208). Catching that globally would leave its query hanging, so the two
 * places are mended as the module loads. When an update moves them, this file fails at import and not in production.
 * A third ends the process when the server goes away while a new connection reads its array types: nobody handles that
 * promise. What was asked of the connection is told by itself.
 * A fourth leaves a query without any answer for ever, and the connection's place in the pool with it: one that is asked
 * between a socket's error, which fails what was asked before, and its close a little later. Repeating what failed does
 * just that; after a few such moments a pool of four answered nobody any more.
 * A fifth lets a transaction begin on a connection that shall have one query at a time (`max_pipeline: 0`).
 */
import { registerHooks } from 'node:module';

const mends = [
  {
    found: `    const x = socket.write(chunk, fn)
`,
    mended: `    if (socket === null) {
      nextWriteTimer !== null && clearImmediate(nextWriteTimer)
      chunk = nextWriteTimer = null
      error(Errors.connection('CONNECTION_CLOSED', options))
      return true
    }
    const x = socket.write(chunk, fn)
`,
  },
  {
    // Bytes queued for the old socket must not precede the new one's start-up message.
    found: `    clearImmediate(nextWriteTimer)
    socket.removeListener('data', data)
    socket.removeListener('connect', connected)
    idleTimer.cancel()
`,
    mended: `    clearImmediate(nextWriteTimer)
    chunk = nextWriteTimer = null
    socket.removeListener('data', data)
    socket.removeListener('connect', connected)
    idleTimer.cancel()
`,
  },
  {
    found: `    !hadError && (query || sent.length) && error(Errors.connection('CONNECTION_CLOSED', options, socket))
`,
    mended: `    ;(query || sent.length) && error(Errors.connection('CONNECTION_CLOSED', options, socket))
`,
  },
  {
    found: `        return fetchArrayTypes()
`,
    mended: `        return fetchArrayTypes().catch(noop)
`,
  },
  {
    found: `        && sent.length < max_pipeline
        && (!q.options.onexecute || q.options.onexecute(connection))
`,
    mended: `        && (q.options.onexecute ? q.options.onexecute(connection) : sent.length < max_pipeline)
`,
  },
];

const mend = (source: string): string =>
  mends.reduce((text, { found, mended }) => {
    if (text.split(found).length !== 2) {
      throw new Error(
        'postgres.js has changed where src/database/postgres.ts mends it: read the change, then adapt or drop the guard',
      );
    }
    return text.replace(found, () => mended);
  }, source);

let isMended = false;
const hooks = registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (!url.endsWith('/postgres/src/connection.js') || loaded.source == null) return loaded;
    isMended = true;
    return { ...loaded, source: mend(Buffer.from(loaded.source as Uint8Array).toString()) };
  },
});
const { default: postgres } = await import('postgres');
hooks.deregister();
if (!isMended) throw new Error('postgres.js was imported before src/database/postgres.ts: import it from there only');

export default postgres;
