/** The jobs benchmark: resource leases under faults, under load, and under a crowd. */
import { signToken } from '../../src/client/token.ts';
import { connectDatabase } from '../../src/database/connection.ts';
import { startMember, type Verified, verifyRecords } from '../member.ts';
import type { Percentiles } from '../percentiles.ts';
import { benchExpiry, type ExpiryFigures } from './expiry.ts';
import { benchRenewals, type RenewalFigures } from './renewals.ts';
import { benchSingleton, type SingletonFigures } from './singleton.ts';
import { benchWaiters, type WaiterFigures } from './waiters.ts';

export interface JobsOptions {
  /** How long the renewals go on. */
  readonly seconds: number;
  /** Faults of each kind. */
  readonly faults: number;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
}

export interface JobsFigures {
  readonly singleton: SingletonFigures;
  readonly renewals: RenewalFigures;
  readonly expiry: ExpiryFigures;
  readonly waiters: WaiterFigures;
  readonly verify: Verified;
}

export async function benchJobs({ seconds, faults, say, signal }: JobsOptions): Promise<JobsFigures> {
  await using service = await startMember(['serve', '--temporary']);
  await using database = connectDatabase(service.databaseUrl, { hotConnections: 2, coldConnections: 1 });
  const sql = database.cold;
  const token = await signToken({ secret: service.authSecret, sub: 'bench', role: 'service', ttlS: 3600 });
  const part = async <Figures>(what: string, measure: () => Promise<Figures>): Promise<Figures> => {
    signal.throwIfAborted();
    say(`${what} …`);
    return measure();
  };
  const waiters = await part('waiters for one resource', () => benchWaiters(sql, service, token));
  const expiry = await part('a herd of leases that expire within a second', () => benchExpiry(sql, service, token));
  const renewals = await part('holders that renew', () => benchRenewals(service, token, seconds));
  const singleton = await part('a singleton whose holder is killed, suspended, told to stop', () =>
    benchSingleton(sql, service, faults),
  );
  const verify = await part('verifying the records', () => verifyRecords(service.databaseUrl));
  return { singleton, renewals, expiry, waiters, verify };
}

export const isSound = ({ singleton, renewals, waiters, verify }: JobsFigures): boolean =>
  singleton.overlappingTerms + singleton.staleWrites + renewals.lost + verify.violations === 0 &&
  singleton.refusedWrites > 0 &&
  waiters.inOrder;

export function formatJobs({ singleton, renewals, expiry, waiters, verify }: JobsFigures): string {
  const ms = ({ p50, p95, p99 }: Percentiles): string => `p50 ${p50}, p95 ${p95}, p99 ${p99} ms`;
  const { kill, pause, resign } = singleton.takeoverMs;
  const { cpu } = renewals;
  return [
    `singleton  TTL ${singleton.ttlMs} ms, ${singleton.terms} terms in ${singleton.seconds.toFixed(0)} s: ${singleton.overlappingTerms} overlap; ` +
      `${singleton.writes} writes, ${singleton.staleWrites} by a stale fence, ${singleton.refusedWrites} refused`,
    `           taken over after kill ${kill.p50}–${kill.max} ms (${kill.times} ×), pause ${pause.p50}–${pause.max} ms (${pause.times} ×), resignation ${resign.p50}–${resign.max} ms (${resign.times} ×)`,
    `renewals   ${renewals.holders} holders, TTL ${renewals.ttlMs} ms, ${renewals.seconds} s: ${renewals.renewals} renewals, ${renewals.lost} lost, ` +
      `${renewals.renewalsPerCommit} a commit; ${ms(renewals.renewMs)}`,
    ...(cpu === null
      ? []
      : [`           CPU of one core: service ${cpu.service}, database ${cpu.database}, load ${cpu.load}`]),
    `expiry     ${expiry.leases} leases end within a second, ${expiry.acquiresPerSecond} acquires/s: p99 quiet ${expiry.quietMs.map(({ p99 }) => p99).join(', ')} ms, ` +
      `with the herd ${expiry.herdMs.map(({ p99 }) => p99).join(', ')} ms: ratio ${expiry.p99Ratio}; swept ${expiry.sweptAfterMs.join(', ')} ms after`,
    `waiters    ${waiters.waiters} on one resource, ${waiters.inOrder ? 'in order' : 'NOT IN ORDER'}: handed over in ${ms(waiters.handoverMs)}, ` +
      `${waiters.transactionsPerHandover} transactions each; idle ${waiters.idleTransactionsPerSecond.waiting} transactions/s waiting, ${waiters.idleTransactionsPerSecond.none} without`,
    `verify     ${verify.violations} violations of ${verify.checked} records`,
  ].join('\n');
}
