/** Where leases come from, and how the thread that renews them gets there too. */
import type { LeaseService } from './contract.ts';
import { HttpLeases } from './http-leases.ts';

/** A thread has memory of its own: what it needs to reach the service is told as data. */
export interface LeaseSource {
  /** For the calls of the thread that holds the leases. */
  open(): LeaseService;
  /** The program of the renewing thread, and what it is told. */
  readonly thread: URL;
  readonly options: object;
  /** Asked now and then, for a thread that can't ask by itself. */
  readonly token?: () => string | Promise<string>;
}

/** The service over HTTP; the token is of role `service` or `ops`. */
export function httpLeases({
  url,
  token,
}: {
  readonly url: string | readonly string[];
  readonly token: string | (() => string | Promise<string>);
}): LeaseSource {
  return {
    open: () => new HttpLeases({ url, token }),
    thread: new URL('http-thread.ts', import.meta.url),
    options: { url },
    token: typeof token === 'string' ? () => token : token,
  };
}
