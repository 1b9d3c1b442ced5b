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
    readonly unserved: Readonly<Record<string, number>>;
    readonly sweeperLagMs: { readonly p50: number | null; readonly p99: number | null };
  };
}

export type Report = ReturnType<typeof buildReport>;

export function buildReport(result: SimulationResult, verification: Verification, conflicts: number) {
  const { offers, leasesGranted, sweeperLagMs, unserved } = verification.facts;
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
    leases: { granted: leasesGranted, conflicts, sweeperLagMs },
    verify: { checked: verification.checked, violations: verification.violations },
  };
}

const METRICS_DEADLINE_MS = 5_000;

/** Pairs that a round wanted and somebody else was quicker to; summed over the processes that still answer. */
export async function readConflicts(urls: readonly string[]): Promise<number> {
  const texts = await Promise.all(
    urls.map((url) =>
      fetch(`${url}/metrics`, { signal: AbortSignal.timeout(METRICS_DEADLINE_MS) })
        .then((answer) => answer.text())
        .catch(() => ''),
    ),
  );
  let conflicts = 0;
  for (const [, outcome, value] of texts
    .join('\n')
    .matchAll(/^cabrank_transitions_total\{transition="lease",outcome="(\w+)"\} (\d+)/gm)) {
    if (outcome !== 'applied' && outcome !== 'repeated') conflicts += Number(value);
  }
  return conflicts;
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
      `${leases.granted} granted, ${leases.conflicts} pairs refused; lapsed ones freed after p50 ${ms(leases.sweeperLagMs.p50)}, p99 ${ms(leases.sweeperLagMs.p99)}`,
    ],
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
