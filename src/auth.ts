/** Who is calling: bearer tokens (JWT, HS256) as the fleet's own login issues them, for REST and the socket alike. */
import { webcrypto } from 'node:crypto';
import { errors, jwtVerify, type JWTPayload } from 'jose';
import { signToken, type Role } from './client/token.ts';

export type { Role } from './client/token.ts';

export const TOKEN_ROLES: readonly Role[] = ['rider', 'driver', 'service', 'ops'];

export const isRole = (role: unknown): role is Role => TOKEN_ROLES.includes(role as Role);

export interface Identity {
  /** A rider's or driver's own id; for `service` and `ops` whatever the fleet calls them. */
  readonly sub: string;
  readonly role: Role;
}

/** Somebody with a valid token. */
export interface Caller extends Identity {
  /** When the token ends, in milliseconds since 1970. */
  readonly expiresAtMs: number;
}

export type AuthErrorCode = 'token_missing' | 'token_invalid' | 'token_expired';

export class AuthError extends Error {
  override name = 'AuthError';
  readonly code: AuthErrorCode;

  constructor(code: AuthErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

export interface Authenticator {
  /** Throws `AuthError`: `token_missing` for an empty token, `token_expired`, or `token_invalid` for anything else. */
  verify(token: string): Promise<Caller>;
}

/** HS256 needs a key at least as long as its hash (RFC 7518, 3.2): a shorter secret can be guessed from any token. */
const SECRET_MIN_BYTES = 32;
/** Longer ones are nobody's: refused before anything is computed, or kept. */
const TOKEN_MAX_CHARS = 4_096;
/** As many as a gateway may have connections; fewer than come in turn would keep none of them. */
const CACHED_TOKENS_MAX = 100_000;

const subjects: Readonly<Record<Role, RegExp>> = {
  rider: /^[A-Za-z0-9_-]{1,64}$/,
  driver: /^[A-Za-z0-9_-]{1,64}$/,
  service: /^[\x21-\x7e]{1,255}$/,
  ops: /^[\x21-\x7e]{1,255}$/,
};

/**
 * Throws `RangeError` when the secret has less than 32 bytes.
 *
 * Tokens that were found good are remembered until they expire, so that a hot path checks a signature once. Bad ones
 * aren't, and so can't push good ones out.
 */
export function createAuthenticator(secret: string): Authenticator {
  // Imported once: jose does it for every token otherwise, which takes as long as the check itself.
  const importing = webcrypto.subtle.importKey('raw', secretBytes(secret), { name: 'HMAC', hash: 'SHA-256' }, false, [
    'verify',
  ]);
  const verified = new Map<string, Caller>();

  async function check(token: string): Promise<Caller> {
    if (token.length > TOKEN_MAX_CHARS) throw new AuthError('token_invalid', 'the token is too long');
    const claims = await verifiedClaims(token, await importing);
    const caller = { ...identityOf(claims), expiresAtMs: claims.exp! * 1000 };
    if (verified.size >= CACHED_TOKENS_MAX) verified.delete(verified.keys().next().value!);
    verified.set(token, caller);
    return caller;
  }

  return {
    async verify(token) {
      if (token === '') throw new AuthError('token_missing', 'a bearer token is needed');
      const known = verified.get(token);
      if (known === undefined) return check(token);
      if (Date.now() < known.expiresAtMs) return known;
      verified.delete(token);
      throw new AuthError('token_expired', 'the token has expired');
    },
  };
}

/** A token as the fleet's login would issue it; `ttlS` seconds. Throws `RangeError` for what `verify` would refuse. */
export async function mintToken(secret: string, claims: Identity & { readonly ttlS: number }): Promise<string> {
  secretBytes(secret);
  if (!isRole(claims.role)) throw new RangeError(`role must be one of ${TOKEN_ROLES.join(', ')}`);
  if (!subjects[claims.role].test(claims.sub)) throw new RangeError(`sub must match ${subjects[claims.role].source}`);
  if (!(claims.ttlS > 0)) throw new RangeError('ttlS must be a positive number of seconds');
  return signToken({ secret, ...claims });
}

function secretBytes(secret: string): Buffer {
  const bytes = Buffer.from(secret);
  if (bytes.byteLength < SECRET_MIN_BYTES) {
    throw new RangeError(`the secret that signs tokens must have at least ${SECRET_MIN_BYTES} bytes`);
  }
  return bytes;
}

async function verifiedClaims(token: string, key: webcrypto.CryptoKey): Promise<JWTPayload> {
  try {
    // The algorithm is ours to choose, never the token's: `none` and all others are refused.
    const { payload } = await jwtVerify(token, key, { algorithms: ['HS256'], requiredClaims: ['exp', 'sub'] });
    return payload;
  } catch (error) {
    if (error instanceof errors.JWTExpired) throw new AuthError('token_expired', 'the token has expired');
    if (error instanceof errors.JOSEError) throw new AuthError('token_invalid', 'the token is not valid');
    throw error;
  }
}

function identityOf({ sub, role }: JWTPayload): Identity {
  if (!isRole(role)) {
    throw new AuthError('token_invalid', `the claim "role" must be one of ${TOKEN_ROLES.join(', ')}`);
  }
  if (typeof sub !== 'string' || !subjects[role].test(sub)) {
    throw new AuthError('token_invalid', `the claim "sub" of a ${role} must match ${subjects[role].source}`);
  }
  return { sub, role };
}
