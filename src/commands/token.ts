/** `cabrank token`: a token for a role and subject, signed with this service's secret. */
import { mintToken, isRole, TOKEN_ROLES } from '../auth.ts';
import { DEFAULT_DATA_DIR, readAuthSecret } from '../data-folder.ts';
import { readOptions, UsageError } from './usage.ts';

const help = `
cabrank token --role ROLE --sub SUBJECT [options]

  --role ROLE      rider, driver, service or ops
  --sub SUBJECT    the rider's or driver's id, or who the service or operator is
  --ttl SECONDS    3600
  --data-dir DIR   where the secret is              DATA_DIR, ./data

Signs with AUTH_SECRET if it is set.
`;

export async function token(args: string[]): Promise<number> {
  const flags = readOptions(
    args,
    { role: { type: 'string' }, sub: { type: 'string' }, ttl: { type: 'string' }, 'data-dir': { type: 'string' } },
    help,
  );
  if (flags === null) return 0;
  const { role, sub } = flags;
  const ttlS = Number(flags.ttl ?? 3600);
  if (role === undefined || !isRole(role)) throw new UsageError(`--role must be one of ${TOKEN_ROLES.join(', ')}`);
  if (sub === undefined || sub === '') throw new UsageError('--sub is needed');
  if (!Number.isInteger(ttlS) || ttlS < 1) throw new UsageError('--ttl must be a whole number of seconds');
  const dataDir = flags['data-dir'] ?? process.env['DATA_DIR'] ?? DEFAULT_DATA_DIR;
  const secret = process.env['AUTH_SECRET'] ?? (await readAuthSecret(dataDir));
  if (!secret) throw new UsageError(`there is no secret in ${dataDir}: start \`serve\` once, or set AUTH_SECRET`);
  console.log(await mintToken(secret, { sub, role, ttlS }));
  return 0;
}
