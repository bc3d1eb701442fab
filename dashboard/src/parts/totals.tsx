// Everything in one row of numbers.

import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "../api.ts";
import { span } from "../format.ts";
import { agentList, connection, onEvent } from "../live.ts";
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

/** What the history adds up to. */
interface Sums {
  restarts: number;
  permanent_deaths: number;
  mean_recovery_s: number | null;
  median_recovery_s: number | null;
}

const sums = signal<Sums | null>(null);
const EVERY_MS = 2_000;

/** Looks again when something has happened, but not at each thing. */
function useSums(): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      timer = undefined;
      try {
        sums.value = await get<Sums>("/api/v1/totals?since=24h");
      } catch {
        // The agents' own figures are shown meanwhile.
      }
    };
    const soon = () => {
      timer ??= setTimeout(() => void look(), EVERY_MS);
    };
    void look();
    const stopEvents = onEvent(soon);
    const stopConnection = connection.subscribe((how) => {
      if (how.word === "live") soon();
    });
    return () => {
      stopEvents();
      stopConnection();
      clearTimeout(timer);
    };
  }, []);
}

export function Totals() {
  useSums();
  const { count, restarts, permanent } = counts.value;
  const known = sums.value;
  return (
    <section class="totals" aria-label="Totals">
      <div class="states">
        {SHOWN.filter((state) => count.get(state)).map((state) => (
          <button
            type="button"
            key={state}
            class="state-count"
            aria-pressed={wanted.value.state === state}
            title={`Show only what is ${STATE_WORDS[state]}`}
            onClick={() => filterBy(state)}
          >
            <b>{count.get(state)}</b> <Badge state={state} />
          </button>
        ))}
      </div>
      <dl>
        <div title="automatic restarts in the last 24 hours">
          <dt>restarts today</dt>
          <dd data-testid="total-restarts">{known?.restarts ?? restarts}</dd>
        </div>
        <div class={permanent > 0 ? "bad" : ""} title="deaths in the last 24 hours that needed a person">
          <dt>permanent deaths</dt>
          <dd data-testid="total-permanent">{known?.permanent_deaths ?? permanent}</dd>
        </div>
        <div title="from a death to the next run that is ready; half took longer">
          <dt>to recover</dt>
          <dd data-testid="total-recovery">{known?.median_recovery_s == null ? "–" : span(known.median_recovery_s)}</dd>
        </div>
      </dl>
    </section>
  );
}
