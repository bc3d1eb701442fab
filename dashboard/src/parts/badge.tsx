// A state as a badge: colour, word and shape, so that none of them alone has to say it.

import type { JSX } from "preact";
import type { State } from "../model.ts";
import { STATE_WORDS } from "../words.ts";

const SHAPES: Record<State, JSX.Element> = {
  running: <circle cx="6" cy="6" r="4.5" fill="currentColor" />,
  starting: <path d="M6 1.5a4.5 4.5 0 0 1 0 9z M6 1.5a4.5 4.5 0 0 0 0 9" fill="currentColor" fill-opacity="0.55" />,
  backoff: <path d="M2 6a4 4 0 1 0 1.4-3M3.6.6v2.6h2.6" fill="none" stroke="currentColor" stroke-width="1.7" />,
  waiting: <path d="M3 2v8M9 2v8" stroke="currentColor" stroke-width="2.4" />,
  stopping: <path d="M2 3.5h8L6 9.5z" fill="currentColor" />,
  stopped: <rect x="2" y="2" width="8" height="8" rx="1" fill="currentColor" />,
  done: <path d="M1.8 6.4 4.8 9.4 10.2 3" fill="none" stroke="currentColor" stroke-width="2" />,
  idle: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.7" />,
  halted: <path d="M4 1h4l3 3v4l-3 3H4L1 8V4z" fill="currentColor" />,
  "crashed-out": <path d="M2.2 2.2l7.6 7.6M9.8 2.2 2.2 9.8" stroke="currentColor" stroke-width="2.4" />,
};

export function Badge({ state, reason }: { state: State; reason?: string | null }) {
  return (
    <span class={`badge state-${state}`} title={reason ?? undefined}>
      <svg viewBox="0 0 12 12" aria-hidden="true">
        {SHAPES[state]}
      </svg>
      <span>{STATE_WORDS[state]}</span>
    </span>
  );
}

export function Flapping() {
  return (
    <span class="tag tag-flapping" title="Three or more deaths that count in the last ten minutes">
      flapping
    </span>
  );
}
