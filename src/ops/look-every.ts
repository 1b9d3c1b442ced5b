/** Looks every `ms`, one look at a time; the returned function stops it and waits for the look under way. */
export function lookEvery(
  ms: number,
  look: () => Promise<void>,
  onFailure: (error: unknown) => void,
): () => Promise<void> {
  let looking: Promise<void> | null = null;
  const timer = setInterval(() => {
    looking ??= look()
      .catch(onFailure)
      .finally(() => {
        looking = null;
      });
  }, ms);
  return async () => {
    clearInterval(timer);
    await looking;
  };
}

/**
 * Looks in `inMs`, and then again as each look says, or `onFailure` of one that failed; the returned function stops it and
 * waits for the look under way.
 */
export function lookAgain(
  inMs: number,
  look: () => Promise<number>,
  onFailure: (error: unknown) => number,
): () => Promise<void> {
  let isStopped = false;
  let looking: Promise<void> = Promise.resolve();
  let timer: NodeJS.Timeout;
  const wait = (ms: number): void => {
    if (isStopped) return;
    timer = setTimeout(() => {
      looking = look().catch(onFailure).then(wait);
    }, ms);
  };
  wait(inMs);
  return async () => {
    isStopped = true;
    clearTimeout(timer);
    await looking;
  };
}

export interface Looks {
  /** Looks at once, or as soon as the look under way is over. */
  readonly wake: () => void;
  readonly stop: () => Promise<void>;
}

/** Looks now, `ms` after each look, and whenever it is woken, one look at a time; `stop` waits for the look under way. */
export function lookWhenWoken(ms: number, look: () => Promise<void>, onFailure: (error: unknown) => void): Looks {
  let isStopped = false;
  let isWoken = false;
  let looking: Promise<void> | null = null;
  let timer: NodeJS.Timeout | undefined;
  const begin = (): void => {
    clearTimeout(timer);
    isWoken = false;
    looking = look()
      .catch(onFailure)
      .finally(() => {
        looking = null;
        if (!isStopped) timer = setTimeout(begin, isWoken ? 0 : ms);
      });
  };
  begin();
  return {
    wake: () => {
      isWoken = true;
      if (looking === null && !isStopped) begin();
    },
    stop: async () => {
      isStopped = true;
      clearTimeout(timer);
      await looking;
    },
  };
}
