// Everything in one row of numbers.

import { computed } from "@preact/signals";
import { agentList } from "../live.ts";
import { needsAttention, type State } from "../model.ts";
import { filterBy, wanted } from "../wanted.ts";
import { STATE_WORDS } from "../words.ts";
import { Badge } from "./badge.tsx";

const SHOWN: State[] = ["running", "backoff", "waiting", "halted", "crashed-out", "stopped", "done", "idle", "starting", "stopping"];

const counts = computed(() => {
  const count = new Map<State, number>();
  let restarts = 0;
  let attention = 0;
  let permanent = 0;
  for (const agent of agentList.value) {
    count.set(agent.state, (count.get(agent.state) ?? 0) + 1);
    restarts += agent.restarts;
    if (needsAttention(agent)) attention += 1;
    if (agent.state === "crashed-out" || agent.state === "halted") permanent += 1;
  }
  return { count, restarts, attention, permanent };
});

export function Totals() {
  const { count, restarts, permanent } = counts.value;
  return (
    <section class="totals" aria-label="Totals">
      <div class="states">
        {SHOWN.filter((state) => count.get(state)).map((state) => (
          <button
            type="button"
            key={state}
            class="state-count"
            aria-pressed={wanted.value.state === state}
            aria-label={`${count.get(state)} ${STATE_WORDS[state]}: show only these`}
            onClick={() => filterBy(state)}
          >
            <b>{count.get(state)}</b>
            <Badge state={state} />
          </button>
        ))}
      </div>
      <dl>
        <div>
          <dt>restarts</dt>
          <dd data-testid="total-restarts">{restarts}</dd>
        </div>
        <div class={permanent > 0 ? "bad" : ""}>
          <dt>permanent deaths</dt>
          <dd data-testid="total-permanent">{permanent}</dd>
        </div>
      </dl>
    </section>
  );
}
