/** Signatures of webhooks as the Standard Webhooks specification has them: HMAC-SHA256 of `id.timestamp.body`. */
import { createHmac, randomBytes } from 'node:crypto';

const PREFIX = 'whsec_';

export const newSecret = (): string => PREFIX + randomBytes(32).toString('base64');

/** `whsec_` and 24 to 64 bytes in base64. */
export function isSecret(secret: string): boolean {
  if (!secret.startsWith(PREFIX)) return false;
  const bytes = Buffer.from(secret.slice(PREFIX.length), 'base64');
  return bytes.toString('base64') === secret.slice(PREFIX.length) && bytes.length >= 24 && bytes.length <= 64;
}

export function sign(secret: string, id: string, timestampS: number, body: string): string {
  const key = Buffer.from(secret.slice(PREFIX.length), 'base64');
  return `v1,${createHmac('sha256', key).update(`${id}.${timestampS}.${body}`).digest('base64')}`;
}
