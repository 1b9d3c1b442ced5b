/** Tokens that open nothing, each for a reason of its own, and what is said to whoever shows it. */
import { generateKeyPairSync } from 'node:crypto';
import { SignJWT, UnsecuredJWT } from 'jose';
import type { AuthErrorCode } from '../../src/auth.ts';

export interface BadToken {
  readonly what: string;
  /** Null: none is shown. */
  readonly token: string | null;
  readonly code: AuthErrorCode;
}

const HOUR_S = 3_600;

/** All of them claim to be `sub` in the most powerful role, or a driver where the socket is asked. */
export async function badTokens(secret: string, sub: string, role: 'ops' | 'driver'): Promise<BadToken[]> {
  const key = new TextEncoder().encode(secret);
  const nowS = Math.floor(Date.now() / 1000);
  const claims = { sub, role, exp: nowS + HOUR_S };
  const signed = (payload: Record<string, unknown>, by = key, alg = 'HS256'): Promise<string> =>
    new SignJWT(payload).setProtectedHeader({ alg }).sign(by);
  const good = await signed(claims);
  const [header, payload, signature] = good.split('.') as [string, string, string];
  const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const publicPem = publicKey.export({ type: 'spki', format: 'pem' }) as string;
  const invalid: Record<string, string> = {
    'no token at all': 'abc',
    'of three empty parts': '..',
    'not valid yet': await signed({ ...claims, nbf: nowS + HOUR_S }),
    'with a forged signature': `${header}.${payload}.${Buffer.alloc(32).toString('base64url')}`,
    'with another’s claims under its signature': `${header}.${encoded({ ...claims, sub: 'somebody-else' })}.${signature}`,
    'without its signature': `${header}.${payload}.`,
    'of another secret': await signed(claims, new TextEncoder().encode('another secret, as long as it has to be')),
    'of an empty secret’s kind': await signed(claims, new Uint8Array(32)),
    'of `alg: none`': new UnsecuredJWT(claims).encode(),
    'of `alg: None`': `${encoded({ alg: 'None' })}.${payload}.`,
    'of HS384': await signed(claims, key, 'HS384'),
    'of RS256': await new SignJWT(claims).setProtectedHeader({ alg: 'RS256' }).sign(privateKey),
    'of HS256 over a public key': await signed(claims, new TextEncoder().encode(publicPem)),
    'that brings its own key': await new SignJWT(claims)
      .setProtectedHeader({ alg: 'RS256', jwk: publicKey.export({ format: 'jwk' }) })
      .sign(privateKey),
    'that names a key': await new SignJWT(claims)
      .setProtectedHeader({ alg: 'HS256', kid: '../../dev/null' })
      .sign(new Uint8Array(32)),
    'without a subject': await signed({ role, exp: claims.exp }),
    'of a subject that is a number': await signed({ ...claims, sub: 7 }),
    'of a subject with spaces': await signed({ ...claims, sub: 'a b' }),
    'without a role': await signed({ sub, exp: claims.exp }),
    'of an unknown role': await signed({ ...claims, role: 'admin' }),
    'of a role that every object has': await signed({ ...claims, role: 'constructor' }),
    'of a role in capitals': await signed({ ...claims, role: role.toUpperCase() }),
    'of several roles': await signed({ ...claims, role: [role] }),
    'that never ends': await signed({ sub, role }),
    'longer than any': await signed({ ...claims, padding: 'x'.repeat(5_000) }),
  };
  return [
    { what: 'none', token: null, code: 'token_missing' },
    { what: 'expired', token: await signed({ ...claims, exp: nowS - 1 }), code: 'token_expired' },
    ...Object.entries(invalid).map(([what, token]) => ({ what, token, code: 'token_invalid' as const })),
  ];
}
