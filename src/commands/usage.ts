/** Command-line options: strict, so that a misspelt flag is an error and not a default. */
import { parseArgs, type ParseArgsConfig } from 'node:util';

/** The command line can't be understood: exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError';
}

type Options = NonNullable<ParseArgsConfig['options']>;
type Parsed<O extends Options> = ReturnType<
  typeof parseArgs<{ args: string[]; options: O & { help: { type: 'boolean' } } }>
>['values'];

/** Parses `args`; prints `help` and returns null when asked for it. Throws UsageError. */
export function readOptions<O extends Options>(args: string[], options: O, help: string): Parsed<O> | null {
  try {
    const { values } = parseArgs({ args, options: { ...options, help: { type: 'boolean' } }, strict: true });
    if ((values as { help?: boolean }).help === true) {
      console.log(help.trim());
      return null;
    }
    return values as Parsed<O>;
  } catch (error) {
    throw new UsageError(`${(error as Error).message}\n\n${help.trim()}`);
  }
}
