/** What can go wrong, by code, and which of the system's own errors may pass. */

/**
 * - `unsupported_platform`: there are no binaries for this system, or they aren't installed
 * - `binaries_unusable`: the binaries can't be run by the server's user, not even from a copy
 * - `no_os_user`: we are root and there is no user to run the server as
 * - `invalid_setting`: a name or value that can't stand in postgresql.conf
 * - `data_dir_unusable`: the data folder can't be made, entered or written
 * - `data_dir_in_use`: another live process runs a database on the data folder
 * - `orphan_not_stopped`: a server left by a killed process holds the data folder and doesn't end
 * - `port_taken`: somebody else listens on the port asked for
 * - `init_failed`: initdb failed
 * - `start_failed`: the server ended or stayed silent before it was ready; the message has the end of its log
 * - `stop_failed`: the server is still there after its last deadline
 */
export type EmbeddedDatabaseErrorCode =
  | 'unsupported_platform'
  | 'binaries_unusable'
  | 'no_os_user'
  | 'invalid_setting'
  | 'data_dir_unusable'
  | 'data_dir_in_use'
  | 'orphan_not_stopped'
  | 'port_taken'
  | 'init_failed'
  | 'start_failed'
  | 'stop_failed';

export class EmbeddedDatabaseError extends Error {
  override readonly name = 'EmbeddedDatabaseError';
  readonly code: EmbeddedDatabaseErrorCode;

  constructor(code: EmbeddedDatabaseErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** A catch handler that lets these system errors pass and throws every other one again. */
export function ignore(...codes: string[]): (error: unknown) => undefined {
  return (error) => {
    if (error instanceof Error && 'code' in error && codes.includes(String(error.code))) return undefined;
    throw error;
  };
}
