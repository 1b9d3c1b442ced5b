#!/usr/bin/env node
/** The command line: `cabrank COMMAND`, each with --help. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { ConfigError } from './config.ts';
import { UsageError } from './commands/usage.ts';

interface Command {
  readonly summary: string;
  readonly run: (args: string[]) => Promise<number>;
}

/** The simulator uses this service from outside, so it is a program of its own. */
const program =
  (path: string) =>
  (args: string[]): Promise<number> =>
    new Promise((resolve, reject) => {
      const file = fileURLToPath(new URL(path, import.meta.url));
      const child = spawn(process.execPath, [file, ...args], { stdio: 'inherit' });
      // The terminal sends its signals to the whole group; others reach only us.
      for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => child.kill(signal));
      child.once('error', reject);
      child.once('exit', (code) => resolve(code ?? 1));
    });

const commands: Readonly<Record<string, Command>> = {
  serve: {
    summary: 'run the service: every role, or some of them',
    run: async (args) => (await import('./commands/serve.ts')).serve(args),
  },
  demo: {
    summary: 'start everything, drive a city through it, report, and stop',
    run: (args) => program('../simulator/main.ts')(['demo', ...args]),
  },
  simulate: {
    summary: 'drive a city through a running service',
    run: (args) => program('../simulator/main.ts')(['simulate', ...args]),
  },
  generate: {
    summary: 'request rides without end, from one of the processes that stand for it',
    run: program('../simulator/generator/main.ts'),
  },
  verify: {
    summary: 'check the invariants from the records of a database',
    run: async (args) => (await import('./commands/verify.ts')).verifyCommand(args),
  },
  bench: {
    summary: 'measure: the highest rate of rides held, beside its floor',
    run: program('../bench/main.ts'),
  },
  chaos: {
    summary: 'break the service under load and see whether its promises held',
    run: program('../chaos/main.ts'),
  },
  token: {
    summary: 'make a token for a role and subject',
    run: async (args) => (await import('./commands/token.ts')).token(args),
  },
  migrate: {
    summary: 'bring a database to what this version needs',
    run: async (args) => (await import('./commands/migrate.ts')).migrateCommand(args),
  },
  database: {
    summary: 'run the embedded database alone, migrated',
    run: async (args) => (await import('./commands/database.ts')).databaseCommand(args),
  },
  openapi: {
    summary: 'print the OpenAPI document',
    run: async (args) => (await import('./commands/openapi.ts')).openapi(args),
  },
};

const help = (): string =>
  [
    'cabrank COMMAND [options]',
    '',
    ...Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(10)} ${summary}`),
    '',
    'cabrank COMMAND --help tells its options.',
  ].join('\n');

async function main([name, ...args]: string[]): Promise<number> {
  if (name === undefined || name === '--help' || name === '-h' || name === 'help') {
    console.log(help());
    return name === undefined ? 2 : 0;
  }
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) {
    console.error(`there is no command ${name}\n\n${help()}`);
    return 2;
  }
  try {
    return await command.run(args);
  } catch (error) {
    if (error instanceof UsageError || error instanceof ConfigError) {
      console.error(`cabrank ${name}: ${error.message}`);
      return error instanceof UsageError ? 2 : 1;
    }
    console.error(`cabrank ${name}: ${error instanceof Error ? error.message : String(error)}`);
    if (process.env['LOG_LEVEL'] === 'debug') console.error(error);
    return 1;
  }
}

const code = await main(process.argv.slice(2));
// A command that failed half-way may have left connections open, and they would keep the process alive.
if (code === 0) process.exitCode = 0;
else process.exit(code);
