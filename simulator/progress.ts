import type { RideCounts } from './ledger.ts';

/** How the city is doing, from the simulator's own knowledge. */
export interface Progress {
  readonly phase: 'opening' | 'running' | 'ending';
  /** Seconds since the simulation was started. */
  readonly wallS: number;
  /** The city's clock, milliseconds since its midnight; null before its day has begun. */
  readonly cityTimeMs: number | null;
  readonly drivers: { readonly total: number; readonly onDuty: number; readonly busy: number };
  /** Rides the demand holds in all. */
  readonly trips: number;
  readonly rides: RideCounts;
  /** Per wall second, since the last progress. */
  readonly rates: {
    readonly requests: number;
    readonly offers: number;
    readonly assigned: number;
    readonly completed: number;
  };
  /** Wall milliseconds, of the last measurements. */
  readonly latencyMs: { readonly requestToOffer: Recent; readonly requestToAssigned: Recent; readonly confirm: Recent };
  readonly offersSeen: number;
  readonly faults: number;
  readonly errors: number;
}

export interface Recent {
  readonly p50: number | null;
  readonly p99: number | null;
}

/** What progress is written to; `process.stdout` is one. */
export interface Screen {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

/** Shows progress as it comes: a panel redrawn in place on a terminal, one line a second anywhere else. */
export class ProgressView {
  readonly #screen: Screen;
  #drawnLines = 0;

  constructor(screen: Screen) {
    this.#screen = screen;
  }

  show(progress: Progress): void {
    if (this.#screen.isTTY !== true) {
      this.#screen.write(`${progressLine(progress)}\n`);
      return;
    }
    // A terminal that doesn't know its width says 0.
    const lines = progressPanel(progress, this.#screen.columns || 80);
    const home = this.#drawnLines === 0 ? '' : `\x1b[${this.#drawnLines}A\r`;
    this.#screen.write(`${home}\x1b[J${lines.join('\n')}\n`);
    this.#drawnLines = lines.length;
  }
}

/** For logs and pipes: the same words at the same places every second. */
export function progressLine(progress: Progress): string {
  const { rides, rates, latencyMs, drivers } = progress;
  return [
    `${seconds(progress.wallS)} ${clock(progress)}`,
    `drivers ${drivers.onDuty}/${drivers.total} busy ${drivers.busy}`,
    `requested ${rides.requested}/${progress.trips} (${perSecond(rates.requests)})`,
    `waiting ${rides.waiting} leased ${rides.offered} assigned ${rides.underWay}`,
    `done ${rides.completed} (${perSecond(rates.completed)}) cancelled ${rides.cancelled} no-drivers ${rides.noDriversAvailable}`,
    `offers ${progress.offersSeen} (${perSecond(rates.offers)})`,
    `offer ${recent(latencyMs.requestToOffer)} assigned ${recent(latencyMs.requestToAssigned)} confirm ${recent(latencyMs.confirm)} ms`,
    `faults ${progress.faults} errors ${progress.errors}`,
  ].join(' | ');
}

const BOLD = '\x1b[1m';
const DIM = '\x1b[2m';
const PLAIN = '\x1b[0m';

/** For terminals: no line is wider than `columns`, so that the next one can be drawn over it. */
export function progressPanel(progress: Progress, columns: number): string[] {
  const { rides, rates, latencyMs, drivers, trips } = progress;
  const ended = rides.completed + rides.cancelled + rides.noDriversAvailable;
  const row = (label: string, text: string): string => fit(`  ${label.padEnd(10)}${text}`, columns);
  const width = Math.max(10, Math.min(60, columns - 24));
  return [
    `${BOLD}${fit(`Cabrank  ${clock(progress)}  ${seconds(progress.wallS)}  ${progress.phase}`, columns)}${PLAIN}`,
    row('rides', `${bar(trips === 0 ? 0 : ended / trips, width)} ${ended}/${trips}`),
    row('now', `waiting ${rides.waiting}   leased ${rides.offered}   assigned ${rides.underWay}`),
    row('ended', `done ${rides.completed}   cancelled ${rides.cancelled}   no drivers ${rides.noDriversAvailable}`),
    row('drivers', `${drivers.onDuty} of ${drivers.total} on duty   ${drivers.busy} with a ride`),
    row(
      'rates',
      `requests ${perSecond(rates.requests)}   offers ${perSecond(rates.offers)}   assigned ${perSecond(rates.assigned)}   done ${perSecond(rates.completed)}`,
    ),
    row(
      'p50/p99',
      `request→offer ${recent(latencyMs.requestToOffer)}   →assigned ${recent(latencyMs.requestToAssigned)}   confirm ${recent(latencyMs.confirm)} ms`,
    ),
    `${DIM}${row('faults', `${progress.faults} injected   ${progress.errors} refusals and lost answers`)}${PLAIN}`,
  ];
}

function bar(share: number, width: number): string {
  const full = Math.round(Math.min(1, share) * width);
  return '█'.repeat(full) + '░'.repeat(width - full);
}

const fit = (text: string, columns: number): string =>
  text.length > columns ? `${text.slice(0, columns - 1)}…` : text;
const seconds = (wallS: number): string => `${wallS.toFixed(0).padStart(4)} s`;
const perSecond = (rate: number): string => `${rate.toFixed(0)}/s`;
const recent = ({ p50, p99 }: Recent): string => `${short(p50)}/${short(p99)}`;
const short = (ms: number | null): string => (ms === null ? '–' : ms.toFixed(0));

function clock({ cityTimeMs }: Progress): string {
  return cityTimeMs === null ? '--:--:--' : new Date(cityTimeMs).toISOString().slice(11, 19);
}
