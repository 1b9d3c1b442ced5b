/** What an embedded service keeps in its data folder beside the database: the secret of its tokens. */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

export const DEFAULT_DATA_DIR = 'data';
const SECRET_FILE = 'auth-secret';

async function readIfThere(path: string): Promise<string | null> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

/** The secret that signs this service's tokens; made once, readable by its owner alone. */
export async function keepAuthSecret(dataDir: string): Promise<string> {
  const path = join(dataDir, SECRET_FILE);
  await mkdir(dataDir, { recursive: true });
  const made = randomBytes(32).toString('base64url');
  try {
    await writeFile(path, `${made}\n`, { mode: 0o600, flag: 'wx' });
    return made;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return (await readIfThere(path))!;
}

export const readAuthSecret = (dataDir: string): Promise<string | null> => readIfThere(join(dataDir, SECRET_FILE));
