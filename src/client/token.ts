import { SignJWT } from 'jose';

export type Role = 'rider' | 'driver' | 'service' | 'ops';

export interface TokenClaims {
  /** The fleet's shared secret, `AUTH_SECRET` of the service. */
  readonly secret: string;
  /** Who it is: a rider's or a driver's own id. */
  readonly sub: string;
  readonly role: Role;
  readonly ttlS: number;
}

/** Asked before each connection and each call, so that a token can be renewed in time; may answer from memory. */
export type TokenSource = () => string | Promise<string>;

/** A bearer token (JWT, HS256), as the fleet's own login would issue it. */
export async function signToken({ secret, sub, role, ttlS }: TokenClaims): Promise<string> {
  const issuedAtS = Math.floor(Date.now() / 1000);
  return new SignJWT({ role })
    .setProtectedHeader({ alg: 'HS256', typ: 'JWT' })
    .setSubject(sub)
    .setIssuedAt(issuedAtS)
    .setExpirationTime(issuedAtS + ttlS)
    .sign(new TextEncoder().encode(secret));
}

/** Signs a token at first use, and a new one once half of its life is over. */
export function signedTokens(claims: TokenClaims): TokenSource {
  let token: Promise<string> | null = null;
  let renewAtMs = 0;
  return () => {
    if (token === null || performance.now() >= renewAtMs) {
      token = signToken(claims);
      renewAtMs = performance.now() + claims.ttlS * 500;
    }
    return token;
  };
}
