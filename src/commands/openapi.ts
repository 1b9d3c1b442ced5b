/** `cabrank openapi`: the OpenAPI document, as it is committed in docs/openapi.json. */
import { openApiDocument } from '../api/server.ts';
import { readOptions } from './usage.ts';

const help = `
cabrank openapi       prints the OpenAPI document of the REST API
`;

export async function openapi(args: string[]): Promise<number> {
  if (readOptions(args, {}, help) === null) return 0;
  console.log(JSON.stringify(await openApiDocument(), null, 2));
  return 0;
}
