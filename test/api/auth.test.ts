import { SignJWT } from 'jose';
import { afterEach, expect, test, vi } from 'vitest';
import { createAuthenticator, mintToken } from '../../src/auth.ts';

const SECRET = 'a secret of the tests, long enough for HS256';

afterEach(() => void vi.useRealTimers());

test('a minted token says who it was minted for', async () => {
  const { verify } = createAuthenticator(SECRET);
  const token = await mintToken(SECRET, { sub: 'd-1', role: 'driver', ttlS: 60 });
  const caller = { sub: 'd-1', role: 'driver', expiresAtMs: expect.closeTo(Date.now() + 60_000, -4) as number };
  expect(await verify(token)).toEqual(caller);
  expect(await verify(token)).toEqual(caller);
});

test('a token that was found good ends with its time all the same', async () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  const { verify } = createAuthenticator(SECRET);
  const token = await mintToken(SECRET, { sub: 'd-1', role: 'driver', ttlS: 60 });
  await verify(token);
  vi.advanceTimersByTime(61_000);
  await expect(verify(token)).rejects.toMatchObject({ code: 'token_expired' });
  await expect(verify(token)).rejects.toMatchObject({ code: 'token_expired' });
});

test('a token found good under one secret isn’t under another', async () => {
  const token = await mintToken(SECRET, { sub: 'd-1', role: 'driver', ttlS: 60 });
  await createAuthenticator(SECRET).verify(token);
  const other = createAuthenticator('another secret, just as long as it has to be');
  await expect(other.verify(token)).rejects.toMatchObject({ code: 'token_invalid' });
});

test('the secret’s text is the key, whatever it looks like, and who a token is meant for isn’t looked at', async () => {
  const secret = Buffer.alloc(48).toString('base64');
  const issued = (key: Buffer) =>
    new SignJWT({ role: 'rider', aud: 'another service', iss: 'a login' })
      .setProtectedHeader({ alg: 'HS256' })
      .setSubject('r-1')
      .setExpirationTime('1m')
      .sign(key);
  const { verify } = createAuthenticator(secret);
  expect(await verify(await issued(Buffer.from(secret)))).toMatchObject({ sub: 'r-1', role: 'rider' });
  const decoded = await issued(Buffer.from(secret, 'base64'));
  await expect(verify(decoded)).rejects.toMatchObject({ code: 'token_invalid' });
});

test('a secret too short for HS256 is refused at once', async () => {
  expect(() => createAuthenticator('short')).toThrow(RangeError);
  await expect(mintToken('short', { sub: 'me', role: 'ops', ttlS: 60 })).rejects.toThrow(RangeError);
});

test('nothing is minted that wouldn’t be accepted', async () => {
  await expect(mintToken(SECRET, { sub: 'a b', role: 'driver', ttlS: 60 })).rejects.toThrow(/sub must match/);
  await expect(mintToken(SECRET, { sub: 'me', role: 'admin' as never, ttlS: 60 })).rejects.toThrow(
    /role must be one of/,
  );
  await expect(mintToken(SECRET, { sub: 'me', role: 'ops', ttlS: 0 })).rejects.toThrow(/ttlS/);
});
