/** A small disk of its own for the database: a file, mounted through a loop device. Only root may. */
import { execFile } from 'node:child_process';
import { appendFile, mkdir, rm, stat, statfs, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Missing } from './missing.ts';

const run = promisify(execFile);
const DISK_BYTES = 800 * 1024 * 1024;
const BLOCK_BYTES = 4_096;
const COMMAND_DEADLINE_MS = 30_000;
const THROTTLE = ['/sys', 'fs', 'cgroup', 'blkio', 'cabrank-chaos'].join('/');

export interface Disk extends AsyncDisposable {
  /** Where it is mounted. */
  readonly path: string;
  /** Takes every byte that is left; returns how many there were. */
  readonly fill: () => Promise<number>;
  readonly drain: () => Promise<void>;
  /** Resolves when it isn't full. */
  readonly hasRoom: () => Promise<void>;
  /** Limits what these processes write; null: no limit any more. */
  readonly throttle: (pids: readonly number[], bytesPerS: number | null) => Promise<void>;
}

export async function mountDisk(folder: string): Promise<Disk> {
  const image = join(folder, 'disk.img');
  const path = join(folder, 'disk');
  const filler = join(path, 'filler');
  if (process.getuid?.() !== 0) throw new Missing('only root can mount a disk for the database');
  await mkdir(path);
  await writeFile(image, '');
  await truncate(image, DISK_BYTES);
  try {
    await command('mkfs.ext4', '-q', '-m', '0', '-E', 'lazy_itable_init=0', image);
    await command('mount', '-o', 'loop', image, path);
  } catch (error) {
    throw new Missing(`this machine mounts no loop device: ${(error as Error).message.trim()}`);
  }
  let drained = Promise.withResolvers<void>();
  drained.resolve();
  return {
    path,
    hasRoom: () => drained.promise,
    fill: async () => {
      drained = Promise.withResolvers();
      const free = async (): Promise<number> => {
        const { bavail, bsize } = await statfs(path);
        return bavail * bsize;
      };
      const before = await free();
      // Reserved without writing: a disk busy with that would be another fault.
      await command('fallocate', '-l', `${before}`, filler).catch(() => {});
      for (let bytes = await free(); bytes >= BLOCK_BYTES; bytes = Math.floor(bytes / 2))
        await appendFile(filler, Buffer.alloc(bytes, 1)).catch(() => {});
      return before - (await free());
    },
    drain: async () => {
      await rm(filler, { force: true });
      drained.resolve();
    },
    throttle: (pids, bytesPerS) => throttle(path, pids, bytesPerS),
    [Symbol.asyncDispose]: async () => {
      await command('umount', '-l', path);
      await rm(image, { force: true });
    },
  };
}

/** By the kernel's control group for block devices, first version; where it isn't there the fault is skipped. */
async function throttle(path: string, pids: readonly number[], bytesPerS: number | null): Promise<void> {
  const { dev } = await stat(path);
  const device = `${(dev >> 8) & 0xfff}:${dev & 0xff}`;
  try {
    await mkdir(THROTTLE, { recursive: true });
    for (const what of ['write_bps_device', 'read_bps_device'])
      await writeFile(join(THROTTLE, `blkio.throttle.${what}`), `${device} ${bytesPerS ?? 0}`);
    const group = bytesPerS === null ? join(THROTTLE, '..') : THROTTLE;
    for (const pid of pids) await writeFile(join(group, 'cgroup.procs'), `${pid}`).catch(() => {});
  } catch (error) {
    throw new Missing(`this kernel limits no disk: ${(error as Error).message}`);
  }
}

const command = async (file: string, ...args: readonly string[]): Promise<void> => {
  await run(file, args, { timeout: COMMAND_DEADLINE_MS });
};
