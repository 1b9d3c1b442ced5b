/** Clocks that jump. Only those that people read: what counts durations isn't moved by anybody. */
import { BACK_AFTER_CUT_MS, type Fault } from './fault.ts';

const HOUR_S = 3_600;

const appClock = (name: string, what: string, offsetS: (index: number) => number): Fault => ({
  name,
  what,
  kind: 'clock',
  needs: { clocks: ['app'] },
  holdMs: [4_000, 8_000],
  backWithinMs: BACK_AFTER_CUT_MS,
  inject: async (arena) => {
    await Promise.all(arena.processes.map((each, index) => arena.setClock(each.name, offsetS(index))));
    return {
      target: 'every process of the service',
      heal: async () => {
        await Promise.all(arena.processes.map((each) => arena.setClock(each.name, 0)));
      },
    };
  },
});

const databaseClock = (name: string, what: string, offsetS: number): Fault => ({
  name,
  what,
  kind: 'clock',
  needs: { clocks: ['database'] },
  holdMs: [4_000, 8_000],
  backWithinMs: BACK_AFTER_CUT_MS,
  // There or on the way back it steps backwards.
  stretchesTerms: true,
  inject: async (arena) => {
    await arena.setClock('database', offsetS);
    return { target: 'postgres', heal: () => arena.setClock('database', 0) };
  },
});

export const clockFaults: readonly Fault[] = [
  appClock('clock-app-ahead', 'the clocks of the service’s processes an hour ahead', () => HOUR_S),
  appClock('clock-app-behind', 'the clocks of the service’s processes an hour behind', () => -HOUR_S),
  appClock('clock-app-apart', 'the processes’ clocks up to an hour apart, each another way', (index) =>
    index % 2 === 0 ? HOUR_S : -HOUR_S,
  ),
  databaseClock('clock-database-ahead', 'the database’s clock an hour ahead, then back', HOUR_S),
  databaseClock('clock-database-behind', 'the database’s clock ten minutes behind, then back', -600),
];
