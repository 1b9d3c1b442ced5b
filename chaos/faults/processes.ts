/** Processes that die, or stand still for longer than a lease lasts and then go on as if nothing had been. */
import { type Role, ROLES } from '../arena.ts';
import { BACK_AFTER_CUT_MS, BACK_AFTER_RETURN_MS, type Fault } from './fault.ts';

const killRole = (role: Role): Fault => ({
  name: `kill-${role}`,
  what: `kill -9 of one ${role}, which is started again`,
  kind: 'kill',
  holdMs: [200, 1_500],
  backWithinMs: BACK_AFTER_RETURN_MS,
  inject: async (arena, random) => {
    const victim = random.pick(arena.processesOf(role));
    await victim.kill();
    return { target: victim.name, heal: () => victim.start() };
  },
});

const pauseRole = (role: Role): Fault => ({
  name: `pause-${role}`,
  what: `SIGSTOP of one ${role} for longer than any lease lasts, then SIGCONT`,
  kind: 'pause',
  holdMs: [2_200, 5_000],
  backWithinMs: BACK_AFTER_CUT_MS,
  inject: async (arena, random) => {
    const victim = random.pick(arena.processesOf(role));
    victim.pause();
    return { target: victim.name, heal: async () => victim.resume() };
  },
});

const killPostgres: Fault = {
  name: 'kill-postgres',
  what: 'kill -9 of PostgreSQL, which recovers from its log',
  kind: 'kill',
  holdMs: [200, 2_000],
  backWithinMs: BACK_AFTER_RETURN_MS,
  inject: async (arena) => {
    await arena.killDatabase();
    return { target: 'postgres', heal: () => arena.startDatabase() };
  },
};

const failover: Fault = {
  name: 'failover',
  what: 'kill -9 of PostgreSQL, and its synchronous standby takes over',
  kind: 'kill',
  holdMs: [200, 1_500],
  backWithinMs: BACK_AFTER_RETURN_MS,
  prepare: (arena) => arena.makeStandby(),
  inject: async (arena) => {
    await arena.killDatabase();
    return { target: 'postgres', heal: () => arena.promoteStandby() };
  },
};

const killAll: Fault = {
  name: 'kill-everything',
  what: 'kill -9 of every process of the service and of PostgreSQL at once',
  kind: 'kill',
  holdMs: [200, 1_000],
  backWithinMs: BACK_AFTER_CUT_MS,
  inject: async (arena) => {
    await Promise.all([arena.killDatabase(), ...arena.processes.map((each) => each.kill())]);
    return {
      target: 'everything',
      heal: async () => {
        await arena.startDatabase();
        await Promise.all(arena.processes.map((each) => each.start()));
      },
    };
  },
};

/** As a deployment does it: the next one only when the last one is back. */
const rollingRestart: Fault = {
  name: 'rolling-restart',
  what: 'SIGTERM to each process in turn, under load, each started again',
  kind: 'restart',
  holdMs: [0, 0],
  backWithinMs: BACK_AFTER_RETURN_MS,
  inject: async (arena) => {
    const took: string[] = [];
    for (const each of arena.processes) {
      const askedAtMs = performance.now();
      await each.drain();
      const goneAtMs = performance.now();
      await each.start();
      took.push(
        `${each.name} gone after ${Math.round(goneAtMs - askedAtMs)} ms, up after ${Math.round(performance.now() - goneAtMs)} ms`,
      );
    }
    return { target: 'everything', heal: async () => {}, detail: () => took.join('; ') };
  },
};

export const processFaults: readonly Fault[] = [
  killPostgres,
  ...ROLES.map(killRole),
  killAll,
  failover,
  ...ROLES.map(pauseRole),
  rollingRestart,
];
