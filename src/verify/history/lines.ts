/** A history's lines, as a stream: whatever its length, one piece of the file is in memory at a time. */
import { createReadStream } from 'node:fs';
import { historyLine, type HistoryCommand, type HistoryLine } from '../history.ts';

/** Far longer than any line: what goes on for more is no history. */
const LINE_MAX_CHARS = 1_000_000;

export interface Line {
  /** From 1. */
  readonly number: number;
  readonly text: string;
  /** The file ends in the middle of it, or just without a line end. */
  readonly isOpen: boolean;
}

/** @throws the file system's error */
export async function* linesOf(path: string): AsyncGenerator<Line[]> {
  let rest = '';
  let number = 0;
  for await (const chunk of createReadStream(path, { encoding: 'utf8', highWaterMark: 256 * 1024 })) {
    const texts = (rest + (chunk as string)).split('\n');
    rest = texts.pop()!;
    const lines = texts.map((text): Line => ({ number: ++number, text, isOpen: false }));
    if (rest.length > LINE_MAX_CHARS) {
      lines.push({ number: ++number, text: rest.slice(0, LINE_MAX_CHARS), isOpen: true });
      rest = '';
    }
    yield lines;
  }
  if (rest !== '') yield [{ number: number + 1, text: rest, isOpen: true }];
}

export type Parsed = { readonly line: HistoryLine } | { readonly problem: string };

/** A problem names fields and never their values: one of them may be a secret. */
export function parseLine({ text, isOpen }: Line): Parsed {
  let said: unknown;
  try {
    said = JSON.parse(text);
  } catch {
    return { problem: isOpen ? 'is cut off' : 'isn’t JSON' };
  }
  const parsed = historyLine.safeParse(said);
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    return { problem: `isn’t of the format: ${issue!.path.join('.')} ${issue!.code}`.replace(/ +/g, ' ') };
  }
  const line = parsed.data;
  const lacks = line.kind === 'command' ? whatLacks(line) : null;
  return lacks === null ? { line } : { problem: `a ${line.kind} lacks ${lacks}` };
}

type Field = keyof HistoryCommand;
const TERM: readonly Field[] = ['offerId', 'tokenSha256'];
const TRIP: readonly Field[] = ['rideId', 'driverId'];

/** What must be known of an ask; and of its answer, when it was yes. */
const needs: Readonly<Record<HistoryCommand['command'], { asked: readonly Field[]; granted: readonly Field[] }>> = {
  request: { asked: [], granted: ['rideId'] },
  cancel: { asked: ['rideId'], granted: [] },
  offer: { asked: TRIP, granted: ['offerId', 'fence'] },
  online: { asked: ['driverId'], granted: [] },
  offline: { asked: ['driverId'], granted: [] },
  received: { asked: TERM, granted: [] },
  confirm: { asked: TERM, granted: ['fence', 'assignedAt'] },
  decline: { asked: TERM, granted: [] },
  release: { asked: TERM, granted: [] },
  arrive: { asked: TRIP, granted: [] },
  start: { asked: TRIP, granted: [] },
  complete: { asked: TRIP, granted: [] },
};

function whatLacks(command: HistoryCommand): string | null {
  const { asked, granted } = needs[command.command];
  const missing = [...asked, ...(command.outcome === 'ok' ? granted : [])].find(
    (field) => command[field] === undefined,
  );
  if (missing !== undefined) return missing;
  if (command.outcome === 'unknown') return null;
  if (command.answeredAtMs === null) return 'answeredAtMs';
  return command.outcome === 'refused' && command.code === undefined ? 'code' : null;
}

const JWT = /eyJ[\w-]{5,}\.[\w-]{5,}\./;
const TOKEN_FIELD = /"\w*token"\s*:/i;
/** The form of a lease token. Names may have it too: whether it is one is known by its hash (see Stories.suspects). */
const TOKEN_LIKE = /(?<![\w-])[\w-]{22}(?![\w-])/g;
const TOKEN_CHARS = 22;

/**
 * Whether the line shows a token beyond doubt, and the words in it that could be a lease's. A line of the format has no
 * field for one, so its words are looked at one by one: searching all of its text took longer than everything else.
 */
export function secretsIn(text: string, parsed: Parsed): { isSecret: boolean; suspects: readonly string[] } {
  const isBearer = text.includes('eyJ') && JWT.test(text);
  if ('problem' in parsed || parsed.line.kind === 'run') {
    return { isSecret: isBearer || TOKEN_FIELD.test(text), suspects: text.match(TOKEN_LIKE) ?? [] };
  }
  const suspects = Object.values(parsed.line).flatMap((value: unknown) =>
    typeof value === 'string' && value.length >= TOKEN_CHARS && !WELL_KNOWN.test(value)
      ? (value.match(TOKEN_LIKE) ?? [])
      : [],
  );
  return { isSecret: isBearer, suspects };
}

/** Ids that the server makes, and hashes. */
const WELL_KNOWN = /^[0-9a-f-]{36}$|^[0-9a-f]{64}$/;
