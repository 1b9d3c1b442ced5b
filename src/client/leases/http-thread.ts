/** The program of the thread that renews leases over HTTP. */
import { HttpLeases } from './http-leases.ts';
import { renewInThread } from './renewals.ts';

renewInThread(({ url }: { readonly url: string | readonly string[] }, token) => new HttpLeases({ url, token }));
