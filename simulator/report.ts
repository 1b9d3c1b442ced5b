/** What a run came to: the clients' view, and what the records say. */
import type { SimulationResult } from './result.ts';

/** What `cabrank verify --json` prints, as far as the report uses it. */
export interface Verification {
  readonly checked: number;
  readonly violations: number;
  readonly empty: boolean;
  readonly invariants: readonly {
    readonly id: string;
    readonly title: string;
    readonly checked: number;
    readonly violations: number;
    readonly examples: readonly string[];
  }[];
  readonly facts: {
    readonly offers: Readonly<Record<string, number>>;
    readonly leasesGranted: number;
    readonly heldSeconds: Readonly<Record<string, number>>;
    readonly unserved: Readonly<Record<string, number>>;
    readonly sweeperLagMs: { readonly p50: number | null; readonly p99: number | null };
  };
}

export type Report = ReturnType<typeof buildReport>;

/** What only the processes know of themselves, summed over those that still answer. */
export interface Counted {
  /** Pairs that a round wanted and somebody else was quicker to. */
  readonly conflicts: number;
  /** Looks of a ride that led to no offer while a suitable driver near it was held by another ride's offer. */
  readonly hiddenSupply: number;
}

export function buildReport(
  result: SimulationResult,
  verification: Verification,
  { conflicts, hiddenSupply }: Counted,
) {
  const { offers, leasesGranted, heldSeconds, sweeperLagMs, unserved } = verification.facts;
  const { accepted = 0, ...inVain } = heldSeconds;
  const wasted = Object.values(inVain).reduce((sum, seconds) => sum + seconds, 0);
  const ended = (status: string): number => offers[status] ?? 0;
  return {
    ...result,
    offers: {
      pushed: leasesGranted,
      accepted: ended('accepted'),
      declined: ended('declined'),
      expired: ended('expired'),
      withdrawn: ended('withdrawn'),
      undeliverable: ended('undeliverable'),
    },
    /** Rides that found no driver, by what kept the drivers near them. */
    unserved,
    leases: {
      granted: leasesGranted,
      conflicts,
      sweeperLagMs,
      /** Driver-seconds of wall time that leases took which ended in nothing, by how. */
      wastedSeconds: Object.fromEntries(
        Object.entries(inVain).map(([end, seconds]) => [end, Math.round(10 * seconds) / 10]),
      ),
      /** Of the time that all drivers were there, what they were held by offers. */
      hiddenShare: round((accepted + wasted) / (result.drivers * result.wallSeconds)),
      hiddenSupply,
    },
    verify: { checked: verification.checked, violations: verification.violations },
  };
}

const METRICS_DEADLINE_MS = 5_000;

const round = (value: number): number => Math.round(value * 1e4) / 1e4;

export async function readCounted(urls: readonly string[]): Promise<Counted> {
  const texts = await Promise.all(
    urls.map((url) =>
      fetch(`${url}/metrics`, { signal: AbortSignal.timeout(METRICS_DEADLINE_MS) })
        .then((answer) => answer.text())
        .catch(() => ''),
    ),
  );
  const all = texts.join('\n');
  const sum = (pattern: RegExp): number =>
    [...all.matchAll(pattern)].reduce((total, match) => total + Number(match.groups?.['value']), 0);
  return {
    conflicts: sum(
      /^cabrank_transitions_total\{transition="(?:lease|assign)",outcome="(?!applied|repeated)\w+"\} (?<value>\d+)/gm,
    ),
    hiddenSupply: sum(/^cabrank_hidden_supply_total (?<value>\d+)/gm),
  };
}

const ms = (value: number | null): string => (value === null ? '–' : `${Math.round(value * 10) / 10} ms`);
const percentiles = ({ p50, p95, p99 }: { p50: number | null; p95: number | null; p99: number | null }): string =>
  `p50 ${ms(p50)}, p95 ${ms(p95)}, p99 ${ms(p99)}`;
const minutes = (seconds: number | null): string => (seconds === null ? '–' : `${(seconds / 60).toFixed(1)} min`);
const share = (part: number, whole: number): string => (whole === 0 ? '' : ` (${((100 * part) / whole).toFixed(1)} %)`);
const list = (counts: Readonly<Record<string, number>>): string =>
  Object.entries(counts)
    .map(([name, count]) => `${name} ${count}`)
    .join(', ') || 'none';

export function formatReport(report: Report, verification: Verification): string {
  const { rides, offers, leases, latencyMs, pickupEtaS, policy } = report;
  const lines: [string, string][] = [
    ['rides', `${rides.requested} requested, ${rides.assigned} assigned${share(rides.assigned, rides.requested)}`],
    [
      '',
      `${rides.completed} completed, ${rides.cancelled} cancelled, ${rides.noDriversAvailable} found no driver, ${rides.open} open`,
    ],
    ...(Object.keys(report.unserved).length > 0
      ? [['found no driver', list(report.unserved)] as [string, string]]
      : []),
    ...(Object.keys(report.cancellations).length > 0
      ? [['cancelled', list(report.cancellations)] as [string, string]]
      : []),
    ['offers', list(offers)],
    ['request → offer', percentiles(latencyMs.requestToOffer)],
    ['request → assigned', percentiles(latencyMs.requestToAssigned)],
    ['accept → confirmed', percentiles(latencyMs.confirm)],
    [
      'pick-up in',
      `mean ${minutes(pickupEtaS.mean)}, p50 ${minutes(pickupEtaS.p50)}, p95 ${minutes(pickupEtaS.p95)} of city time`,
    ],
    [
      'leases',
      `${leases.granted} granted, ${leases.conflicts} pairs refused; held drivers ${(100 * leases.hiddenShare).toFixed(2)} % of their time, in vain for ${list(leases.wastedSeconds)} s; ${leases.hiddenSupply} looks missed a held driver; lapsed ones freed after p50 ${ms(leases.sweeperLagMs.p50)}, p99 ${ms(leases.sweeperLagMs.p99)}`,
    ],
    ...(Object.keys(report.taken).length > 0 ? [['taken from drivers', list(report.taken)] as [string, string]] : []),
    ['misbehaviour', list(report.faults)],
    ['refusals', list(report.errors)],
    [
      'ran with',
      `seed ${report.seed}, ${report.drivers} drivers, city time × ${report.speedup}, decision ${policy.decisionTtlMs} ms, delivery ${policy.deliveryTtlMs} ms, patience ${policy.patienceMs} ms, positions every ${policy.positionIntervalMs} ms, ${policy.matching}`,
    ],
    ['took', `${report.wallSeconds} s`],
    [
      'verify',
      `${verification.violations} violations of ${verification.invariants.length} invariants in ${verification.checked} records checked`,
    ],
  ];
  const broken = verification.invariants.filter(({ violations }) => violations > 0);
  return [
    '',
    ...lines.map(([name, text]) => `${name.padEnd(20)}${text}`),
    ...broken.flatMap(({ id, title, violations, examples }) => [
      `  ${id} ${title}: ${violations}`,
      ...examples.map((e) => `    ${e}`),
    ]),
  ].join('\n');
}
