/** Reads of one kind that are asked for at the same time share a statement: a thousand drivers who come back at once. */

const KEYS_MAX = 100;
/** Statements under way at the same time, where more keys wait than one takes. */
const READS_AT_ONCE = 2;
/** A statement that takes longer may be on a connection that is dead: the next ones don't wait for it. */
const PATIENCE_MS = 250;

interface Waiter<Value> {
  readonly key: string;
  readonly resolve: (value: Value | null) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * The values of single keys, null for one that `read` doesn't return; rejects with its error. What is asked for is read
 * after it was asked for: while a statement is under way the next keys gather.
 */
export function gather<Value>(
  read: (keys: string[]) => Promise<ReadonlyMap<string, Value>>,
): (key: string) => Promise<Value | null> {
  let waiting: Waiter<Value>[] = [];
  let underWay = 0;

  function start(): void {
    while (waiting.length > 0 && (underWay === 0 || (waiting.length >= KEYS_MAX && underWay < READS_AT_ONCE))) {
      const set = waiting.slice(0, KEYS_MAX);
      waiting = waiting.slice(KEYS_MAX);
      underWay += 1;
      const patience = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS).unref());
      void Promise.race([readSet(set), patience]).finally(() => {
        underWay -= 1;
        start();
      });
    }
  }

  async function readSet(set: readonly Waiter<Value>[]): Promise<void> {
    try {
      const values = await read(set.map(({ key }) => key));
      for (const { key, resolve } of set) resolve(values.get(key) ?? null);
    } catch (error) {
      for (const { reject } of set) reject(error);
    }
  }

  return (key) =>
    new Promise((resolve, reject) => {
      waiting.push({ key, resolve, reject });
      // What else this turn of the event loop brings comes along.
      if (waiting.length === 1) setImmediate(start);
    });
}
