/**
 * postgres.js 3.4.9, mended as it loads. When an update moves one of the places, this file fails at import and not in
 * production. What for:
 *
 * - It ends the whole process when the server goes away between the queueing of a write and the write itself: `nextWrite`
 *   runs from `setImmediate` on a socket that is null by then (porsager/postgres issues 1066, 1154, 1208). Catching that
 *   globally would leave its query hanging.
 * - It does so, too, when the server goes away while a new connection reads its array types: nobody handles that promise. What
 *   was asked of the connection is told by itself.
 * - A query that is asked of a connection between its socket's error, which fails what was asked before, and its close a
 *   little later never has an answer, and the connection's place in the pool is lost with it. Repeating what failed does just
 *   that.
 * - With one query at a time on a connection (`max_pipeline: 0`) a transaction would never get its connection. One that loses
 *   it rolls back on what isn't there any more, and the place in the pool is lost. And what waits for a connection when the
 *   pool is closed would open one that nobody closes.
 * - It has no deadline for answers, and hands nobody its sockets: `onsocket` gets each as soon as it is to be spoken on, under
 *   TLS the one that encrypts.
 */
import { registerHooks } from 'node:module';

const mends: Readonly<Record<string, readonly { readonly found: string; readonly mended: string }[]>> = {
  'connection.js': [
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
      found: `    target_session_attrs
  } = options
`,
      mended: `    target_session_attrs,
    onsocket = noop
  } = options
`,
    },
    {
      found: `      lifeTimer.start()
      socket.on('data', data)
`,
      mended: `      lifeTimer.start()
      onsocket(socket)
      socket.on('data', data)
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
    {
      found: `    if (terminated)
      return queryError(q, Errors.connection('CONNECTION_DESTROYED', options))

    if (stream)
`,
      mended: `    if (terminated)
      return queryError(q, Errors.connection('CONNECTION_DESTROYED', options))

    if (socket === null) {
      queryError(q, Errors.connection('CONNECTION_CLOSED', options))
      return true
    }

    if (stream)
`,
    },
  ],
  'index.js': [
    {
      found: `    socket          : o.socket,
`,
      mended: `    socket          : o.socket,
    onsocket        : o.onsocket,
`,
    },
    {
      found: `    queries.length && connect(c, queries.shift())
`,
      mended: `    while (ending && queries.length)
      queries.shift().reject(Errors.connection('CONNECTION_ENDED', options))
    queries.length && connect(c, queries.shift())
`,
    },
  ],
};

const mend = (file: string, source: string): string =>
  mends[file]!.reduce((text, { found, mended }) => {
    if (text.split(found).length !== 2) {
      throw new Error(
        'postgres.js has changed where src/database/postgres.ts mends it: read the change, then adapt or drop the guard',
      );
    }
    return text.replace(found, () => mended);
  }, source);

const left = new Set(Object.keys(mends));
const hooks = registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    const file = /\/postgres\/src\/(\w+\.js)$/.exec(url)?.[1];
    if (file === undefined || !left.delete(file) || loaded.source == null) return loaded;
    return { ...loaded, source: mend(file, Buffer.from(loaded.source as Uint8Array).toString()) };
  },
});
const { default: postgres } = await import('postgres');
hooks.deregister();
if (left.size > 0)
  throw new Error('postgres.js was imported before src/database/postgres.ts: import it from there only');

export default postgres;
