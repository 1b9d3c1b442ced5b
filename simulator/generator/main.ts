/** `cabrank generate`: riders' demand for a running service, without end, from one of the processes that stand for it. */
import { parseArgs } from 'node:util';
import { createRandom } from '../../domain/random.ts';
import { LeaseClient } from '../../src/client/leases/client.ts';
import { httpLeases } from '../../src/client/leases/source.ts';
import { OperatorClient } from '../../src/client/operator-client.ts';
import { RiderClient } from '../../src/client/rider-client.ts';
import { type Role, signedTokens } from '../../src/client/token.ts';
import { syntheticDemand } from '../demand/synthetic.ts';
import { number, readSecret, seedOf, urlsOf, UsageError } from '../options.ts';
import { listenForControl } from './control.ts';
import { DemandGenerator } from './generator.ts';
import { TripStream } from './stream.ts';

const help = `
cabrank generate --url URL --region ID [options]

Requests rides in a region until it is stopped. Of several such processes one generates, and the others stand by;
GET /status, POST /start and POST /stop on the address of any of them answer for all.

  --url URL            the service; several, separated by commas
  --region ID          an existing region: trips lie within its radius
  --rides-per-hour N   of city time, in the day's busiest hour   600
  --speedup N          city time ÷ wall time                     1
  --seed S             reproduces the day's trips                1
  --port N             of the control address; 0: any            0
  --data-dir DIR       where the service's secret is             DATA_DIR, ./data; or AUTH_SECRET
`;

const TOKEN_TTL_S = 24 * 3600;
const DAY_MINUTES = 1_440;

function readArguments(args: string[]) {
  const text = { type: 'string' } as const;
  try {
    const { values } = parseArgs({
      args,
      options: {
        url: text,
        region: text,
        'rides-per-hour': text,
        speedup: text,
        seed: text,
        port: text,
        'data-dir': text,
        help: { type: 'boolean' },
      },
    });
    return values;
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}

async function generate(args: string[]): Promise<number> {
  const asked = readArguments(args);
  if (asked.help === true) {
    console.log(help.trim());
    return 0;
  }
  const urls = urlsOf('--url', asked.url);
  const { region: regionId } = asked;
  if (urls.length === 0 || regionId === undefined) throw new UsageError(`--url and --region are needed\n${help}`);
  const ridesPerHour = number('--rides-per-hour', asked['rides-per-hour'] ?? '600', 1, 100_000);
  const speedup = number('--speedup', asked.speedup ?? '1', 1, 3_600);
  const port = number('--port', asked.port ?? '0', 0, 65_535, true);
  const secret = await readSecret(asked['data-dir'] ?? process.env['DATA_DIR'] ?? 'data');
  const access = (role: Role) => ({
    url: urls,
    token: signedTokens({ secret, sub: 'demand', role, ttlS: TOKEN_TTL_S }),
  });

  await using stack = new AsyncDisposableStack();
  const operator = stack.adopt(new OperatorClient(access('ops')), (client) => client.close());
  const riders = stack.adopt(new RiderClient(access('service')), (client) => client.close());
  const leases = stack.use(new LeaseClient(httpLeases(access('service'))));
  const { center, radiusM } = await operator.getRegion(regionId);
  const city = { center, radiusM, peakRidesPerHour: ridesPerHour, fromMs: 0, minutes: DAY_MINUTES };
  const stream = new TripStream(syntheticDemand(city, createRandom(seedOf(asked.seed ?? '1'))).trips);
  const onError = (error: unknown): void => console.error(error instanceof Error ? error.message : String(error));
  const generator = new DemandGenerator({ regionId, stream, speedup, leases, operator, riders, onError });
  stack.defer(() => generator.close());
  const control = stack.use(await listenForControl(generator, port));
  console.log(`standing for the demand of ${regionId}; control at ${control.url}`);
  await askedToStop();
  return 0;
}

/** The control server keeps the process alive until then. */
const askedToStop = (): Promise<void> =>
  new Promise((resolve) => {
    for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => resolve());
  });

process.exitCode = await generate(process.argv.slice(2)).catch((error: unknown) => {
  console.error(`cabrank generate: ${error instanceof Error ? error.message : String(error)}`);
  return error instanceof UsageError ? 2 : 1;
});
