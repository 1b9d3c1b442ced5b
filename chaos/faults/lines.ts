/** Lines that break, one way or both, that are slow, lose answers, or say things twice. */
import type { Link } from '../arena.ts';
import type { Rule } from '../proxy.ts';
import { BACK_AFTER_CUT_MS, type Fault } from './fault.ts';

const LINKS: readonly Link[] = [
  'rider→api',
  'driver→api',
  'driver→gateway',
  'api→postgres',
  'gateway→postgres',
  'matcher→postgres',
];
/** Where one way or the other makes no difference to anybody. */
const OTHERS: readonly Link[] = [
  'sweeper→postgres',
  'outbox→postgres',
  'api→redis',
  'gateway→redis',
  'matcher→redis',
  'outbox→redis',
];

interface Broken {
  readonly name: string;
  readonly what: string;
  readonly rule: Rule;
  readonly kind?: Fault['kind'];
  readonly holdMs?: readonly [number, number];
}

function broken(link: Link, { name, what, rule, kind = 'line', holdMs = [1_000, 4_000] }: Broken): Fault {
  return {
    name: `${name}-${link.replace('→', '-')}`,
    what: `${link}: ${what}`,
    kind,
    holdMs,
    backWithinMs: BACK_AFTER_CUT_MS,
    ...(link.endsWith('→redis') && { needs: { redis: true } }),
    inject: async (arena) => {
      const before = arena.countsOf(link);
      const heal = arena.inject(link, rule);
      let said = '';
      return {
        target: link,
        heal: async () => {
          heal();
          const after = arena.countsOf(link);
          said = `${after.cut - before.cut} cut, ${after.repliesLost - before.repliesLost} answers lost, ${after.duplicated - before.duplicated} doubled`;
        },
        detail: () => said,
      };
    },
  };
}

const CUT: Broken = { name: 'cut', what: 'cut', rule: { kind: 'cut' } };
const DEAF: Broken = {
  name: 'deaf',
  what: 'nothing arrives at the server, its own words do',
  rule: { kind: 'stall', way: 'to-server' },
};
const MUTE: Broken = {
  name: 'mute',
  what: 'what is asked arrives, the answers don’t until it is healed',
  rule: { kind: 'stall', way: 'to-client' },
};
const HALF_OPEN: Broken = {
  name: 'half-open',
  what: 'connections are accepted, nothing is answered, what is written is lost',
  rule: { kind: 'swallow' },
};
const DELAY: Broken = {
  name: 'delay',
  what: '100 to 300 ms each way',
  rule: { kind: 'delay', ms: 100, jitterMs: 200 },
  holdMs: [4_000, 8_000],
};
const SLOW: Broken = {
  name: 'slow',
  what: '20 kB a second at most, and 50 ms for each piece',
  rule: { kind: 'slow', bytesPerS: 20_000 },
  holdMs: [4_000, 8_000],
};

const loseReplies = (link: Link, share: number, of?: RegExp): Fault =>
  broken(link, {
    name: 'lose-replies',
    what: `${Math.round(share * 100)} % of ${of === undefined ? 'what is asked' : 'the confirms'} is done, and its answer lost with the connection`,
    rule: { kind: 'lose-replies', share, ...(of !== undefined && { of }) },
    kind: 'replies',
    holdMs: [4_000, 8_000],
  });

const duplicate = (link: Link): Fault =>
  broken(link, {
    name: 'duplicate',
    what: 'every third request arrives a second time, up to a second late and after others',
    rule: { kind: 'duplicate', share: 0.33, afterMs: 800 },
    kind: 'replies',
    holdMs: [4_000, 8_000],
  });

export const lineFaults: readonly Fault[] = [
  ...LINKS.flatMap((link) => [CUT, DEAF, MUTE, HALF_OPEN].map((how) => broken(link, how))),
  ...OTHERS.flatMap((link) => [CUT, HALF_OPEN].map((how) => broken(link, how))),
  ...(['rider→api', 'driver→gateway', 'api→postgres'] as const).flatMap((link) =>
    [DELAY, SLOW].map((how) => broken(link, how)),
  ),
  loseReplies('rider→api', 0.2),
  loseReplies('driver→api', 0.5, /\/confirm HTTP/),
  loseReplies('driver→gateway', 0.05),
  loseReplies('api→postgres', 0.02),
  loseReplies('gateway→postgres', 0.02),
  loseReplies('matcher→postgres', 0.02),
  duplicate('rider→api'),
  duplicate('driver→api'),
];
