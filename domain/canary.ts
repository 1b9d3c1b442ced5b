/** Which rides run under a policy that is being tried on a share of them. */

/** A new version beside the current one. */
export interface Canary {
  readonly version: number;
  /** Of the rides, above 0 and up to 1. */
  readonly share: number;
}

/**
 * Decided by the ride's id and the version alone: the same wherever and whenever it is asked, and by another draw for the
 * next version. Raising the share keeps the rides that were in.
 */
export const isInCanary = (rideId: string, { version, share }: Canary): boolean =>
  hash(`${version}/${rideId}`) / 2 ** 32 < share;

/** FNV-1a, 32 bits, with the finaliser of MurmurHash3: nearly equal ids fall far apart. */
function hash(text: string): number {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}
