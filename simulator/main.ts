/** The simulator's commands: `demo` starts a service and drives a city through it, `simulate` drives one that runs. */
import { writeFile } from 'node:fs/promises';
import { defaultRates, type FaultRates, ratesAt } from './behaviour.ts';
import { createRandom } from '../domain/random.ts';
import { loadCsvDemand } from './demand/csv.ts';
import { DemandError, type Demand } from './demand/demand.ts';
import { syntheticDemand } from './demand/synthetic.ts';
import { killOneOf, runVerify, startFleet, type Fleet } from './fleet.ts';
import { readSecret, readSettings, UsageError, type Settings } from './options.ts';
import { LIFELIKE_RATES } from './life.ts';
import { ProgressView } from './progress.ts';
import { buildReport, formatReport, readCounted } from './report.ts';
import { runSimulation } from './run.ts';

/** Where the made-up city lies: a place on land that no real fleet calls its own. */
const SYNTHETIC_CENTER = { lat: 48.0, lng: 7.85 };
const SYNTHETIC_RADIUS_M = 6_000;
const SYNTHETIC_FROM_MS = 8 * 3_600_000;
const SYNTHETIC_MINUTES = 30;
const SYNTHETIC_RIDES_PER_HOUR = 4_000;

async function loadDemand(settings: Settings): Promise<Demand> {
  const random = createRandom(settings.seed).fork('demand');
  const window = { fromMs: settings.fromMs, minutes: settings.minutes };
  if (settings.demandFile !== null) return loadCsvDemand(settings.demandFile, window, random);
  return syntheticDemand(
    {
      center: SYNTHETIC_CENTER,
      radiusM: SYNTHETIC_RADIUS_M,
      peakRidesPerHour: SYNTHETIC_RIDES_PER_HOUR,
      fromMs: settings.fromMs ?? SYNTHETIC_FROM_MS,
      minutes: settings.minutes ?? SYNTHETIC_MINUTES,
    },
    random,
  );
}

async function demo(settings: Settings, signal: AbortSignal): Promise<number> {
  const demand = await loadDemand(settings);
  sayDemand(demand);
  console.log(settings.split ? 'starting two processes of each role …' : 'starting the service …');
  await using fleet = await startFleet({ split: settings.split, matcherFaultRate: settings.matcherFaultRate });
  console.log(`serving at ${[...new Set([...fleet.urls, ...fleet.socketUrls])].join(', ')}`);
  return await drive(settings, demand, fleet, signal);
}

async function simulate(settings: Settings, signal: AbortSignal): Promise<number> {
  if (settings.urls.length === 0) throw new UsageError('--url is needed');
  const demand = await loadDemand(settings);
  sayDemand(demand);
  const authSecret = await readSecret(settings.dataDir);
  const databaseUrl = process.env['DATABASE_URL'] ?? null;
  return drive(
    settings,
    demand,
    { urls: settings.urls, socketUrls: settings.socketUrls, authSecret, databaseUrl, members: [] },
    signal,
  );
}

async function drive(
  settings: Settings,
  demand: Demand,
  service: Pick<Fleet, 'urls' | 'socketUrls' | 'authSecret' | 'members'> & { readonly databaseUrl: string | null },
  signal: AbortSignal,
): Promise<number> {
  const view = new ProgressView(process.stdout);
  const killAfterMs = (demand.durationMs / settings.speedup / (settings.kill.length + 1)) | 0;
  let kills: NodeJS.Timeout[] = [];
  const result = await runSimulation({
    urls: service.urls,
    socketUrls: service.socketUrls,
    tokens: service.authSecret,
    regionId: settings.regionId,
    demand,
    drivers: settings.drivers,
    speedup: settings.speedup,
    seed: settings.seed,
    policy: settings.policy,
    lifelike: settings.lifelike,
    rates: ratesOf(settings),
    signal,
    onProgress: (progress) => {
      view.show(progress);
      if (progress.phase !== 'running' || kills.length > 0) return;
      kills = settings.kill.map((role, i) =>
        setTimeout(() => console.log(`killed a ${role}: ${killOneOf(service.members, role)}`), killAfterMs * (i + 1)),
      );
    },
  }).finally(() => kills.forEach(clearTimeout));

  console.log('every ride has ended; verifying the records …');
  const metricsUrls = [...new Set([...service.urls, ...service.members.flatMap(({ url }) => url ?? [])])];
  const verification = await runVerify(service.databaseUrl, settings.dataDir);
  const report = buildReport(result, verification, await readCounted(metricsUrls));
  console.log(formatReport(report, verification));
  if (settings.jsonFile !== null) await writeFile(settings.jsonFile, `${JSON.stringify(report, null, 2)}\n`);
  return report.verify.violations > 0 || report.rides.open > 0 || verification.empty ? 1 : 0;
}

function ratesOf({ lifelike, acceptance }: Settings): Partial<FaultRates> {
  const rates = { ...defaultRates, ...(lifelike && LIFELIKE_RATES) };
  return { ...rates, ...(acceptance !== null && ratesAt(acceptance, rates)) };
}

function sayDemand({ name, trips, broken }: Demand): void {
  console.log(`demand: ${name}, ${trips.length} rides`);
  if (broken.count === 0) return;
  console.log(`skipped ${broken.count} broken rows of ${broken.rows}:`);
  for (const example of broken.examples) console.log(`  ${example}`);
}

async function main([command, ...args]: string[]): Promise<number> {
  const stop = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.once(name, () => stop.abort(new Error(`stopped by ${name}`)));
  try {
    const settings = readSettings(command === 'simulate' ? 'simulate' : 'demo', args);
    if (settings === null) return 0;
    return await (command === 'simulate' ? simulate : demo)(settings, stop.signal);
  } catch (error) {
    console.error(`cabrank ${command}: ${error instanceof Error ? error.message : String(error)}`);
    return error instanceof UsageError || error instanceof DemandError ? 2 : 1;
  }
}

process.exitCode = await main(process.argv.slice(2));
