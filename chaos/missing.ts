/** A part that this machine doesn't have: said, and not failed. */
export class Missing extends Error {
  override name = 'Missing';
}
