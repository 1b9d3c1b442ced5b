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
