/** Waiting for a database that isn't up yet. */
import { setTimeout as delay } from 'node:timers/promises';
import { isUnreachable } from '../database/connection.ts';
import { migrate } from '../database/migrate.ts';

const ATTEMPTS = 10;
const BETWEEN_MS = 1_500;
/** What everything is tested with. Migrations tell the planner of 18 what to expect of a young database. */
const POSTGRESQL = 18;

/**
 * Migrates the database, waiting for it to come up with a message for each attempt; gives up after about 15 s. Says so when the
 * server is older than what Cabrank is tested with.
 */
export async function migrateWhenUp(url: string, say: (text: string) => void): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      const version = await migrate(url);
      if (version < POSTGRESQL)
        say(
          `this is PostgreSQL ${version}; Cabrank is tested with ${POSTGRESQL}, and slow on a young database before it`,
        );
      return;
    } catch (error) {
      if (!isUnreachable(error)) throw error;
      const where = new URL(url).host;
      if (attempt === ATTEMPTS) {
        throw new Error(`the database at ${where} can't be reached: ${describe(error)}`, { cause: error });
      }
      say(`the database at ${where} isn't there (${describe(error)}); attempt ${attempt} of ${ATTEMPTS}`);
      await delay(BETWEEN_MS);
    }
  }
}

function describe(error: unknown): string {
  const { code, message } = error as { code?: string; message?: string };
  return code ?? message ?? String(error);
}
