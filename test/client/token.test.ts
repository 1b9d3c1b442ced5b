import { jwtVerify } from 'jose';
import { expect, it } from 'vitest';
import { signedTokens, signToken } from '../../src/client/token.ts';

const secret = 'a secret of at least thirty-two characters';
const key = new TextEncoder().encode(secret);

it('a token carries subject, role and end, signed with the shared secret', async () => {
  const token = await signToken({ secret, sub: 'driver-1', role: 'driver', ttlS: 60 });
  const { payload, protectedHeader } = await jwtVerify(token, key);
  expect(protectedHeader.alg).toBe('HS256');
  expect(payload).toMatchObject({ sub: 'driver-1', role: 'driver' });
  expect((payload.exp ?? 0) - (payload.iat ?? 0)).toBe(60);
});

it('a source signs once for as long as the token is young', async () => {
  const young = signedTokens({ secret, sub: 'a', role: 'ops', ttlS: 60 });
  expect(await young()).toBe(await young());
  expect(young()).toBe(young());
  const old = signedTokens({ secret, sub: 'a', role: 'ops', ttlS: 0 });
  expect(old()).not.toBe(old());
});
