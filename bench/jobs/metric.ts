/** One sample of the service's metrics, by its whole name with labels; 0 when it isn't there yet. */
export async function readMetric(url: string, sample: string): Promise<number> {
  const answer = await fetch(`${url}/metrics`, { signal: AbortSignal.timeout(10_000) });
  const line = (await answer.text()).split('\n').find((each) => each.startsWith(`${sample} `));
  return line === undefined ? 0 : Number(line.slice(sample.length + 1));
}
