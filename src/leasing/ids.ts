/** The ids and tokens that the server makes. */
import { randomFillSync } from 'node:crypto';

/** Random bytes are drawn in bulk: a call for each id was 4 % of a busy process. */
const pool = Buffer.alloc(16 * 256);
let used = pool.length;

function random16(): Buffer {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const bytes = Buffer.from(pool.subarray(used, used + 16));
  pool.fill(0, used, used + 16);
  used += 16;
  return bytes;
}

/**
 * A UUIDv7 (RFC 9562) whose twelve `rand_a` bits are the region's number, so that an id alone tells where its row
 * lives; 62 random bits follow.
 */
export function newId(region: number, nowMs: number = Date.now()): string {
  const bytes = random16();
  bytes.writeUIntBE(nowMs, 0, 6);
  bytes.writeUInt16BE(0x7000 | region, 6);
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The region's number in an id, or null if the server can't have made it. */
export function regionOf(id: string): number | null {
  if (!/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id)) return null;
  const region = Number.parseInt(id.slice(15, 18), 16);
  return region === 0 ? null : region;
}

/** 128 random bits in 22 characters: whoever lacks it can neither confirm nor release. */
export const newLeaseToken = (): string => random16().toString('base64url');
