/** `cabrank migrate`: brings the database of DATABASE_URL to what this version needs. */
import { migrateWhenUp } from './reach.ts';
import { readOptions, UsageError } from './usage.ts';

const help = `
cabrank migrate       migrates the database of DATABASE_URL (serve does so itself)
`;

export async function migrateCommand(args: string[]): Promise<number> {
  if (readOptions(args, {}, help) === null) return 0;
  const url = process.env['DATABASE_URL'];
  if (!url) throw new UsageError('DATABASE_URL is needed');
  await migrateWhenUp(url, (text) => console.error(text));
  console.log('migrated');
  return 0;
}
