// All agents at one look: who lives, who does not, why, and the button that puts it right.

import { computed, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { act } from "../actions.ts";
import { plural } from "../format.ts";
import { groups } from "../groups.ts";
import { useKeys } from "../keys.tsx";
import { agentList, loaded } from "../live.ts";
import { actionsFor, type Agent, type ChannelFailure, STATES } from "../model.ts";
import { AgentRow, SectionRow } from "../parts/rows.tsx";
import { Ago } from "../parts/time.tsx";
import { Totals } from "../parts/totals.tsx";
import { offsets, useGradually, useWindow, visible } from "../parts/virtual.ts";
import { agentAddress, go } from "../router.ts";
import { rowsOf, type Wanted } from "../rows.ts";
import { wanted } from "../wanted.ts";
import { STATE_WORDS } from "../words.ts";

const selected = signal<string | null>(null);
const rows = computed(() => rowsOf(agentList.value, groups.value, wanted.value));

const narrow = matchMedia("(max-width: 699px)");
const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", () => (isNarrow.value = narrow.matches));

const HEIGHTS = {
  wide: { section: 38, calm: 40, loud: 62 },
  narrow: { section: 38, calm: 96, loud: 148 },
};

export function Overview() {
  const search = useRef<HTMLInputElement>(null);
  useKeys((key) => {
    if (key === "/") {
      search.current?.focus();
      search.current?.select();
      return true;
    }
    return onRowKey(key);
  });
  const shown = rows.value.filter((row) => row.kind === "agent").length;
  return (
    <main class="page" id="main">
      <h1 class="unseen">Agents</h1>
      <Totals />
      <Unheard />
      <div class="tools">
        <input
          ref={search}
          type="search"
          placeholder="Search agents   /"
          aria-label="Search agents"
          value={wanted.value.search}
          onInput={(event) => (wanted.value = { ...wanted.value, search: event.currentTarget.value })}
        />
        <label>
          <span class="unseen">State</span>
          <select
            value={wanted.value.state}
            onChange={(event) => (wanted.value = { ...wanted.value, state: event.currentTarget.value as Wanted["state"] })}
          >
            <option value="all">All states</option>
            <option value="attention">Needs attention</option>
            {STATES.map((state) => (
              <option key={state} value={state}>
                {STATE_WORDS[state]}
              </option>
            ))}
          </select>
        </label>
        <span class="count" role="status">
          {shown === agentList.value.length ? `${shown}` : `${shown} of ${agentList.value.length}`} agents
        </span>
      </div>
      {loaded.value && agentList.value.length === 0 ? <Nothing /> : <Table />}
    </main>
  );
}

/** The channels by which nobody can be told of what becomes of agents, each once. */
const failing = computed(() => {
  const found = new Map<string, ChannelFailure>();
  for (const agent of agentList.value) {
    for (const failure of agent.channels_failing) found.set(`${agent.project}/${failure.channel}`, failure);
  }
  return [...found];
});

function Unheard() {
  if (failing.value.length === 0) return null;
  return (
    <section class="card unheard" aria-label="Notifications that do not arrive" data-testid="unheard">
      {failing.value.map(([channel, { why, attempts, at, given_up }]) => (
        <p key={channel}>
          Channel <b>{channel}</b> fails: {why} ({plural(attempts, "attempt")}, <Ago at={at} />; {given_up ? "given up" : "it is tried again"})
        </p>
      ))}
      <p class="faint">
        <code>defib notify test</code> tries every channel and says what came of it.
      </p>
    </section>
  );
}

function Nothing() {
  return (
    <section class="card empty">
      <h2>No agents yet</h2>
      <p>In a folder with a defib.toml:</p>
      <pre class="command">defib up --detach</pre>
      <p>or one without a file:</p>
      <pre class="command">defib run --name worker -- claude -p "…"</pre>
    </section>
  );
}

/** Whether the selection was moved by a key, so that the row is to be focused. */
let focusSoon = false;

function Table() {
  const { container, view } = useWindow<HTMLDivElement>();
  const list = rows.value;
  const heights = HEIGHTS[isNarrow.value ? "narrow" : "wide"];
  const at = offsets(list.map((row) => (row.kind === "section" ? heights.section : row.loud ? heights.loud : heights.calm)));
  const range = visible(at, view.top, view.height);
  const drawn = useGradually(range, visible(at, view.top, view.height, 0), (index) => list[index]!.key);
  const chosen = selected.value;

  useLayoutEffect(() => {
    if (!focusSoon || chosen === null || !container.current) return;
    const row = container.current.querySelector<HTMLElement>(`[data-key="${CSS.escape(chosen)}"]`);
    if (row) {
      focusSoon = false;
      row.focus({ preventScroll: true });
    }
  });
  useEffect(() => {
    const index = list.findIndex((row) => row.key === chosen);
    const box = container.current?.getBoundingClientRect();
    if (index < 0 || !box || !focusSoon) return;
    const top = box.top + at[index]!;
    const bottom = box.top + at[index + 1]!;
    if (top < 110) scrollBy({ top: top - 110 });
    else if (bottom > innerHeight - 16) scrollBy({ top: bottom - innerHeight + 16 });
  }, [chosen]);

  return (
    <div class="table" role="grid" aria-label="Agents" aria-rowcount={list.length + 1} aria-colcount={8}>
      <div role="rowgroup" class="table-head">
        <div role="row" class="row" aria-rowindex={1}>
          <span role="columnheader">State</span>
          <span role="columnheader">Agent</span>
          <span role="columnheader">Restarts · runtime</span>
          <span role="columnheader">Last death</span>
          <span role="columnheader">Beat</span>
          <span role="columnheader">Balance</span>
          <span role="columnheader">Next</span>
          <span role="columnheader">
            <span class="unseen">Actions</span>
          </span>
        </div>
      </div>
      <div role="rowgroup" ref={container} class="table-body" style={{ height: `${at[list.length]}px` }}>
        {drawn.map((index) => {
          const row = list[index]!;
          const place = { top: at[index]!, height: at[index + 1]! - at[index]!, index: index + 2 };
          return row.kind === "section" ? (
            <SectionRow key={row.key} row={row} place={place} />
          ) : (
            <AgentRow
              key={row.key}
              row={row}
              place={place}
              selected={chosen === row.key}
              reachable={chosen === row.key || (chosen === null && index <= 1)}
              onSelect={() => (selected.value = row.key)}
            />
          );
        })}
      </div>
    </div>
  );
}

function move(by: number): boolean {
  const list = rows.value.filter((row) => row.kind === "agent");
  if (list.length === 0) return false;
  const index = list.findIndex((row) => row.key === selected.value);
  const next = index < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, index + by));
  focusSoon = true;
  selected.value = list[next]!.key;
  return true;
}

function onRowKey(key: string): boolean {
  switch (key) {
    case "j":
    case "ArrowDown":
      return move(1);
    case "k":
    case "ArrowUp":
      return move(-1);
    case "PageDown":
      return move(15);
    case "PageUp":
      return move(-15);
    case "Home":
      return move(-1e9);
    case "End":
      return move(1e9);
  }
  const agent = agentList.value.find((agent) => agent.name === selected.value);
  if (!agent) return false;
  if (key === "Enter" || key === "o") {
    // A focused button or link keeps what Enter means to it.
    if (key === "Enter" && document.activeElement?.closest("button, a, summary")) return false;
    go(agentAddress(agent.name));
    return true;
  }
  if (key === "l") {
    go(agentAddress(agent.name, "logs"));
    return true;
  }
  return onAgentKey(key, agent);
}

/** The keys that act on an agent, here and on its own page. */
export function onAgentKey(key: string, agent: Agent): boolean {
  const can = actionsFor(agent);
  const first = (...actions: ("start" | "stop" | "restart" | "revive")[]) => actions.find((action) => can.includes(action));
  const action = key === "r" ? first("restart", "start") : key === "s" ? first("stop", "start") : key === "v" ? first("revive") : undefined;
  if (!action) return false;
  void act(agent.name, action);
  return true;
}
