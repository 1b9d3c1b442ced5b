/**
 * Does something with every item, at most `atOnceMax` at a time and in their order. Rejects with the first failure;
 * what had begun by then goes on by itself.
 */
export async function eachBounded<Item>(
  items: readonly Item[],
  atOnceMax: number,
  act: (item: Item, index: number) => Promise<unknown>,
): Promise<void> {
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < items.length) {
      const index = next++;
      try {
        await act(items[index] as Item, index);
      } catch (error) {
        next = items.length;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnceMax, items.length) }, work));
}
