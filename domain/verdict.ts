/** What a command comes to: it changes something, it was done before, or it is refused. */
import type { RefusalCode } from './refusals.ts';

export type Verdict<State, Code extends RefusalCode = RefusalCode> =
  | { readonly kind: 'applied'; readonly to: State }
  | { readonly kind: 'repeated' }
  | { readonly kind: 'refused'; readonly code: Code };

export const applied = <State>(to: State) => ({ kind: 'applied', to }) as const;
export const repeated = { kind: 'repeated' } as const;
export const refused = <Code extends RefusalCode>(code: Code) => ({ kind: 'refused', code }) as const;
