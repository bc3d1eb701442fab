// Lifelines: the runs of agents as bars, and what was between them.

import { getPage } from "../api.ts";
import { millis } from "../format.ts";
import type { Class, State } from "../model.ts";

export interface Bar {
  run: number;
  started_at: string;
  ended_at: string | null;
  class: Class | null;
  exit_code: number | null;
  signal: string | null;
}

export interface Pause {
  from: string;
  until: string | null;
  reason: string;
}

export interface Lifeline {
  agent: string;
  project: string;
  state: State;
  runs: Bar[];
  waits: Pause[];
  more: boolean;
}

/** A bar or a wait with its times as numbers, as it is drawn. */
export interface Mark {
  kind: "run" | "wait";
  from: number;
  /** Infinity while it lasts. */
  to: number;
  bar: Bar | null;
  wait: Pause | null;
}

export interface Line {
  agent: string;
  state: State;
  /** Whether earlier runs are not shown. */
  more: boolean;
  /** In the order of time. */
  marks: Mark[];
}

export async function fetchLifelines(since: number, until: number, agent: string | null): Promise<Line[]> {
  const stretch = `since=${encodeURIComponent(new Date(since).toISOString())}&until=${encodeURIComponent(new Date(until).toISOString())}`;
  const whose = agent === null ? "limit=1000&bars=300" : `agent=${encodeURIComponent(agent)}&bars=2000`;
  const lines: Line[] = [];
  // However many agents there are: each page says where the next one is.
  for (let path: string | null = `/api/v1/lifelines?${stretch}&${whose}`; path !== null; ) {
    const { page, next }: { page: { agents: Lifeline[] }; next: string | null } = await getPage(path);
    lines.push(...page.agents.map(lineOf));
    path = next;
  }
  return lines;
}

export function lineOf(lifeline: Lifeline): Line {
  const runs: Mark[] = lifeline.runs.map((bar) => ({
    kind: "run",
    from: millis(bar.started_at),
    to: bar.ended_at === null ? Infinity : millis(bar.ended_at),
    bar,
    wait: null,
  }));
  const waits: Mark[] = lifeline.waits.map((wait) => ({
    kind: "wait",
    from: millis(wait.from),
    to: wait.until === null ? Infinity : millis(wait.until),
    bar: null,
    wait,
  }));
  const marks = [...runs, ...waits].sort((a, b) => a.from - b.from);
  return { agent: lifeline.agent, state: lifeline.state, more: lifeline.more, marks };
}

/** The theme's colour for how a run ended. */
export function colourOf(bar: Bar): string {
  if (bar.class === null) return bar.ended_at === null ? "bar-alive" : "bar-clean";
  switch (bar.class) {
    case "done":
    case "voluntary":
    case "stopped":
    case "group":
      return "bar-clean";
    case "error":
    case "timeout":
    case "oom":
    case "interrupted":
    case "context":
    case "lost":
      return "bar-dumb";
    case "network":
    case "overload":
    case "throttle":
    case "quota":
    case "disk":
      return "bar-environment";
    case "budget":
    case "broke":
      return "bar-smart";
    case "config":
    case "auth":
    case "billing":
      return "bar-fix";
  }
}

export const LEGEND: [string, string][] = [
  ["bar-alive", "alive"],
  ["bar-clean", "done or stopped"],
  ["bar-dumb", "died of itself"],
  ["bar-environment", "quota, network, disk"],
  ["bar-smart", "budget"],
  ["bar-fix", "needs a fix"],
];
