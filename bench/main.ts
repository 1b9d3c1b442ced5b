/** `cabrank bench`: figures of this machine, each beside what it is to be compared with in the same run. */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { type CityFigures, benchCity, formatCity } from './city/city.ts';
import { describeMachine } from './machine.ts';

const help = `
cabrank bench NAME [options]

  city             the highest rate of whole ride cycles that the service holds over real HTTP and sockets,
                   and the same transitions one at a time with no service around them

  --json FILE      write the figures
  --seconds N      how long the rate has to be held            20
  --drivers N      drivers connected                           2000
  --workers N      processes that make the load                half of the cores
`;

class Usage extends Error {}

function readArguments(args: string[]) {
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        json: { type: 'string' },
        seconds: { type: 'string', default: '20' },
        drivers: { type: 'string', default: '2000' },
        workers: { type: 'string' },
        help: { type: 'boolean' },
      },
    });
    return { ...values, names: positionals };
  } catch (error) {
    throw new Usage((error as Error).message);
  }
}

function wholeNumber(flag: string, value: string): number {
  if (!/^[1-9]\d{0,5}$/.test(value)) throw new Usage(`--${flag} must be a whole number, 1 or more: ${value}`);
  return Number(value);
}

async function bench(args: string[], signal: AbortSignal): Promise<number> {
  const asked = readArguments(args);
  if (asked.help === true) {
    console.log(help.trim());
    return 0;
  }
  const [name, ...more] = asked.names;
  if (name !== 'city' || more.length > 0) throw new Usage(`the name of one benchmark is needed: city\n${help}`);
  const machine = describeMachine();
  console.log(`${machine.cpu}, ${machine.cores} cores, ${machine.memoryGb} GB, Node ${machine.node}, ${machine.os}`);
  const figures: CityFigures = await benchCity({
    holdS: wholeNumber('seconds', asked.seconds),
    drivers: wholeNumber('drivers', asked.drivers),
    workers: asked.workers === undefined ? Math.max(1, machine.cores >> 1) : wholeNumber('workers', asked.workers),
    say: (line) => console.log(line),
    signal,
  });
  console.log(formatCity(figures));
  if (asked.json !== undefined)
    await writeFile(asked.json, `${JSON.stringify({ name, machine, ...figures }, null, 2)}\n`);
  return figures.verify.violations === 0 && figures.ridesPerSecond > 0 ? 0 : 1;
}

const stop = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const)
  process.once(name, () => stop.abort(new Error(`stopped by ${name}`)));
process.exitCode = await bench(process.argv.slice(2), stop.signal).catch((error: unknown) => {
  console.error(`cabrank bench: ${error instanceof Error ? error.message : String(error)}`);
  return error instanceof Usage ? 2 : 1;
});
