/** What takes part in the lease benchmark. */

export interface Contender {
  readonly name: string;
  /** What is on disk by the time a cycle's answers are there. */
  readonly durability: string;
  /** How it is driven, in a line: as its own documentation advises for speed. */
  readonly driven: string;
  /** Null: it isn't on this machine. */
  readonly open: () => Promise<Session | null>;
}

export interface Session extends AsyncDisposable {
  /** Goes through whole cycles for so long, and resolves when those under way are over. */
  readonly run: (ms: number) => Promise<Run>;
}

export interface Run {
  readonly cycles: number;
  readonly seconds: number;
}

/** Runs `lanes` loops at the same time until the time is over; each turn says how many cycles it was. */
export async function inLanes(lanes: number, ms: number, turn: (lane: number) => Promise<number>): Promise<Run> {
  const startedMs = performance.now();
  const done = await Promise.all(
    Array.from({ length: lanes }, async (_, lane) => {
      let cycles = 0;
      while (performance.now() - startedMs < ms) cycles += await turn(lane);
      return cycles;
    }),
  );
  return { cycles: done.reduce((sum, each) => sum + each, 0), seconds: (performance.now() - startedMs) / 1000 };
}
