/** The program of the thread that renews leases straight on the database. */
import { renewInThread } from '../client/leases/renewals.ts';
import { connectLeases } from './database-leases.ts';

renewInThread(({ url, secret }: { readonly url: string; readonly secret: string }) => connectLeases(url, secret));
