/** Mutations of the SQL functions: each drops one condition, and leaves everything else as it is. */

export interface Mutant {
  readonly file: string;
  readonly line: number;
  /** What is dropped, in one line. */
  readonly text: string;
  /** The condition of which it is a part: `where`, `on`, `when` or `if`; or the name of a mutation made by hand. */
  readonly of: string;
  readonly functionName: string;
  /** The whole file with the mutation in it. */
  readonly source: string;
}

interface Token {
  readonly text: string;
  readonly start: number;
  readonly end: number;
  /** How many parentheses, brackets and CASEs are open around it. */
  readonly depth: number;
}

/** Words, names, numbers and signs; comments are passed over, a literal is one token. */
const TOKEN = /--[^\n]*|'(?:[^']|'')*'|\$\$|[A-Za-z_][\w.]*|\d+(?:\.\d+)?|<=|>=|<>|:=|::|->>|->|\|\||[^\s\w]/g;

export function tokenize(source: string): Token[] {
  const open: string[] = [];
  return [...source.matchAll(TOKEN)].flatMap((match) => {
    const text = match[0].toLowerCase();
    if (text.startsWith('--')) return [];
    if (text === ')' || text === ']' || (text === 'end' && open.at(-1) === 'case')) open.pop();
    const token = { text, start: match.index, end: match.index + text.length, depth: open.length };
    if (text === '(' || text === '[' || text === 'case') open.push(text);
    return [token];
  });
}

const ENDS: Readonly<Record<string, ReadonlySet<string>>> = {
  where: new Set([';', '$$', 'order', 'group', 'limit', 'returning', 'for', 'union', 'except', 'on', 'loop', 'then']),
  on: new Set([
    ';',
    '$$',
    ',',
    'where',
    'join',
    'left',
    'cross',
    'order',
    'group',
    'limit',
    'returning',
    'set',
    'union',
  ]),
  when: new Set(['then']),
  if: new Set(['then']),
};

interface Condition {
  readonly of: string;
  readonly tokens: readonly Token[];
}

/** The conditions of a source: of WHERE, of joins, of WHEN, and of IF. */
function conditions(tokens: readonly Token[]): Condition[] {
  return tokens.flatMap((token, at) => {
    const ends = ENDS[token.text];
    if (ends === undefined) return [];
    const [before, after] = [tokens[at - 1]?.text, tokens[at + 1]?.text];
    if (token.text === 'on' && (after === 'conflict' || before === 'distinct')) return [];
    if (token.text === 'if' && (before === 'end' || after === 'not' || after === 'exists')) return [];
    let end = at + 1;
    while (end < tokens.length && tokens[end]!.depth >= token.depth) {
      if (tokens[end]!.depth === token.depth && ends.has(tokens[end]!.text)) break;
      end += 1;
    }
    return [{ of: token.text, tokens: tokens.slice(at + 1, end) }];
  });
}

interface Change {
  readonly tokens: readonly Token[];
  readonly to: 'true' | 'false';
}

/** What may be dropped of a condition: conjuncts are replaced by true, disjuncts by false, also within parentheses. */
function parts(tokens: readonly Token[]): Change[] {
  const inner = withoutParentheses(tokens);
  for (const [word, to] of [
    ['or', 'false'],
    ['and', 'true'],
  ] as const) {
    const operands = split(inner, word);
    if (operands.length > 1) return operands.flatMap((operand) => [{ tokens: operand, to }, ...parts(operand)]);
  }
  return [];
}

function withoutParentheses(tokens: readonly Token[]): readonly Token[] {
  const [first, last] = [tokens[0], tokens.at(-1)];
  if (first?.text !== '(' || last?.text !== ')' || tokens[1]?.text === 'select') return tokens;
  const isWhole = tokens.slice(1, -1).every(({ depth }) => depth > first.depth);
  return isWhole ? withoutParentheses(tokens.slice(1, -1)) : tokens;
}

function split(tokens: readonly Token[], word: 'and' | 'or'): (readonly Token[])[] {
  const depth = tokens[0]?.depth;
  const at = tokens.flatMap((token, index) => (token.text === word && token.depth === depth ? [index] : []));
  return [-1, ...at].map((start, n) => tokens.slice(start + 1, at[n] ?? tokens.length));
}

/** A WHEN that refuses is dropped as a whole, too; so is a WHERE or an ON that has but one part. */
function changesOf({ of, tokens }: Condition): Change[] {
  const inside = parts(tokens);
  if (of === 'when') return [{ tokens, to: 'false' }, ...inside];
  return inside.length > 0 || of === 'if' ? inside : [{ tokens, to: 'true' }];
}

/** Every mutation of a file. WHENs are taken of the functions that judge: elsewhere they choose a value. */
export function generateMutants(file: string, source: string): Mutant[] {
  return conditions(tokenize(source)).flatMap((condition) =>
    changesOf(condition).flatMap((change) => {
      const start = change.tokens[0]!.start;
      const functionName = functionAt(source, start);
      if (condition.of === 'when' && !functionName.startsWith('judge_')) return [];
      const end = change.tokens.at(-1)!.end;
      return [mutant(file, source, { start, end, to: change.to, of: condition.of })];
    }),
  );
}

/** A mutation made by hand: `from` occurs once in the file. */
export interface NamedMutation {
  readonly file: string;
  readonly name: string;
  readonly from: string;
  readonly to: string;
  /** A second place, where the first alone takes nothing away. */
  readonly also?: { readonly from: string; readonly to: string };
}

export function nameMutant({ file, name, from, to, also }: NamedMutation, source: string): Mutant {
  const start = findOnce(file, source, from);
  const made = mutant(file, source, { start, end: start + from.length, to, of: name });
  if (also === undefined) return made;
  findOnce(file, made.source, also.from);
  return { ...made, source: made.source.replace(also.from, () => also.to) };
}

function findOnce(file: string, source: string, text: string): number {
  const at = source.indexOf(text);
  if (at < 0 || source.includes(text, at + 1)) throw new Error(`${file}: not once: ${text}`);
  return at;
}

/** Every lock step in turn without its locks. */
export function lockMutants(file: string, source: string, peeks: string): Mutant[] {
  return [...source.matchAll(/lock_(rides|drivers)\(/g)].map(({ 0: call, 1: what, index: start }) => {
    const made = mutant(file, source, { start, end: start + call.length, to: `peek_${what}(`, of: 'lock dropped' });
    return { ...made, text: source.slice(start, source.indexOf('\n', start)), source: made.source + peeks };
  });
}

function mutant(
  file: string,
  source: string,
  { start, end, to, of }: { start: number; end: number; to: string; of: string },
): Mutant {
  return {
    file,
    line: source.slice(0, start).split('\n').length,
    text: source.slice(start, end).replaceAll(/\s+/g, ' '),
    of,
    functionName: functionAt(source, start),
    source: source.slice(0, start) + to + source.slice(end),
  };
}

const functionAt = (source: string, at: number): string =>
  [...source.slice(0, at).matchAll(/create or replace function (\w+)/g)].at(-1)?.[1] ?? '';
