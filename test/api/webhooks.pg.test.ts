import { afterAll, expect, it } from 'vitest';
import { RIDE_EVENT_TYPES } from '../../src/records.ts';
import { OPS, startTestApi } from './harness.ts';

const api = await startTestApi();
afterAll(() => api[Symbol.asyncDispose]());

const put = (types: readonly string[]) =>
  api.call('PUT', '/v1/webhooks/w', { ...OPS, body: { url: 'http://127.0.0.1/', types } });

it('a webhook for a type of event that there isn’t is refused by its place, and isn’t made', async () => {
  expect(await put(['ride_completed', 'no_such_type'])).toMatchObject({
    status: 400,
    body: { code: 'invalid_request', errors: [{ path: 'body.types.1' }] },
  });
  expect((await api.call('GET', '/v1/webhooks/w', OPS)).status).toBe(404);
});

it('one for all types that there are is made', async () => {
  expect(await put(RIDE_EVENT_TYPES)).toMatchObject({ status: 201, body: { types: RIDE_EVENT_TYPES } });
});
